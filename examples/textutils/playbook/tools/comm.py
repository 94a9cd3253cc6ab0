"""comm: what two sorted files have alone and in common."""

import cli

LONG = {
    "output-delimiter=": "delimiter",
    "total": "total",
    "zero-terminated": "z",
    "check-order": "check",
    "nocheck-order": "nocheck",
}


def run(argv):
    found, names = cli.options(argv, "123z", LONG)
    if len(names) != 2:
        raise cli.Failure("missing operand" if len(names) < 2 else f"extra operand '{names[2]}'")
    chosen = dict(found)
    delimiter = cli.encode(chosen.get("delimiter", "\t"))
    end = b"\0" if "z" in chosen else b"\n"
    sides = [cli.lines(cli.load(name), end) for name in names]
    shown = [number not in chosen for number in "123"]
    indent = [delimiter * sum(shown[:column]) for column in range(3)]
    counts, at, unpaired, disorder = [0, 0, 0], [0, 0], False, [False, False]

    def advance(side):
        place = at[side] = at[side] + 1
        rows = sides[side]
        # At the end of a file the last two lines are looked at again: an unpaired line may have come up since.
        last = min(place, len(rows) - 1)
        if unpaired and last > 0 and rows[last - 1] > rows[last] and not disorder[side]:
            disorder[side] = True
            cli.complain("comm", f"file {side + 1} is not in sorted order")

    while at[0] < len(sides[0]) or at[1] < len(sides[1]):
        left = sides[0][at[0]] if at[0] < len(sides[0]) else None
        right = sides[1][at[1]] if at[1] < len(sides[1]) else None
        if left == right:
            column = 2
        else:
            column = 0 if right is None or (left is not None and left < right) else 1
            unpaired = True
        counts[column] += 1
        if shown[column]:
            cli.out(indent[column] + (left if column != 1 else right) + end)
        for side in (0, 1) if column == 2 else (column,):
            advance(side)
    if "total" in chosen:
        cli.out(delimiter.join([*(b"%d" % count for count in counts), b"total"]) + end)
    return 1 if any(disorder) and "nocheck" not in chosen else 0
