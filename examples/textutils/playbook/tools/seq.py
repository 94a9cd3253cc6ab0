"""seq: sequences of numbers."""

import cli

LONG = {"format=": "f", "separator=": "s", "equal-width": "w"}


class Number:
    """A decimal operand, kept as digits: nothing is rounded."""

    def __init__(self, text):
        bare = text[1:] if text.startswith("+") else text
        sign = bare.startswith("-")
        whole, dot, fraction = bare[sign:].partition(".")
        digits = whole + fraction
        if not (digits.isascii() and digits.isdigit()):
            raise cli.Failure(f"invalid floating point argument: '{text}'")
        self.places = len(fraction)
        self.value = -int(digits) if sign else int(digits)
        self.width = len(bare) + (1 if dot and not whole else 0) - (1 if dot and not fraction else 0)

    def scaled(self, places):
        return self.value * 10 ** (places - self.places)


def run(argv):
    cut = next((place for place, part in enumerate(argv) if negative(part)), len(argv))
    found, names = cli.options(argv[:cut], "f:s:w", LONG, stop=True)
    names += argv[cut:]
    chosen = dict(found)
    if not 1 <= len(names) <= 3:
        raise cli.Failure("missing operand" if not names else f"extra operand '{names[3]}'")
    numbers = [Number(name) for name in names]
    first = numbers[0] if len(numbers) > 1 else Number("1")
    step = numbers[1] if len(numbers) == 3 else Number("1")
    last = numbers[-1]
    if not step.value:
        raise cli.Failure("invalid Zero increment value")
    places = max(first.places, step.places)
    scale = max(places, last.places)
    form = check(chosen["f"]) if "f" in chosen else None
    width = 0
    if "w" in chosen:
        width = max(fitted(first, places), fitted(last, places))
    stop, by = last.scaled(scale), step.scaled(scale)
    shown = []
    value = first.scaled(scale)
    while value <= stop if by > 0 else value >= stop:
        if form:
            shown.append(form % (value / 10**scale))
        else:
            shown.append(fixed(value // 10 ** (scale - places), places).zfill(width))
        value += by
    if shown:
        cli.out(cli.encode(chosen.get("s", "\n").join(shown) + "\n"))
    return 0


def negative(part):
    return part[:1] == "-" and part[1:2] != "" and part[1] in ".0123456789"


def fitted(number, places):
    """Return the width an operand has with that many decimal places."""
    width = number.width + places - number.places
    if number.places and not places:
        width -= 1
    if not number.places and places:
        width += 1
    return width


def fixed(value, places):
    if not places:
        return str(value)
    digits = str(abs(value)).zfill(places + 1)
    return ("-" if value < 0 else "") + digits[:-places] + "." + digits[-places:]


def check(form):
    """Return the format when it has exactly one floating point directive."""
    parts = form.replace("%%", "").split("%")
    if len(parts) != 2 or parts[1].lstrip("-+ #0'123456789.")[:1] not in tuple("aefgAEFG"):
        raise cli.Failure(f"format '{form}' must have one floating point directive")
    return form
