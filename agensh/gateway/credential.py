"""The provider's credential: from an environment variable or a file of mode 600, and into one header."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from agensh.errors import SpecError
from agensh.spec import GatewaySection


def read_credential(section: GatewaySection, environment: Mapping[str, str] = os.environ) -> str:
    """Return the credential, empty for a provider that takes none; SpecError says what is missing, and the remedy."""
    if section.auth == "none":
        return ""
    if section.api_key_env:
        value = environment.get(section.api_key_env, "").strip()
        if not value:
            raise SpecError(
                f"gateway.api_key_env: the environment variable {section.api_key_env!r} is not set; export it first "
                "(`agensh up` reads .env too)."
            )
        where = f"gateway.api_key_env: the environment variable {section.api_key_env!r}"
    else:
        assert section.api_key_file is not None, "the spec names one of the two"
        path = section.api_key_file.expanduser()
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise SpecError(
                    f"gateway.api_key_file: {str(path)!r} has mode {mode:o}, so others may read it; "
                    f"expected 600: chmod 600 {path}"
                )
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"gateway.api_key_file: {str(path)!r} cannot be read: {error}.") from None
        where = f"gateway.api_key_file: {str(path)!r}"
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise SpecError(f"{where} does not hold a credential: one line of printable ASCII without blanks.")
    return value


def credential_headers(section: GatewaySection, credential: str) -> dict[str, str]:
    """Return the header that carries the credential to the provider."""
    match section.auth:
        case "none":
            return {}
        case "bearer":
            return {"authorization": f"Bearer {credential}"}
        case _:
            return {section.auth: credential}
