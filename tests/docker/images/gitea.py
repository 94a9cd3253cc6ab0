"""`gitea web` and `gitea admin user create|change-password` over the embedded forge, as provisioning uses them."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from agensh.embedded.forge.auth import Passwords
from agensh.embedded.forge.server import serve
from agensh.embedded.forge.settings import ForgeSettings
from agensh.embedded.forge.store import users
from agensh.embedded.forge.store.database import Database

DATA = Path("/data")


def main() -> int:
    """Run the command line."""
    if sys.argv[1:] == ["web"]:
        os.chown(DATA, 1000, 1000)
        os.setgid(1000)
        os.setuid(1000)
        serve(DATA, "0.0.0.0", 3000, None, ForgeSettings(delay_check_for_inactive_days=0))
        return 0
    parser = argparse.ArgumentParser(prog="gitea admin user")
    parser.add_argument("words", nargs=3)
    parser.add_argument("--username", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--email", default="")
    parser.add_argument("--admin", action="store_true")
    parser.add_argument("--must-change-password", default="true")
    options = parser.parse_args()
    return asyncio.run(change(options))


async def change(options: argparse.Namespace) -> int:
    """Create the account, or give it another password."""
    passwords = Passwords(ForgeSettings().password_rounds)
    stored = await passwords.hash(options.password)
    database = Database(DATA / "forge.sqlite3", on_touched=lambda _users: None)
    database.open()
    try:
        if options.words[2] == "create":
            if await database.read(lambda tx: users.by_name(tx, options.username)) is not None:
                sys.stdout.write(f"Command error: CreateUser: user already exists [name: {options.username}]" + "\n")
                return 1
            await database.write(
                lambda tx: users.create(
                    tx,
                    int(time.time()),
                    options.username,
                    options.email,
                    stored,
                    is_admin=options.admin,
                    must_change_password=options.must_change_password != "false",
                )
            )
            sys.stdout.write(f"New user '{options.username}' has been successfully created!" + "\n")
        else:
            await database.write(lambda tx: tx.update("users", "name", options.username, password=stored))
            sys.stdout.write(f"{options.username}'s password has been successfully updated!" + "\n")
    finally:
        database.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
