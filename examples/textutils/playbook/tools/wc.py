"""wc: count lines, words, bytes, and the width of the longest line."""

import cli

LONG = {"lines": "l", "words": "w", "chars": "m", "bytes": "c", "max-line-length": "L"}


def run(argv):
    found, names = cli.options(argv, "lwmcL", LONG)
    chosen = {letter for letter, _ in found} or set("lwc")
    columns = [letter for letter in "lwmcL" if letter in chosen]
    inputs = cli.Inputs("wc", names)
    rows = []
    for name, data in inputs:
        counts = {"l": data.count(b"\n"), "w": len(data.split()), "m": len(data), "c": len(data), "L": longest(data)}
        rows.append(([counts[letter] for letter in columns], name))
    width = column_width(columns, names, rows)
    if len(names) > 1:
        totals = [list(values) for values in zip(*(counts for counts, _ in rows))] or [[0]] * len(columns)
        rows.append(([max(v) if c == "L" else sum(v) for c, v in zip(columns, totals)], "total"))
    for counts, name in rows:
        label = f" {name}" if names else ""
        cli.out(cli.encode(" ".join(f"{count:{width}}" for count in counts) + label + "\n"))
    return inputs.code


def longest(data):
    """Return the greatest width of a line: tabs go to the next multiple of 8, other controls take no room."""
    best = width = 0
    for byte in data:
        if byte in b"\n\r\f":
            best, width = max(best, width), 0
        elif byte == 9:
            width += 8 - width % 8
        elif 32 <= byte < 127:
            width += 1
    return max(best, width)


def column_width(columns, names, rows):
    if len(columns) == 1 and len(names) <= 1:
        return 1
    if not names or "-" in names:
        return 7
    # The width is that of the sum of the sizes, known before anything is counted.
    total = 0
    for name in names:
        try:
            with open(name, "rb") as file:
                total += file.seek(0, 2)
        except OSError:
            continue
    return len(str(total))
