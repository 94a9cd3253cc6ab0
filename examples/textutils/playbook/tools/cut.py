"""cut: parts of each line, by bytes or by fields."""

import cli

LONG = {
    "bytes=": "b",
    "characters=": "c",
    "fields=": "f",
    "delimiter=": "d",
    "only-delimited": "s",
    "zero-terminated": "z",
    "complement": "complement",
    "output-delimiter=": "output",
}
END = 1 << 62


def run(argv):
    found, names = cli.options(argv, "b:c:f:d:nsz", LONG)
    chosen = dict(found)
    kinds = [letter for letter, _ in found if letter in "bcf"]
    if len(kinds) != 1:
        raise cli.Failure("specify exactly one list of bytes, characters, or fields")
    fields = kinds[0] == "f"
    delimiter = cli.encode(chosen.get("d", "\t")) or b"\0"
    if len(delimiter) > 1:
        raise cli.Failure("the delimiter must be a single character")
    if not fields and ("d" in chosen or "s" in chosen):
        raise cli.Failure("a delimiter makes sense with fields only")
    spans = ranges(chosen[kinds[0]])
    if "complement" in chosen:
        spans = complement(spans)
    joint = delimiter if fields else b""
    if "output" in chosen:
        joint = cli.encode(chosen["output"])
    end = b"\0" if "z" in chosen else b"\n"
    inputs = cli.Inputs("cut", names)
    for _, data in inputs:
        for line in cli.lines(data, end):
            if not fields:
                parts = [line[low - 1 : high] for low, high in spans if low <= len(line)]
            elif delimiter in line:
                cells = line.split(delimiter)
                parts = [cell for low, high in spans for cell in cells[low - 1 : high]]
            elif "s" in chosen:
                continue
            else:
                parts = [line]
            cli.out(joint.join(parts) + end)
    return inputs.code


def ranges(text):
    """Return the spans of a list like "1,3-5,7-", sorted, overlapping ones merged, adjacent ones not."""
    spans = []
    for item in text.replace(" ", ",").split(","):
        low, dash, high = item.partition("-")
        if not low and not high:
            raise cli.Failure("invalid range" if dash else "positions are numbered from 1")
        first = cli.number(low, "range", 1) if low else 1
        last = first if not dash else cli.number(high, "range", 1) if high else END
        if last < first:
            raise cli.Failure("invalid decreasing range")
        spans.append([first, last])
    merged = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(high, merged[-1][1])
        else:
            merged.append([low, high])
    return merged


def complement(spans):
    gaps, start = [], 1
    for low, high in spans:
        if start < low:
            gaps.append([start, low - 1])
        start = high + 1
    return [*gaps, [start, END]] if start < END else gaps
