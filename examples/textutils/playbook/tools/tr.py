"""tr: translate, delete or squeeze bytes."""

import cli

LONG = {"complement": "c", "delete": "d", "squeeze-repeats": "s", "truncate-set1": "t"}
ESCAPES = {"\\": 92, "a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
LOWER, UPPER, DIGIT = range(97, 123), range(65, 91), range(48, 58)
CLASSES = {
    "alnum": [*DIGIT, *UPPER, *LOWER],
    "alpha": [*UPPER, *LOWER],
    "blank": [9, 32],
    "cntrl": [*range(32), 127],
    "digit": [*DIGIT],
    "graph": [*range(33, 127)],
    "lower": [*LOWER],
    "print": [*range(32, 127)],
    "punct": [*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127)],
    "space": [*range(9, 14), 32],
    "upper": [*UPPER],
    "xdigit": [*DIGIT, *range(65, 71), *range(97, 103)],
}


def run(argv):
    found, sets = cli.options(argv, "cCdst", LONG, stop=True)
    chosen = {"c" if letter == "C" else letter for letter, _ in found}
    delete, squeeze = "d" in chosen, "s" in chosen
    wanted = 1 if delete != squeeze and (delete or len(sets) == 1) else 2
    if len(sets) != wanted:
        raise cli.Failure("missing operand" if len(sets) < wanted else f"extra operand '{sets[wanted]}'")
    first = expand(sets[0], None)
    if "c" in chosen:
        inside = set(first)
        first = [byte for byte in range(256) if byte not in inside]
    second = []
    if wanted == 2:
        second = expand(sets[1], 0 if delete else len(first))
        if not delete and not second and "t" not in chosen:
            raise cli.Failure("when not truncating set1, string2 must be non-empty")
    data = cli.read("-")
    squeezed = set(second) if second else set(first)
    if delete:
        data = data.translate(None, bytes(set(first)))
    elif second:
        if "t" in chosen:
            first = first[: len(second)]
        table = list(range(256))
        for place, byte in enumerate(first):
            table[byte] = second[min(place, len(second) - 1)]
        data = data.translate(bytes(table))
    if squeeze:
        data = bytes(
            byte for place, byte in enumerate(data) if not (place and byte == data[place - 1] and byte in squeezed)
        )
    cli.out(data)
    return 0


def units(text):
    """Return the characters as (byte, whether it was escaped)."""
    raw, result, place = cli.encode(text), [], 0
    while place < len(raw):
        if raw[place] != 92 or place + 1 == len(raw):
            result.append((raw[place], False))
            place += 1
            continue
        digits = 0
        while digits < 3 and raw[place + 1 + digits : place + 2 + digits] in (
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
            b"5",
            b"6",
            b"7",
        ):
            digits += 1
        if digits == 3 and int(raw[place + 1 : place + 4], 8) > 255:
            digits = 2
        if digits:
            result.append((int(raw[place + 1 : place + 1 + digits], 8), True))
            place += 1 + digits
        else:
            result.append((ESCAPES.get(chr(raw[place + 1]), raw[place + 1]), True))
            place += 2
    return result


def expand(text, room):
    """Return the bytes of a set; `room` is the length "[x*]" fills up to, None in the first set."""
    chars = units(text)
    plain = "".join("\0" if escaped else chr(byte) for byte, escaped in chars)
    result, fill, place = [], None, 0
    while place < len(chars):
        byte = chars[place][0]
        close = plain.find(":]", place + 2)
        if plain.startswith("[:", place) and close > 0:
            name = plain[place + 2 : close]
            if name not in CLASSES:
                raise cli.Failure(f"invalid character class '{name}'")
            result += CLASSES[name]
            place = close + 2
            continue
        if plain.startswith("[=", place) and plain.startswith("=]", place + 3):
            result.append(chars[place + 2][0])
            place += 5
            continue
        close = plain.find("]", place + 3)
        count = plain[place + 3 : close] if close > 0 else "?"
        if plain.startswith("[", place) and plain.startswith("*", place + 2) and (count.isdigit() or not count):
            if room is None:
                raise cli.Failure("the [c*] repeat construct may not appear in string1")
            times = int(count, 8 if count.startswith("0") else 10) if count else 0
            if not times:
                fill = (len(result), chars[place + 1][0])
            result += [chars[place + 1][0]] * times
            place = close + 1
            continue
        if plain.startswith("-", place + 1) and place + 2 < len(chars):
            last = chars[place + 2][0]
            if last < byte:
                raise cli.Failure("range-endpoints are in reverse collating sequence order")
            result += range(byte, last + 1)
            place += 3
            continue
        result.append(byte)
        place += 1
    if fill:
        at, byte = fill
        result[at:at] = [byte] * max(0, room - len(result))
    return result
