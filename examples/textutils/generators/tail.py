"""Cases of tail."""

from generators.inputs import use

ORDINARY = [
    lambda r: use("tail a", a=r.lines(8, 25)),
    lambda r: use(f"tail -n {r.randint(1, 6)} a", a=r.lines()),
    lambda r: use(f"tail -n{r.randint(1, 6)}", r.lines()),
    lambda r: use(f"tail -c {r.randint(1, 30)} a", a=r.lines()),
    lambda r: use(f"tail -{r.randint(1, 5)} a", a=r.lines()),
    lambda r: use(f"tail -n {r.randint(1, 4)} a b", a=r.lines(), b=r.lines()),
    lambda r: use(f"tail -n +{r.randint(2, 5)} a", a=r.lines()),
]

EDGE = [
    lambda r: use(f"tail -n +{r.randint(0, 20)} a", a=r.lines()),
    lambda r: use(f"tail -c +{r.randint(0, 30)} a", a=r.lines()),
    lambda r: use(f"tail -n {r.randint(1, 4)}", r.lines() + r.line()),
    lambda r: use(f"tail -n -{r.randint(1, 4)} a", a=r.lines()),
    lambda r: use(f"tail -q -n {r.randint(1, 4)} a b", a=r.lines(), b=r.lines()),
    lambda r: use(f"tail -v -n {r.randint(1, 4)} a", a=r.lines()),
    lambda r: use("tail -v", r.lines(8, 25)),
    lambda r: use("tail -n 2 a none b", a=r.lines(), b=r.lines()),
    lambda r: use("tail -n 0 a b", a=r.lines(), b=r.lines()),
    lambda r: use(f"tail -n {r.pick('x', '1x', '')} a", a=r.lines()),
    lambda r: use(f"tail -c {r.pick('1b', '1K', '1kB', '2k')} a", a=r.lines(100, 120)),
    lambda r: use(f"tail --lines=+{r.randint(1, 6)} a", a=r.gappy()),
    lambda r: use(f"tail -z -n {r.randint(1, 3)} a", a=r.names().replace("\n", "\0")),
    lambda r: use("tail -n 3 a - b", r.lines(), a=r.line(), b=r.line()),
    lambda r: use("tail a", a=""),
]
