"""uniq: neighbouring equal lines."""

import cli

LONG = {
    "count": "c",
    "repeated": "d",
    "all-repeated=?": "D",
    "skip-fields=": "f",
    "group=?": "group",
    "ignore-case": "i",
    "skip-chars=": "s",
    "unique": "u",
    "check-chars=": "w",
    "zero-terminated": "z",
}


def run(argv):
    found, names = cli.options(argv, "cdDf:is:uw:z", LONG)
    chosen = dict(found)
    if len(names) > 2:
        raise cli.Failure(f"extra operand '{names[2]}'")
    if "group" in chosen and set(chosen) & set("cdDu"):
        raise cli.Failure("--group is mutually exclusive with -c/-d/-D/-u")
    fields, skip = cli.number(chosen.get("f", "0")), cli.number(chosen.get("s", "0"))
    width = cli.number(chosen["w"]) if "w" in chosen else None

    def key(line):
        start = 0
        for _ in range(fields):
            while line[start : start + 1] in (b" ", b"\t"):
                start += 1
            while start < len(line) and line[start] not in b" \t":
                start += 1
        part = line[start + skip :]
        part = part[:width]
        return part.lower() if "i" in chosen else part

    end = b"\0" if "z" in chosen else b"\n"
    blocks = []
    for line in cli.lines(cli.load(names[0] if names else "-"), end):
        if blocks and key(blocks[-1][0]) == key(line):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    rows = grouped(blocks, chosen) if "group" in chosen or "D" in chosen else single(blocks, chosen)
    text = b"".join(row + end for row in rows)
    if len(names) == 2 and names[1] != "-":
        with open(names[1], "wb") as file:
            file.write(text)
    else:
        cli.out(text)
    return 0


def single(blocks, chosen):
    for block in blocks:
        if ("d" in chosen and len(block) == 1) or ("u" in chosen and len(block) > 1):
            continue
        yield (b"%7d " % len(block) if "c" in chosen else b"") + block[0]


def grouped(blocks, chosen):
    if "group" in chosen:
        method = chosen["group"] or "separate"
        allowed = ("separate", "prepend", "append", "both")
    else:
        method = chosen["D"] or "none"
        allowed = ("none", "prepend", "separate")
        blocks = [block for block in blocks if len(block) > 1]
        blocks = [] if "u" in chosen else blocks
    if method not in allowed:
        raise cli.Failure(f"invalid argument '{method}'")
    for number, block in enumerate(blocks):
        if method in ("prepend", "both") or (method == "separate" and number):
            yield b""
        yield from block
        if method == "append" or (method == "both" and number == len(blocks) - 1):
            yield b""
