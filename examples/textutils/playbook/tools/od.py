"""od: dump bytes."""

import cli

LONG = {
    "address-radix=": "A",
    "format=": "t",
    "skip-bytes=": "j",
    "read-bytes=": "N",
    "output-duplicates": "v",
    "width=?": "w",
}
SHORTHANDS = {"a": "a", "b": "o1", "c": "c", "d": "u2", "i": "d4", "l": "d8", "o": "o2", "s": "d2", "x": "x2"}
WIDTHS = {
    "d": {1: 4, 2: 6, 4: 11, 8: 20},
    "u": {1: 3, 2: 5, 4: 10, 8: 20},
    "o": {1: 3, 2: 6, 4: 11, 8: 22},
    "x": {1: 2, 2: 4, 4: 8, 8: 16},
}
SIZES = {"C": 1, "S": 2, "I": 4, "L": 8}
NAMES = """
nul soh stx etx eot enq ack bel bs ht nl vt ff cr so si
dle dc1 dc2 dc3 dc4 nak syn etb can em sub esc fs gs rs us sp
""".split()
ESCAPES = {0: "\\0", 7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}
ADDRESSES = {"d": "{:07d}", "o": "{:07o}", "x": "{:06x}", "n": ""}


def run(argv):
    found, names = cli.options(argv, "A:t:j:N:vw::abcdilosx", LONG)
    types, radix, skip, limit, every, width = [], "o", 0, None, False, 16
    for letter, value in found:
        if letter == "A":
            radix = value
        elif letter == "t":
            types += parse(value)
        elif letter == "j":
            skip = size(value)
        elif letter == "N":
            limit = size(value)
        elif letter == "v":
            every = True
        elif letter == "w":
            width = cli.number(value or "32", "width", low=1)
        else:
            types += parse(SHORTHANDS[letter])
    if radix not in ADDRESSES:
        raise cli.Failure(f"invalid output address radix '{radix}'")
    types = types or parse("o2")
    unit = max(type.size for type in types)
    width = width if width % unit == 0 else unit
    inputs = cli.Inputs("od", names)
    chunks = [data for _, data in inputs]
    if not chunks:
        return 1
    data = b"".join(chunks)
    if skip > len(data):
        raise cli.Failure("cannot skip past end of combined input")
    dump(data[skip:] if limit is None else data[skip : skip + limit], skip, width, types, ADDRESSES[radix], every)
    return inputs.code


def dump(data, offset, width, types, address, every):
    widest = max((type.width + 1) * (width // type.size) for type in types)
    before, starred = None, False
    for start in range(0, len(data), width):
        block = data[start : start + width]
        if block == before and not every and len(block) == width:
            if not starred:
                cli.out(b"*\n")
            starred = True
            continue
        before, starred = block, False
        label = address.format(offset + start)
        for number, type in enumerate(types):
            label = " " * len(label) if number else label
            cli.out(cli.encode(label + type.line(block, width, widest) + "\n"))
    if address:
        cli.out(cli.encode(address.format(offset + len(data)) + "\n"))


class Type:
    """One output type: a letter, the bytes of a value, the places it takes."""

    def __init__(self, letter, size, text):
        self.letter = letter
        self.size = size
        self.text = text
        self.width = 3 if letter in "ac" else WIDTHS[letter][size]

    def line(self, block, width, widest):
        fields = width // self.size
        used = -(-len(block) // self.size)
        # Several types share a line's width: what one of them needs less is spread over its fields.
        spare = widest - (self.width + 1) * fields
        edges = [spare * (fields - number) // fields for number in range(fields + 1)]
        result = ""
        for number in range(used):
            value = block[number * self.size : (number + 1) * self.size].ljust(self.size, b"\0")
            places = self.width + edges[number] - edges[number + 1]
            result += " " + self.show(value).rjust(places)
        if self.text:
            result += " " * ((fields - used) * (self.width + 1) + edges[used])
            result += "  >" + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in block) + "<"
        return result

    def show(self, value):
        if self.letter == "a":
            byte = value[0] & 127
            return "del" if byte == 127 else NAMES[byte] if byte <= 32 else chr(byte)
        if self.letter == "c":
            byte = value[0]
            return ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"{byte:03o}")
        number = int.from_bytes(value, "little", signed=self.letter == "d")
        if self.letter == "x":
            return f"{number:0{self.width}x}"
        if self.letter == "o":
            return f"{number:0{self.width}o}"
        return str(number)


def parse(text):
    """Return the types of a string such as "x1c" or "d4z"."""
    types, place = [], 0
    while place < len(text):
        letter, place = text[place], place + 1
        if letter not in "acdoux":
            raise cli.Failure(f"invalid character '{letter}' in type string '{text}'")
        size = 1 if letter in "ac" else 4
        if letter not in "ac":
            digits = ""
            while text[place : place + 1].isdigit():
                digits, place = digits + text[place], place + 1
            if digits:
                size = int(digits)
            elif text[place : place + 1] in tuple(SIZES):
                size, place = SIZES[text[place]], place + 1
            if size not in WIDTHS[letter]:
                raise cli.Failure(f"invalid type string '{text}'")
        shown = text[place : place + 1] == "z"
        place += shown
        types.append(Type(letter, size, shown))
    return types


def size(text):
    if text.lower().startswith("0x"):
        try:
            return int(text, 16)
        except ValueError:
            raise cli.Failure(f"invalid number '{text}'") from None
    return cli.number(text)
