"""sort: order, merge or check lines."""

import cli

LONG = {
    "ignore-leading-blanks": "b",
    "dictionary-order": "d",
    "ignore-case": "f",
    "general-numeric-sort": "g",
    "ignore-nonprinting": "i",
    "month-sort": "M",
    "human-numeric-sort": "h",
    "numeric-sort": "n",
    "reverse": "r",
    "key=": "k",
    "merge": "m",
    "output=": "o",
    "stable": "s",
    "field-separator=": "t",
    "unique": "u",
    "zero-terminated": "z",
    "check=?": "c",
}
ORDERINGS = "bdfghiMnr"
MONTHS = b"JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
BLANKS = b" \t"


def run(argv):
    found, names = cli.options(argv, "bcCdfghik:mMno:rst:uz", LONG, code=2)
    chosen = dict(found)
    common = {letter for letter, _ in found if letter in ORDERINGS}
    tab = separator(chosen["t"]) if "t" in chosen else None
    keys = [Key(value, common, tab) for letter, value in found if letter == "k"]
    if not keys:
        keys = [Key("1", common, tab)]
    order = Order(keys, common, last="s" not in chosen and "u" not in chosen)
    end = b"\0" if "z" in chosen else b"\n"
    texts = [cli.load(name, code=2) for name in names or ["-"]]
    rows = [Row(line, order) for text in texts for line in cli.lines(text, end)]
    unique = "u" in chosen
    if "c" in chosen or "C" in chosen:
        for before, row in zip(rows, rows[1:]):
            difference = order.compare(before, row)
            if difference > 0 or (unique and difference == 0):
                if "C" not in chosen and chosen.get("c") not in ("quiet", "silent"):
                    cli.complain("sort", f"disorder: {row.line!r}")
                return 1
        return 0
    rows.sort()
    if unique:
        rows = [row for place, row in enumerate(rows) if not place or order.compare(rows[place - 1], row)]
    text = b"".join(row.line + end for row in rows)
    if "o" in chosen:
        with open(chosen["o"], "wb") as file:
            file.write(text)
    else:
        cli.out(text)
    return 0


def separator(text):
    if not text:
        raise cli.Failure("empty tab", 2)
    if len(text) > 1 and text != "\\0":
        raise cli.Failure(f"multi-character tab '{text}'", 2)
    return b"\0" if text == "\\0" else cli.encode(text)


class Row:
    """A line with its key values; rows of one order compare."""

    def __init__(self, line, order):
        self.line = line
        self.order = order
        self.values = [key.value(line) for key in order.keys]

    def __lt__(self, other):
        return self.order.compare(self, other) < 0


class Order:
    def __init__(self, keys, common, last):
        self.keys = keys
        self.reverse = "r" in common
        self.last = last

    def compare(self, one, two):
        for key, a, b in zip(self.keys, one.values, two.values):
            if a != b:
                return 1 if (a > b) != key.reverse else -1
        if not self.last or one.line == two.line:
            return 0
        return 1 if (one.line > two.line) != self.reverse else -1


class Key:
    """One -k: where it begins and ends, and how it is compared."""

    def __init__(self, text, common, tab):
        self.tab = tab
        start, comma, end = text.partition(",")
        self.field, self.char, here = position(start)
        self.end_field, self.end_char, there = position(end) if comma else (None, 0, "")
        if self.field == 0 or (comma and self.end_field == 0):
            raise cli.Failure("field number is zero", 2)
        own = set(here) | set(there)
        self.flags = own or common
        self.skip_start = "b" in here or (not own and "b" in common)
        self.skip_end = "b" in there or (not own and "b" in common)
        self.reverse = "r" in self.flags

    def value(self, line):
        part = self.part(line)
        if "n" in self.flags:
            return numeric(part.lstrip(BLANKS))
        if "g" in self.flags:
            return general(part.lstrip())
        if "h" in self.flags:
            return human(part.lstrip(BLANKS))
        if "M" in self.flags:
            name = part.lstrip(BLANKS)[:3].upper()
            return MONTHS.index(name) + 1 if name in MONTHS else 0
        if "d" in self.flags:
            part = bytes(byte for byte in part if byte in BLANKS or (chr(byte).isalnum() and byte < 128))
        if "i" in self.flags:
            part = bytes(byte for byte in part if 32 <= byte < 127)
        return part.upper() if "f" in self.flags else part

    def part(self, line):
        start = self.advance(line, self.field - 1, whole=True)
        if self.skip_start:
            start = skip(line, start)
        start = min(len(line), start + max(0, (self.char or 1) - 1))
        if self.end_field is None:
            return line[start:]
        if not self.end_char:
            end = self.advance(line, self.end_field, whole=False)
        else:
            end = self.advance(line, self.end_field - 1, whole=True)
            if self.skip_end:
                end = skip(line, end)
            end = min(len(line), end + self.end_char)
        return line[start:end]

    def advance(self, line, fields, whole):
        """Return where the fields end; with `whole` a separator behind them counts too."""
        place = 0
        for number in range(fields):
            if self.tab:
                found = line.find(self.tab, place)
                if found < 0:
                    return len(line)
                place = found + (1 if whole or number < fields - 1 else 0)
            else:
                place = skip(line, place)
                while place < len(line) and line[place] not in BLANKS:
                    place += 1
        return place


def position(text):
    """Return field, character and option letters of one end of a key."""
    spec = text.rstrip(ORDERINGS)
    field, dot, char = spec.partition(".")
    numbers = cli.number(field, "field", code=2), cli.number(char, "character", code=2) if dot else 0
    return (*numbers, text[len(spec) :])


def skip(line, place):
    while place < len(line) and line[place] in BLANKS:
        place += 1
    return place


def numeric(text):
    """Return a leading decimal number, exactly, as something that compares."""
    sign = text[:1] == b"-"
    digits = text[1:] if sign else text
    whole = leading(digits)
    rest = digits[len(whole) :]
    fraction = leading(rest[1:]).rstrip(b"0") if rest[:1] == b"." else b""
    # As whole numbers of one scale: a sort key needs no more digits than a line has.
    scaled = int(whole or b"0") * 10**40 + int(fraction[:40].ljust(40, b"0"))
    return -scaled if sign else scaled


def leading(text):
    return text[: len(text) - len(text.lstrip(b"0123456789"))]


def general(text):
    """Return a leading floating point number; what is none comes first."""
    for size in range(len(text), 0, -1):
        try:
            return (1, float(text[:size]))
        except ValueError:
            continue
    return (0, 0.0)


def human(text):
    """Return sign, unit and number of a size such as 4K."""
    value = numeric(text)
    suffix = text.lstrip(b"-0123456789.")[:1]
    power = b" KMGTPEZY".find(suffix.replace(b"k", b"K")) if suffix.strip() else 0
    sign = (value > 0) - (value < 0)
    return (sign, sign * max(0, power), value)
