"""fold: wrap long lines."""

import cli

LONG = {"bytes": "b", "spaces": "s", "width=": "w"}


def run(argv):
    argv = [f"-w{part[1:]}" if part[:1] == "-" and part[1:].isdigit() else part for part in argv]
    found, names = cli.options(argv, "bsw:", LONG)
    chosen = dict(found)
    width = cli.number(chosen.get("w", "80"), "number of columns", low=1)
    inputs = cli.Inputs("fold", names)
    for _, data in inputs:
        for line in split(data):
            wrap(line, width, "b" in chosen, "s" in chosen)
    return inputs.code


def split(data):
    return [part + b"\n" for part in data.split(b"\n")[:-1]] + [data.rpartition(b"\n")[2]]


def wrap(line, width, count_bytes, at_blanks):
    start, column = 0, 0
    place = 0
    while place < len(line) and line[place] != 10:
        after = advance(column, line[place], count_bytes)
        if after <= width or place == start:
            column = after
            place += 1
            continue
        cut = place
        if at_blanks:
            cut = max(line.rfind(b" ", start, place), line.rfind(b"\t", start, place)) + 1 or place
        cli.out(line[start:cut] + b"\n")
        start, column = cut, 0
        for byte in line[start:place]:
            column = advance(column, byte, count_bytes)
    cli.out(line[start:])


def advance(column, byte, count_bytes):
    """Return the column after a byte."""
    if not count_bytes:
        if byte == 9:
            return column + 8 - column % 8
        if byte == 8:
            return max(0, column - 1)
        if byte == 13:
            return 0
    return column + 1
