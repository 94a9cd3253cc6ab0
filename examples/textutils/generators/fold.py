"""Cases of fold."""

from generators.inputs import use


def long_lines(r, low=2, high=5):
    return "".join(r.line(15, 40) + "\n" for _ in range(r.randint(low, high)))


ORDINARY = [
    lambda r: use("fold a", a=long_lines(r)),
    lambda r: use(f"fold -w {r.randint(10, 40)} a", a=long_lines(r)),
    lambda r: use(f"fold -s -w {r.randint(20, 40)} a", a=long_lines(r)),
    lambda r: use(f"fold -w{r.randint(10, 40)}", long_lines(r)),
    lambda r: use("fold -s", long_lines(r)),
]

EDGE = [
    lambda r: use(f"fold -w {r.randint(10, 25)} a", a=r.tabbed()),
    lambda r: use(f"fold -b -w {r.randint(10, 25)} a", a=r.tabbed()),
    lambda r: use(f"fold -s -w {r.randint(10, 25)} a", a=r.tabbed()),
    lambda r: use(f"fold -bs -w {r.randint(10, 25)} a", a=r.tabbed()),
    lambda r: use(f"fold -s -w {r.randint(3, 5)} a", a=r.lines()),
    lambda r: use(f"fold -{r.randint(10, 30)} a", a=long_lines(r)),
    lambda r: use("fold -w 10 a", a=f"{r.word()}\b\b{r.line()}\r{r.line()}\n"),
    lambda r: use("fold -w 1 a", a=f"a\tb {r.word()}\n"),
    lambda r: use("fold -w 12", long_lines(r) + r.line(5, 8)),
    lambda r: use("fold a", a="\n\n" + r.line(20, 30) + "\n\n"),
    lambda r: use("fold -w 20 a none b", a=long_lines(r), b=long_lines(r)),
    lambda r: use(f"fold -w {r.pick('0', 'x', '-3', '')} a", a=r.lines()),
    lambda r: use(f"fold --width={r.randint(10, 30)} --spaces a", a=long_lines(r)),
    lambda r: use("fold -b -w 9 a", a=r.blob(60, 120)),
]
