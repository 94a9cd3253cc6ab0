"""What every tool needs: options, input as bytes, output, errors."""

import os
import sys


class Failure(Exception):
    """Ends the tool with a message and an exit code."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


def options(argv, short, long=(), code=1, stop=False):
    """Split arguments into options and operands.

    `short` is written as for getopt ("ab:c::"); `long` maps "name" (or "name=", "name=?" with an optional value) to a
    short letter or another key. `stop` ends the options at the first operand.
    """
    long = dict(long)
    found, operands = [], []
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            operands += rest
            break
        if argument.startswith("--"):
            found.append(_long(argument[2:], rest, long, code))
        elif argument.startswith("-") and argument != "-":
            found += _short(argument[1:], rest, short, code)
        else:
            operands.append(argument)
            if stop:
                operands += rest
                break
    return found, operands


def _long(text, rest, long, code):
    name, equals, value = text.partition("=")
    matches = [key for key in long if key.rstrip("=?") == name] or [key for key in long if key.startswith(name)]
    if len({long[key] for key in matches}) != 1:
        raise Failure(f"unrecognized option '--{name}'", code)
    key = matches[0]
    if key.endswith("="):
        if not equals:
            if not rest:
                raise Failure(f"option '--{name}' requires an argument", code)
            value = rest.pop(0)
        return long[key], value
    if key.endswith("=?"):
        return long[key], value if equals else None
    if equals:
        raise Failure(f"option '--{name}' doesn't allow an argument", code)
    return long[key], None


def _short(cluster, rest, short, code):
    found = []
    while cluster:
        letter, cluster = cluster[0], cluster[1:]
        place = short.find(letter)
        if place < 0 or letter == ":":
            raise Failure(f"invalid option -- '{letter}'", code)
        if short[place + 1 : place + 3] == "::":
            found.append((letter, cluster or None))
            break
        if short[place + 1 : place + 2] == ":":
            if not cluster and not rest:
                raise Failure(f"option requires an argument -- '{letter}'", code)
            found.append((letter, cluster or rest.pop(0)))
            break
        found.append((letter, None))
    return found


class Inputs:
    """The named inputs in turn ("-" or none: standard input); `code` is 1 once one of them could not be read."""

    def __init__(self, tool, names):
        self.tool = tool
        self.names = names or ["-"]
        self.code = 0

    def __iter__(self):
        for name in self.names:
            try:
                data = read(name)
            except OSError as error:
                complain(self.tool, f"{name}: {error.strerror}")
                self.code = 1
                continue
            yield name, data

    def joined(self):
        """Return all inputs as one."""
        return b"".join(data for _, data in self)


def read(name):
    """Return a file's bytes."""
    if name == "-":
        return sys.stdin.buffer.read()
    with open(name, "rb") as file:
        return file.read()


def load(name, code=1):
    """Return a file's bytes or end the tool."""
    try:
        return read(name)
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}", code) from None


def lines(data, end=b"\n"):
    """Return the lines without their ends; a last line without an end counts as a line."""
    parts = data.split(end)
    if not parts[-1]:
        parts.pop()
    return parts


def number(text, what="number", low=0, code=1):
    """Return a decimal whole number of at least `low`."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or int(text) < low:
        raise Failure(f"invalid {what}: '{text}'", code)
    return int(text)


def out(data):
    """Write bytes to standard output."""
    sys.stdout.buffer.write(data)


def complain(tool, message):
    """Write an error message; output written so far comes first."""
    sys.stdout.flush()
    sys.stderr.write(f"{tool}: {message}\n")


def encode(argument):
    """Return an argument as the bytes it was given as."""
    return os.fsencode(argument)
