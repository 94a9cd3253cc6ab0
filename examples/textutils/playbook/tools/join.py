"""join: rows of two sorted files that agree in a field."""

import cli

LONG = {"ignore-case": "i", "header": "header", "zero-terminated": "z", "check-order": "c", "nocheck-order": "n"}


def run(argv):
    found, names = cli.options(argv, "1:2:a:e:ij:o:t:v:z", LONG)
    if len(names) != 2:
        raise cli.Failure("missing operand" if len(names) < 2 else f"extra operand '{names[2]}'")
    chosen = dict(found)
    columns = [cli.number(chosen.get(side, chosen.get("j", "1")), "field number", low=1) - 1 for side in "12"]
    extra = {side_number(value) for letter, value in found if letter in "av"}
    tab = cli.encode(chosen["t"]) if "t" in chosen else None
    if tab is not None and len(tab) > 1:
        raise cli.Failure(f"multi-character tab '{chosen['t']}'")
    end = b"\0" if "z" in chosen else b"\n"
    sides = [[row.split(tab) for row in cli.lines(cli.load(name), end)] for name in names]
    filler = cli.encode(chosen.get("e", ""))
    form = layout(chosen["o"], sides, columns) if "o" in chosen else None
    printer = Printer(columns, form, filler, tab or b" ", end)

    def key(side, place):
        value = cell(sides[side][place], columns[side]) or b""
        return value.lower() if "i" in chosen else value

    at = [0, 0]
    if "header" in chosen:
        heads = [rows[0] if rows else None for rows in sides]
        printer.row(*heads)
        at = [1, 1]
    while at[0] < len(sides[0]) or at[1] < len(sides[1]):
        left = key(0, at[0]) if at[0] < len(sides[0]) else None
        right = key(1, at[1]) if at[1] < len(sides[1]) else None
        if right is None or (left is not None and left < right):
            if 1 in extra:
                printer.row(sides[0][at[0]], None)
            at[0] += 1
        elif left is None or right < left:
            if 2 in extra:
                printer.row(None, sides[1][at[1]])
            at[1] += 1
        else:
            ends = list(at)
            for side, wanted in ((0, left), (1, right)):
                while ends[side] < len(sides[side]) and key(side, ends[side]) == wanted:
                    ends[side] += 1
            for one in sides[0][at[0] : ends[0]]:
                for two in sides[1][at[1] : ends[1]]:
                    if "v" not in chosen:
                        printer.row(one, two)
            at = ends
    return 0


def side_number(text):
    if text not in ("1", "2"):
        raise cli.Failure(f"invalid file number '{text}'")
    return int(text)


def cell(row, column):
    return row[column] if row is not None and column < len(row) else None


def layout(text, sides, columns):
    """Return the output columns as (side, column); side None is the join field."""
    if text == "auto":
        form = [(None, 0)]
        for side in (0, 1):
            width = len(sides[side][0]) if sides[side] else 0
            form += [(side, column) for column in range(width) if column != columns[side]]
        return form
    form = []
    for item in text.replace(" ", ",").split(","):
        if item == "0":
            form.append((None, 0))
            continue
        side, dot, column = item.partition(".")
        if not dot:
            raise cli.Failure(f"invalid field specifier: '{item}'")
        form.append((side_number(side) - 1, cli.number(column, "field number", low=1) - 1))
    return form


class Printer:
    def __init__(self, columns, form, filler, tab, end):
        self.columns = columns
        self.form = form
        self.filler = filler
        self.tab = tab
        self.end = end

    def row(self, one, two):
        """Print a pair, or one row alone."""
        rows = (one, two)
        known = 0 if one is not None else 1
        field = cell(rows[known], self.columns[known])
        if self.form:
            cells = [field if side is None else cell(rows[side], column) for side, column in self.form]
        else:
            cells = [field]
            for side in (0, 1):
                cells += [value for column, value in enumerate(rows[side] or []) if column != self.columns[side]]
        cli.out(self.tab.join(value or self.filler for value in cells) + self.end)
