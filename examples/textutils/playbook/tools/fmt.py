"""fmt: fill paragraphs. Of all ways to break a paragraph the one with the least cost is taken.

A line pays for its distance from the goal, for its difference to the next, for widows and orphans; ends of sentences
and punctuation are cheap places to break, dots inside sentences dear ones.
"""

import cli

LONG = {
    "crown-margin": "c",
    "tagged-paragraph": "t",
    "split-only": "s",
    "uniform-spacing": "u",
    "width=": "w",
    "goal=": "g",
}
LINE, SENTENCE, NO_BREAK, PAREN, PUNCTUATION = 70**2, 50**2, 600**2, 40**2, 40**2
TAG_INDENT = 3


class Word:
    def __init__(self, text, spaces, at_end, uniform):
        self.text = text
        self.size = len(text)
        bare = text[:1] + text[1:].rstrip(b")]'\"")
        self.opens = text[:1] in (b"(", b"[", b"'", b"`", b'"')
        self.punctuation = chr(text[-1]) in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
        self.period = bare[-1:] in (b".", b"?", b"!")
        self.final = self.period and (at_end or spaces > 1)
        self.space = (2 if self.final else 1) if at_end or uniform else spaces


def run(argv):
    if argv and argv[0][:1] == "-" and argv[0][1:2].isdigit():
        argv = ["-w" + argv[0][1:], *argv[1:]]
    found, names = cli.options(argv, "cstuw:g:", LONG)
    chosen = dict(found)
    width, goal = 75, None
    if "w" in chosen:
        width = limited(chosen["w"], 2500)
    if "g" in chosen:
        goal = limited(chosen["g"], width if "w" in chosen else 75)
        width = width if "w" in chosen else goal + 10
    if goal is None:
        goal = width * 187 // 200
    mode = next((letter for letter in "sct" if letter in chosen), "")
    inputs = cli.Inputs("fmt", names)
    for _, data in inputs:
        other = 0
        rows = [measure(line) for line in data.split(b"\n")]
        if not rows[-1][1]:
            rows.pop()
        place = 0
        while place < len(rows):
            if not rows[place][1]:
                cli.out(b"\n")
                place += 1
                continue
            end, other = paragraph(rows, place, mode, other)
            words = collect(rows, place, end, "u" in chosen)
            fill(words, rows[place][0], other, width, goal)
            place = end
    return inputs.code


def limited(text, most):
    value = cli.number(text, "width")
    if value > most:
        raise cli.Failure(f"invalid width: '{text}'")
    return value


def measure(line):
    """Return indent and text of a line."""
    line = line.rstrip(b" \t") if not line.strip(b" \t") else line
    text = line.lstrip(b" \t")
    return len(line[: len(line) - len(text)].expandtabs(8)), text


def paragraph(rows, start, mode, other):
    """Return where the paragraph ends and the indent of its further lines."""
    first = rows[start][0]
    follows = start + 1 < len(rows) and bool(rows[start + 1][1])
    second = rows[start + 1][0] if follows else first
    end = start + 1
    if mode == "s":
        return end, first
    if mode == "c":
        other = second if follows else first
    elif mode == "t":
        if follows and second != first:
            other = second
        elif other == first:
            other = TAG_INDENT if first == 0 else 0
        if not follows or second == first:
            return end, other
    else:
        other = first
    while end < len(rows) and rows[end][1] and rows[end][0] == other:
        end += 1
    return end, other


def collect(rows, start, end, uniform):
    words = []
    for number in range(start, end):
        text = rows[number][1]
        place = 0
        while place < len(text):
            stop = place
            while stop < len(text) and text[stop] not in b" \t":
                stop += 1
            after = stop
            while after < len(text) and text[after] in b" \t":
                after += 1
            words.append(Word(text[place:stop], after - stop, after == len(text), uniform))
            place = after
    words[-1].final = True
    return words


def fill(words, first, other, width, goal):
    count = len(words)
    cost, breaks, sizes = [0.0] * (count + 1), [count] * (count + 1), [0] * (count + 1)
    for start in range(count - 1, -1, -1):
        best, size = None, (first if start == 0 else other) + words[start].size
        for stop in range(start + 1, count + 1):
            price = cost[stop] + distance(stop, size, count, goal, breaks, sizes)
            if best is None or price < best:
                best, breaks[start], sizes[start] = price, stop, size
            if stop == count:
                break
            size += words[stop - 1].space + words[stop].size
            if size >= width:
                break
        cost[start] = best + base(words, start)
    place = 0
    while place < count:
        stop = breaks[place]
        line = b" " * (first if place == 0 else other)
        for number in range(place, stop):
            line += words[number].text + (b" " * words[number].space if number < stop - 1 else b"")
        cli.out(line + b"\n")
        place = stop


def distance(stop, size, count, goal, breaks, sizes):
    """Return the cost of a line's length; the last line is free."""
    if stop == count:
        return 0
    price = ((goal - size) * 10) ** 2
    if breaks[stop] != count:
        price += ((size - sizes[stop]) * 10) ** 2 // 2
    return price


def base(words, start):
    """Return the cost of beginning a line with a word."""
    price = LINE
    word = words[start]
    if start:
        before = words[start - 1]
        if before.period:
            price += -SENTENCE if before.final else NO_BREAK
        elif before.punctuation:
            price -= PUNCTUATION
        elif start > 1 and words[start - 2].final:
            price += 200**2 // (before.size + 2)
    if word.opens:
        price -= PAREN
    elif word.final:
        price += 150**2 // (word.size + 2)
    return price
