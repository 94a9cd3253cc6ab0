"""expand: tabs to spaces."""

import cli


def run(argv):
    argv = [f"-t{part[1:]}" if part[:1] == "-" and part[1:2].isdigit() else part for part in argv]
    found, names = cli.options(argv, "it:", {"initial": "i", "tabs=": "t"})
    stops = parse([value for letter, value in found if letter == "t"])
    initial = ("i", None) in found
    inputs = cli.Inputs("expand", names)
    cli.out(convert(inputs.joined(), stops, initial))
    return inputs.code


def convert(data, stops, initial):
    result, column, leading = bytearray(), 0, True
    for byte in data:
        if byte == 9 and (leading or not initial):
            gap = next_stop(column, stops) - column
            result += b" " * gap
            column += gap
            continue
        result.append(byte)
        leading = leading and byte in b" \t"
        if byte == 10:
            column, leading = 0, True
        elif byte == 8:
            column = max(0, column - 1)
        else:
            column += 1
    return bytes(result)


def parse(texts):
    """Return the tab stops: one number is an interval, several are columns."""
    stops = [cli.number(part, "tab size", low=1) for text in texts for part in text.replace(",", " ").split()]
    if any(later <= earlier for earlier, later in zip(stops, stops[1:])):
        raise cli.Failure("tab sizes must be ascending")
    return stops or [8]


def next_stop(column, stops):
    """Return the next tab stop; behind the last column of a list a tab is one space."""
    if len(stops) == 1:
        return column + stops[0] - column % stops[0]
    return next((stop for stop in stops if stop > column), column + 1)
