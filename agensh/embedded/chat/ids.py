"""Identifiers as Mattermost makes them: 26 characters of a 32-letter alphabet, 128 random bits."""

from __future__ import annotations

import secrets

_ALPHABET = "ybndrfg8ejkmcpqxot1uwisza345h769"
ID_LENGTH = 26


def new_id() -> str:
    """Return a fresh identifier."""
    value = secrets.randbits(128) << 2  # 130 bits: 26 groups of 5
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def is_id(text: str) -> bool:
    """Say whether `text` has the form of an identifier."""
    return len(text) == ID_LENGTH and text.isascii() and text.isalnum()
