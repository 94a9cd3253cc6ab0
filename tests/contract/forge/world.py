"""What a contract test starts from: fresh users, a repository with a protected main, clones."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import gitea_api_client as gitea
import httpx

from tests.support.servers import RunningForge

T = TypeVar("T")
PATIENCE = 30.0  # seconds a condition may take to come true
PASSWORD = "worker-password-1"


def eventually(check: Callable[[], T | bool | None], what: str) -> T:
    """Return the first true value of `check`, asked again and again within `PATIENCE`."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        value = check()
        if value:
            return value  # type: ignore[return-value]
        time.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE:g} s: {what}")


class Gitea:
    """The parts of the third-party client that the tests use."""

    def __init__(self, client: gitea.ApiClient) -> None:
        self.users = gitea.UserApi(client)
        self.repos = gitea.RepositoryApi(client)
        self.issues = gitea.IssueApi(client)
        self.notices = gitea.NotificationApi(client)
        self.site = gitea.MiscellaneousApi(client)


class Member:
    """A user with a token, the third-party client and a plain HTTP client."""

    def __init__(self, forge: RunningForge, name: str, token: str) -> None:
        self.name = name
        self.token = token
        self.http = httpx.Client(base_url=forge.api, headers={"Authorization": f"token {token}"}, timeout=30)
        self._api = forge.api

    @asynccontextmanager
    async def gitea(self) -> AsyncIterator[Gitea]:
        """The third-party client, generated from Gitea's own API description."""
        configuration = gitea.Configuration(host=self._api)
        configuration.api_key["AuthorizationHeaderToken"] = f"token {self.token}"
        async with gitea.ApiClient(configuration) as client:
            yield Gitea(client)


class World:
    """Fresh accounts and a repository `<owner>/project` of a forge; a context, for it holds connections."""

    def __init__(self, forge: RunningForge, folder: Path, tag: str) -> None:
        self.forge = forge
        self.folder = folder
        self.admin_http = httpx.Client(base_url=forge.api, auth=forge.auth, timeout=30)
        self.members: list[Member] = []
        self.tag = tag
        self.name = "project"
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        tag = self.tag
        self.owner = self.member(f"owner{tag}")
        self.ann = self.member(f"ann{tag}")
        self.ben = self.member(f"ben{tag}")
        self.at = f"/repos/{self.owner.name}/{self.name}"
        made = self.owner.http.post(
            "/user/repos", json={"name": self.name, "auto_init": True, "default_branch": "main"}
        )
        assert made.status_code == 201, made.text
        for member in (self.ann, self.ben):
            url = f"{self.at}/collaborators/{member.name}"
            assert self.owner.http.put(url, json={"permission": "write"}).status_code == 204

    def member(self, name: str) -> Member:
        """Create a user and mint a token for it, as provisioning does."""
        body = {
            "username": name,
            "email": f"{name}@example.org",
            "password": PASSWORD,
            "must_change_password": False,
        }
        made = self.admin_http.post("/admin/users", json=body)
        assert made.status_code == 201, made.text
        token = self.admin_http.post(f"/users/{name}/tokens", json={"name": "work", "scopes": ["all"]})
        assert token.status_code == 201, token.text
        member = Member(self.forge, name, token.json()["sha1"])
        self.members.append(member)
        return member

    def protect(self, **rule: Any) -> None:
        """Protect main: no pushes, merges through pull requests."""
        body = {"rule_name": "main", "enable_push": False, "required_approvals": 0, **rule}
        made = self.owner.http.post(f"{self.at}/branch_protections", json=body)
        assert made.status_code == 201, made.text

    def clone(self, member: Member, name: str = "") -> Clone:
        """Clone as a member, credentials in the address of the clone only."""
        host = self.forge.url.removeprefix("http://")
        url = f"http://{member.name}:{member.token}@{host}/{self.owner.name}/{self.name}.git"
        path = self.folder / (name or f"{member.name}-clone")
        return Clone.make(url, path, member.name)

    def begin_git(self, member: Member, service: str, body: bytes, length: int) -> socket.socket:
        """Send the beginning of a request of git's that says it has `length` bytes; return the connection."""
        address = urlsplit(self.forge.url)
        basic = base64.b64encode(f"{member.name}:{member.token}".encode()).decode()
        head = (
            f"POST /{self.owner.name}/{self.name}.git/{service} HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Basic {basic}\r\nContent-Type: application/x-{service}-request\r\n"
            f"Content-Length: {length}\r\n\r\n"
        )
        connection = socket.create_connection((address.hostname, address.port))
        connection.sendall(head.encode() + body)
        return connection

    def pull(self, member: Member, branch: str, title: str = "A change", **fields: Any) -> dict[str, Any]:
        """Open a pull request into main."""
        answer = member.http.post(f"{self.at}/pulls", json={"title": title, "head": branch, "base": "main", **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()  # type: ignore[no-any-return]

    def branch(self, member: Member, branch: str, files: dict[str, str], base: str = "main") -> str:
        """Commit files onto a new branch through the API and return the commit."""
        body = {
            "branch": base,
            "new_branch": branch,
            "message": f"Work on {branch}",
            "files": [
                {"operation": "upload", "path": path, "content": base64.b64encode(text.encode()).decode()}
                for path, text in files.items()
            ],
        }
        answer = member.http.post(f"{self.at}/contents", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["commit"]["sha"])

    def mergeable(self, number: int) -> dict[str, Any]:
        """Wait until the pull request is checked and mergeable."""

        def check() -> dict[str, Any] | None:
            pull: dict[str, Any] = self.owner.http.get(f"{self.at}/pulls/{number}").json()
            return pull if pull["mergeable"] else None

        return eventually(check, f"pull request {number} becomes mergeable")

    def merge(self, member: Member, number: int, **fields: Any) -> httpx.Response:
        """Ask once for the merge."""
        return member.http.post(f"{self.at}/pulls/{number}/merge", json={"Do": "merge", **fields})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.admin_http.close()
        for member in self.members:
            member.http.close()


class Clone:
    """A work tree driven by plain git."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls, url: str, path: Path, name: str) -> Clone:
        run_git(path.parent, "clone", "--quiet", url, str(path))
        clone = cls(path)
        clone.git("config", "user.name", name)
        clone.git("config", "user.email", f"{name}@example.org")
        return clone

    def git(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run git in the work tree."""
        return run_git(self.path, *arguments, check=check)

    def commit(self, files: dict[str, str], message: str = "A change") -> str:
        """Write files and commit them."""
        for name, text in files.items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", message)
        return self.git("rev-parse", "HEAD").stdout.strip()


def run_git(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run git with no configuration but its own."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert not check or done.returncode == 0, f"git {' '.join(arguments)}: {done.stderr}"
    return done
