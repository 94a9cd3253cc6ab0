"""numfmt: numbers to and from units. Values are exact fractions (numerator, denominator)."""

import cli

LONG = {
    "from=": "from",
    "to=": "to",
    "from-unit=": "from-unit",
    "to-unit=": "to-unit",
    "round=": "round",
    "suffix=": "suffix",
    "padding=": "padding",
    "format=": "format",
    "field=": "field",
    "delimiter=": "d",
    "header=?": "header",
    "invalid=": "invalid",
    "zero-terminated": "z",
}
POWERS = "KMGTPEZY"
SCALES = ("none", "auto", "si", "iec", "iec-i")
ROUNDINGS = ("up", "down", "from-zero", "towards-zero", "nearest")
INVALID = ("abort", "fail", "warn", "ignore")


class Unreadable(Exception):
    """A field that is no number."""


class Settings:
    def __init__(self, chosen):
        self.source = choice(chosen, "from", SCALES, "none")
        self.target = choice(chosen, "to", ("none", "si", "iec", "iec-i"), "none")
        self.rounding = choice(chosen, "round", ROUNDINGS, "from-zero")
        self.invalid = choice(chosen, "invalid", INVALID, "abort")
        self.from_unit = cli.number(chosen.get("from-unit", "1"), "unit size", low=1)
        self.to_unit = cli.number(chosen.get("to-unit", "1"), "unit size", low=1)
        self.suffix = chosen.get("suffix", "")
        self.padding = cli.number(chosen.get("padding", "0"), "padding value", low=-(10**9))
        if "padding" in chosen and not self.padding:
            raise cli.Failure("invalid padding value '0'")
        self.delimiter = chosen.get("d")
        self.fields = spans(chosen.get("field", "1"))
        self.before, self.after, self.places, self.zeros = "", "", None, 0
        if "format" in chosen:
            self.read_format(chosen["format"])

    def read_format(self, text):
        """Read a format: text, one "%f" with optional width and precision, text."""
        place = text.replace("%%", "\0\0").find("%")
        rest = text[place + 1 :] if place >= 0 else ""
        flags = rest[: len(rest) - len(rest.lstrip("0-' "))]
        rest = rest[len(flags) :]
        width, letter, after = rest.partition("f")
        whole, dot, places = width.partition(".")
        if place < 0 or not letter or not (whole + places + "0").isdigit():
            raise cli.Failure(f"invalid format '{text}', directive must be %[0]['][-][N][.][N]f")
        self.before, self.after = text[:place], after
        if dot:
            self.places = int(places or "0")
        if whole and "0" in flags:
            self.zeros = int(whole)
        elif whole:
            self.padding = -int(whole) if "-" in flags else int(whole)


def choice(chosen, name, allowed, default):
    value = chosen.get(name, default)
    if value not in allowed:
        raise cli.Failure(f"invalid argument '{value}' for '--{name}'")
    return value


def spans(text):
    result = []
    for item in text.split(","):
        low, dash, high = item.partition("-")
        first = cli.number(low, "field value", low=1) if low else 1
        last = first if not dash else cli.number(high, "field value", low=1) if high else 1 << 62
        result.append((first, last))
    return result


def run(argv):
    found, names = cli.options(argv, "d:z", LONG)
    chosen = dict(found)
    settings = Settings(chosen)
    end = "\0" if "z" in chosen else "\n"
    if names:
        rows = [(name, end) for name in names]
    else:
        text = cli.read("-").decode("utf-8", "surrogateescape")
        parts = text.split(end)
        rows = [(part, end) for part in parts[:-1]] + ([(parts[-1], "")] if parts[-1] else [])
    header = cli.number(chosen["header"] or "1", "header value", low=1) if "header" in chosen else 0
    wrong = False
    for number, (line, tail) in enumerate(rows):
        if number < header and not names:
            cli.out(cli.encode(line + tail))
            continue
        wrong |= process(line, settings)
        cli.out(cli.encode(tail))
    return 2 if wrong and settings.invalid == "fail" else 0


