"""unexpand: spaces to tabs."""

import cli

LONG = {"all": "a", "first-only": "first", "tabs=": "t"}


def run(argv):
    found, names = cli.options(argv, "at:", LONG)
    letters = {letter for letter, _ in found}
    stops = parse([value for letter, value in found if letter == "t"])
    everywhere = bool(letters & {"a", "t"})
    if "first" in letters:
        everywhere = False
    inputs = cli.Inputs("unexpand", names)
    data = inputs.joined()
    for line in data.split(b"\n")[:-1]:
        cli.out(convert(line, stops, everywhere) + b"\n")
    cli.out(convert(data.rpartition(b"\n")[2], stops, everywhere))
    return inputs.code


def convert(line, stops, everywhere):
    result, place, column = b"", 0, 0
    while place < len(line):
        end = place
        while end < len(line) and line[end] in b" \t":
            end += 1
        if end > place:
            if place and not everywhere:
                return result + line[place:]
            text, column = blanks(line[place:end], column, stops)
            result, place = result + text, end
            continue
        column = max(0, column - 1) if line[place] == 8 else column + 1
        result += line[place : place + 1]
        place += 1
    return result


def blanks(run, column, stops):
    """Return a run of blanks with tabs up to every stop it reaches, and the column after it."""
    result, pending = b"", b""
    for place, byte in enumerate(run):
        stop = next_stop(column, stops)
        if stop is None:
            return result + pending + run[place:], column + len(run) - place
        pending += run[place : place + 1]
        column = stop if byte == 9 else column + 1
        if column == stop:
            # A lone space in front of a stop stays one, also when only blanks behind the last stop follow.
            lone = result == b"" and pending == b" " and (len(run) == 1 or next_stop(column, stops) is None)
            result += b" " if lone else b"\t"
            pending = b""
    return result + pending, column


def parse(texts):
    """Return the tab stops: one number is an interval, several are columns."""
    stops = [cli.number(part, "tab size", low=1) for text in texts for part in text.replace(",", " ").split()]
    if any(later <= earlier for earlier, later in zip(stops, stops[1:])):
        raise cli.Failure("tab sizes must be ascending")
    return stops or [8]


def next_stop(column, stops):
    if len(stops) == 1:
        return column + stops[0] - column % stops[0]
    return next((stop for stop in stops if stop > column), None)
