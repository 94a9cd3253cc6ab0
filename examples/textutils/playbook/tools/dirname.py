"""dirname: a path without its last part."""

import cli


def run(argv):
    found, names = cli.options(argv, "z", {"zero": "z"})
    if not names:
        raise cli.Failure("missing operand")
    end = b"\0" if found else b"\n"
    for name in names:
        cli.out(cli.encode(parent(name)) + end)
    return 0


def parent(name):
    if name and not name.strip("/"):
        return "/"
    head, slash, _ = name.rstrip("/").rpartition("/")
    if not slash:
        return "."
    return head.rstrip("/") or "/"