def process(line, settings):
    """Print a line with its fields converted; say whether one was no number."""
    wrong = False
    for number, (gap, field) in enumerate(split(line, settings.delimiter), 1):
        if number > 1:
            cli.out(cli.encode(settings.delimiter or " "))
            gap = gap if settings.delimiter else gap[1:]
        if not any(low <= number <= high for low, high in settings.fields):
            cli.out(cli.encode(gap + field))
            continue
        try:
            shown = convert(field, settings)
        except Unreadable as error:
            if settings.invalid == "abort":
                raise cli.Failure(str(error), 2) from None
            if settings.invalid != "ignore":
                cli.complain("numfmt", str(error))
            cli.out(cli.encode(gap + field))
            wrong = True
            continue
        # Without a delimiter a field that had room keeps it.
        width = settings.padding
        if not width and settings.delimiter is None and (gap or number > 1):
            width = len(gap + field)
        shown = shown.ljust(-width) if width < 0 else shown.rjust(width)
        cli.out(cli.encode(settings.before + shown + settings.after))
    return wrong


def split(line, delimiter):
    """Return the fields with the blanks in front of each."""
    if delimiter:
        return [("", field) for field in line.split(delimiter)]
    result, place = [], 0
    while place < len(line) or not result:
        start = place
        while place < len(line) and line[place] in " \t":
            place += 1
        word = place
        while place < len(line) and line[place] not in " \t":
            place += 1
        result.append((line[start:word], line[word:place]))
    return result


def convert(field, settings):
    text = field
    if settings.suffix and text.endswith(settings.suffix):
        text = text[: -len(settings.suffix)]
    value, places = parse(text, field, settings.source)
    value = (value[0] * settings.from_unit, value[1] * settings.to_unit)
    if settings.target == "none":
        places = places if settings.places is None else settings.places
        shown = fixed(rounded((value[0] * 10**places, value[1]), settings.rounding), places)
        unit = ""
    else:
        shown, unit = human(value, settings)
    return shown.zfill(settings.zeros) + unit + settings.suffix


def parse(text, field, scale):
    """Return the value and its number of decimal places."""
    digits = text[1:] if text.startswith("-") else text
    number = digits.rstrip("KMGTPEZYi")
    unit = digits[len(number) :]
    whole, dot, fraction = number.partition(".")
    if not whole.isdigit() or (dot and not fraction.isdigit()):
        raise Unreadable(f"invalid number: '{field}'")
    value = int(whole + fraction) * (-1 if text.startswith("-") else 1)
    base, power = 1000, 0
    if unit:
        power = POWERS.find(unit[0]) + 1
        iec = unit[1:] == "i"
        if scale == "none" or not power or (unit[1:] and not (iec and scale in ("auto", "iec-i"))):
            raise Unreadable(f"rejecting suffix in input: '{field}'")
        if scale == "iec-i" and not iec:
            raise Unreadable(f"missing 'i' suffix in input: '{field}'")
        base = 1024 if scale.startswith("iec") or iec else 1000
    return (value * base**power, 10 ** len(fraction)), 0 if power else len(fraction)


def human(value, settings):
    base = 1000 if settings.target == "si" else 1024
    top, bottom = value
    power = 0
    while abs(top) >= base * bottom:
        bottom *= base
        power += 1
    places = 1 if abs(top) < 10 * bottom else 0
    if settings.places is not None:
        places = min(3 * power, settings.places)
    scaled = rounded((top * 10**places, bottom), settings.rounding)
    if abs(scaled) >= base * 10**places:
        scaled = rounded((scaled, base), "from-zero") if scaled % base else scaled // base
        power += 1
    if settings.places is None:
        shown_places = 1 if scaled and abs(scaled) < 10 * 10**places and power else 0
    else:
        shown_places = settings.places
    shown = fixed(rounded((scaled * 10**shown_places, 10**places), "nearest"), shown_places)
    unit = POWERS[power - 1] if power else ""
    return shown, unit + ("i" if unit and settings.target == "iec-i" else "")


def rounded(value, way):
    """Return a fraction as a whole number."""
    top, bottom = abs(value[0]), value[1]
    sign = -1 if value[0] < 0 else 1
    if way == "nearest":
        return sign * ((2 * top + bottom) // (2 * bottom))
    away = way == "from-zero" or (way == "up" and sign > 0) or (way == "down" and sign < 0)
    return sign * (-(-top // bottom) if away else top // bottom)


def fixed(value, places):
    if not places:
        return str(value)
    digits = str(abs(value)).zfill(places + 1)
    return ("-" if value < 0 else "") + digits[:-places] + "." + digits[-places:]
