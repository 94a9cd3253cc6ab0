"""paste: lines side by side."""

import cli

LONG = {"delimiters=": "d", "serial": "s", "zero-terminated": "z"}
ESCAPES = {b"0": b"", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"\\": b"\\"}


def run(argv):
    found, names = cli.options(argv, "d:sz", LONG)
    chosen = dict(found)
    delimiters = parse(cli.encode(chosen.get("d", "\\t")))
    end = b"\0" if "z" in chosen else b"\n"
    names = names or ["-"]
    if "s" in chosen:
        inputs = cli.Inputs("paste", names)
        for _, data in inputs:
            cli.out(joined(cli.lines(data, end), delimiters) + end)
        return inputs.code
    # Standard input named twice is one stream; a file named twice is read twice.
    shared = iter(cli.lines(cli.load("-"), end)) if "-" in names else None
    streams = [shared if name == "-" else iter(cli.lines(cli.load(name), end)) for name in names]
    while True:
        row = [next(stream, None) for stream in streams]
        if all(cell is None for cell in row):
            return 0
        cli.out(joined([cell or b"" for cell in row], delimiters) + end)


def joined(cells, delimiters):
    """Return the cells with the delimiters between them in turn."""
    result = cells[0] if cells else b""
    for number, cell in enumerate(cells[1:]):
        result += delimiters[number % len(delimiters)] + cell
    return result


def parse(text):
    result, place = [], 0
    while place < len(text):
        if text[place] == 92:
            if place + 1 == len(text):
                raise cli.Failure("delimiter list ends with an unescaped backslash")
            follower = text[place + 1 : place + 2]
            result.append(ESCAPES.get(follower, follower))
            place += 2
        else:
            result.append(text[place : place + 1])
            place += 1
    return result or [b""]
