"""POSIX basic regular expressions, as Python ones over bytes."""

import re

PLAIN_IN_BRE = b"+?(){}|"


def compile(pattern):
    """Return the compiled expression and its number of groups."""
    result, place, start = b"", 0, True
    while place < len(pattern):
        char = pattern[place : place + 1]
        if char == b"\\" and place + 1 < len(pattern):
            follower = pattern[place + 1 : place + 2]
            result += follower if follower in PLAIN_IN_BRE else b"\\" + follower
            start = follower in b"(|"
            place += 2
            continue
        if char == b"[":
            end = pattern.index(b"]", place + (3 if pattern[place + 1 : place + 2] == b"^" else 2))
            while pattern.find(b"[:", place, end) >= 0 and pattern[end - 1 : end] == b":":
                end = pattern.index(b"]", end + 1)
            result += bracket(pattern[place + 1 : end])
            place, start = end + 1, False
            continue
        if char in PLAIN_IN_BRE or (char == b"*" and start):
            result += b"\\" + char
        elif char == b"^" and not start:
            result += b"\\^"
        elif char == b"$" and place + 1 < len(pattern) and pattern[place + 1 : place + 3] not in (b"\\)", b"\\|"):
            result += b"\\$"
        else:
            result += char
        start = char == b"^" and start
        place += 1
    compiled = re.compile(result, re.DOTALL)
    return compiled, compiled.groups


CLASSES = {
    b"[:alpha:]": b"A-Za-z",
    b"[:digit:]": b"0-9",
    b"[:alnum:]": b"A-Za-z0-9",
    b"[:lower:]": b"a-z",
    b"[:upper:]": b"A-Z",
    b"[:space:]": b" \\t-\\r",
    b"[:blank:]": b" \\t",
    b"[:punct:]": b"!-/:-@\\[-`{-~",
}


def bracket(inside):
    negated = inside.startswith(b"^")
    inside = inside[negated:].replace(b"\\", b"\\\\")
    for name, members in CLASSES.items():
        inside = inside.replace(name, members)
    if inside.startswith(b"]"):
        inside = b"\\" + inside
    return b"[" + b"^" * negated + inside + b"]"
