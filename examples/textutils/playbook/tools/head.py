"""head: the first lines or bytes of each input."""

import cli

LONG = {"lines=": "n", "bytes=": "c", "quiet": "q", "silent": "q", "verbose": "v", "zero-terminated": "z"}
UNITS = {"": 1, "b": 512, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
UNITS |= {unit + tail: 1024**power for power, unit in ((1, "K"), (1, "k"), (2, "M"), (3, "G")) for tail in ("", "iB")}


def run(argv):
    if argv and argv[0][:1] == "-" and argv[0][1:].isdigit():
        argv = ["-n", argv[0][1:], *argv[1:]]
    found, names = cli.options(argv, "n:c:qvz", LONG)
    unit, count, headers, end = "n", "10", len(names) > 1, b"\n"
    for letter, value in found:
        if letter in "nc":
            unit, count = letter, value
        elif letter in "qv":
            headers = letter == "v"
        else:
            end = b"\0"
    all_but, count = count.startswith("-"), size(count.lstrip("-"), unit)
    inputs = cli.Inputs("head", names)
    first = True
    for name, data in inputs:
        if headers:
            title = "standard input" if name == "-" else name
            cli.out(cli.encode(("" if first else "\n") + f"==> {title} <==\n"))
        first = False
        parts = data.split(end) if unit == "n" else data
        if unit == "n":
            parts = [part + end for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
        kept = parts[: max(0, len(parts) - count) if all_but else count]
        cli.out(b"".join(kept) if unit == "n" else kept)
    return inputs.code


def size(text, unit):
    digits = text.rstrip("bkKMGiB")
    what = "number of lines" if unit == "n" else "number of bytes"
    if text[len(digits) :] not in UNITS:
        raise cli.Failure(f"invalid {what}: '{text}'")
    return cli.number(digits, what) * UNITS[text[len(digits) :]]
