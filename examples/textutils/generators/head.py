"""Cases of head."""

from generators.inputs import use

ORDINARY = [
    lambda r: use("head a", a=r.lines(8, 25)),
    lambda r: use(f"head -n {r.randint(1, 6)} a", a=r.lines()),
    lambda r: use(f"head -n{r.randint(1, 6)}", r.lines()),
    lambda r: use(f"head -c {r.randint(1, 30)} a", a=r.lines()),
    lambda r: use(f"head -{r.randint(1, 5)} a", a=r.lines()),
    lambda r: use(f"head -n {r.randint(1, 4)} a b", a=r.lines(), b=r.lines()),
]

EDGE = [
    lambda r: use(f"head -n -{r.randint(1, 5)} a", a=r.lines()),
    lambda r: use(f"head -n -{r.randint(1, 5)}", r.lines() + r.line()),
    lambda r: use(f"head -c -{r.randint(1, 30)} a", a=r.lines()),
    lambda r: use(f"head -q -n {r.randint(1, 4)} a b", a=r.lines(), b=r.lines()),
    lambda r: use(f"head -v -n {r.randint(1, 4)} a", a=r.lines()),
    lambda r: use("head -v", r.lines(8, 25)),
    lambda r: use("head -n 2 a none b", a=r.lines(), b=r.lines()),
    lambda r: use("head -n 0 a b", a=r.lines(), b=r.lines()),
    lambda r: use(f"head -n {r.pick('x', '1x', '')} a", a=r.lines()),
    lambda r: use(f"head -c {r.pick('1b', '1K', '1kB', '2k')} a", a=r.lines(100, 120)),
    lambda r: use(f"head --lines={r.randint(1, 6)} a", a=r.gappy()),
    lambda r: use(f"head -z -n {r.randint(1, 3)} a", a=r.names().replace("\n", "\0")),
    lambda r: use("head -n 3 a - b", r.lines(), a=r.line(), b=r.line()),
    lambda r: use("head a", a=""),
]
