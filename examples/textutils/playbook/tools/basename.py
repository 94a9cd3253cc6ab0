"""basename: the last part of a path."""

import cli

LONG = {"multiple": "a", "suffix=": "s", "zero": "z"}


def run(argv):
    found, names = cli.options(argv, "as:z", LONG, stop=True)
    chosen = dict(found)
    suffix = chosen.get("s", "")
    if not names:
        raise cli.Failure("missing operand")
    if "a" not in chosen and "s" not in chosen:
        if len(names) > 2:
            raise cli.Failure(f"extra operand '{names[2]}'")
        suffix = names[1] if len(names) == 2 else ""
        names = names[:1]
    for name in names:
        last = name.rstrip("/").rpartition("/")[2] if name.strip("/") else name[:1]
        if suffix and last != suffix and last.endswith(suffix):
            last = last[: -len(suffix)]
        cli.out(cli.encode(last) + (b"\0" if "z" in chosen else b"\n"))
    return 0
