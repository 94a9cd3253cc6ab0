"""Cases of unexpand."""

from generators.inputs import use


def spaced(r):
    """Return lines with runs of spaces, at their start and inside."""
    rows = []
    for _ in range(r.randint(4, 9)):
        row = " " * r.choice([0, 2, 4, 7, 8, 9, 16, 20])
        for _ in range(r.randint(1, 4)):
            row += r.word() + " " * r.choice([1, 1, 2, 4, 8, 11])
        rows.append(row + r.pick("", r.word()) + "\n")
    return "".join(rows)


ORDINARY = [
    lambda r: use("unexpand a", a=spaced(r)),
    lambda r: use("unexpand", spaced(r)),
    lambda r: use("unexpand -a a", a=spaced(r)),
    lambda r: use("unexpand a", a=r.tabbed()),
    lambda r: use(f"unexpand -t {r.randint(2, 5)} a", a=spaced(r)),
]

EDGE = [
    lambda r: use("unexpand -a a", a=r.tabbed()),
    lambda r: use(f"unexpand -t {r.randint(2, 5)} a", a=r.tabbed()),
    lambda r: use(f"unexpand -t {r.randint(3, 6)},{r.randint(9, 14)},{r.randint(20, 30)} a", a=spaced(r)),
    lambda r: use(f"unexpand --first-only -t {r.randint(2, 4)} a", a=spaced(r)),
    lambda r: use("unexpand -a --first-only a", a=spaced(r)),
    lambda r: use("unexpand -a a", a="1234567 x\n1234567  x\n12345678 x\n123456  x\n" + spaced(r)),
    lambda r: use("unexpand -a a", a="1234567 \tx\n123 \tx\n \t x\n" + spaced(r)),
    lambda r: use("unexpand -a a", a="a\b        b\n" + spaced(r)),
    lambda r: use("unexpand -a", spaced(r) + "          x"),
    lambda r: use("unexpand -a a none b", a=spaced(r), b=spaced(r)),
    lambda r: use(f"unexpand -t {r.pick('0', 'x', '5,3')} a", a=spaced(r)),
    lambda r: use("unexpand a", a="        \n    \n         x\n"),
    lambda r: use("unexpand --all --tabs=4 a", a=spaced(r)),
    lambda r: use("unexpand -a a b", a=spaced(r), b=r.tabbed()),
]
