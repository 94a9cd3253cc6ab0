"""Cases of fmt."""

from generators.inputs import use


def prose(r, low=2, high=4, indent=""):
    """Return paragraphs of uneven lines with sentences."""
    result = []
    for _ in range(r.randint(low, high)):
        rows = []
        for _ in range(r.randint(2, 5)):
            row = ""
            for _ in range(r.randint(3, 16)):
                row += r.word() + r.choice(["", "", "", "", ",", ".", "?", ".)"]) + r.choice([" ", " ", " ", "  "])
            rows.append(indent + row.rstrip() + "\n")
        result.append("".join(rows))
    return "\n".join(result)


ORDINARY = [
    lambda r: use("fmt a", a=prose(r)),
    lambda r: use("fmt", prose(r)),
    lambda r: use(f"fmt -w {r.randint(30, 60)} a", a=prose(r)),
    lambda r: use(f"fmt -{r.randint(30, 60)} a", a=prose(r)),
    lambda r: use("fmt a", a=r.lines()),
    lambda r: use("fmt -u a", a=prose(r)),
]

EDGE = [
    lambda r: use(f"fmt -s -w {r.randint(20, 40)} a", a=prose(r)),
    lambda r: use(f"fmt -u -w {r.randint(25, 50)} a", a=prose(r)),
    lambda r: use("fmt a", a=prose(r, indent="    ")),
    lambda r: use("fmt a", a=prose(r, 1, 1) + prose(r, 1, 1, "  ") + prose(r, 1, 1)),
    lambda r: use(f"fmt -c -w {r.randint(30, 50)} a", a="    " + prose(r, 1, 1) + "\n  " + prose(r, 1, 1, "")),
    lambda r: use(f"fmt -t -w {r.randint(30, 50)} a", a=r.line() + "\n" + prose(r, 1, 2, "   ")),
    lambda r: use("fmt -t a", a=prose(r, 1, 2)),
    lambda r: use(f"fmt -g {r.randint(20, 30)} -w {r.randint(34, 50)} a", a=prose(r)),
    lambda r: use(f"fmt -g {r.randint(30, 50)} a", a=prose(r)),
    lambda r: use("fmt a", a="\n\n" + prose(r) + "\n\n   \n" + r.line()),
    lambda r: use("fmt a", a=""),
    lambda r: use(f"fmt -w {r.randint(3, 8)} a", a=r.lines()),
    lambda r: use("fmt a b", a=prose(r), b=prose(r)),
    lambda r: use("fmt a none", a=prose(r)),
    lambda r: use(f"fmt {r.pick('-w x', '-w -1', '-g 80 -w 40', '-w 9999')} a", a=prose(r)),
    lambda r: use(f"fmt --width={r.randint(30, 70)} --uniform-spacing", prose(r)),
    lambda r: use("fmt -w 40 a", a=prose(r, 1, 1).replace("\n", " ") + "(" + r.word() + ") 'x' [y].\n"),
]
