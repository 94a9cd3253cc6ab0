"""Cases of sort."""

from generators.inputs import use


def sizes(r):
    return "".join(f"{r.randint(1, 900)}{r.pick('', 'K', 'M', 'G', 'k')}\n" for _ in range(r.randint(6, 12)))


def months(r):
    return "".join(
        r.pick("Jan", "feb", "MAR", " Apr", "may 3", "Dec", "Oct", "none", "") + "\n" for _ in range(r.randint(6, 12))
    )


def decimals(r):
    return "".join(r.pick("", " ") + f"{r.uniform(-9, 30):.{r.randint(0, 3)}f}\n" for _ in range(r.randint(6, 12)))


def spaced(r):
    """Return rows whose second field has different blanks before it."""
    return "".join(f"{r.pick('b', 'a')}{r.pick(' ', '   ', '  ')}{r.word()} {r.randint(1, 20)}\n" for _ in range(9))


def sorted_lines(r):
    return "\n".join(sorted(r.names().split())) + "\n"


ORDINARY = [
    lambda r: use("sort a", a=r.lines()),
    lambda r: use("sort", r.names()),
    lambda r: use("sort -r a", a=r.names()),
    lambda r: use("sort -n a", a=r.numbers()),
    lambda r: use("sort -u a", a=r.names()),
    lambda r: use("sort -f a", a=r.names(8, 16, 12)),
    lambda r: use("sort -t : -k 2 a", a=r.table(":")),
    lambda r: use("sort -rn a", a=r.numbers()),
    lambda r: use("sort a b", a=r.names(), b=r.names()),
]

EDGE = [
    lambda r: use(f"sort -k {r.randint(2, 3)} a", a=spaced(r)),
    lambda r: use("sort -b -k 2,2 a", a=spaced(r)),
    lambda r: use("sort -k 3n -k 1,1r a", a=spaced(r)),
    lambda r: use("sort -t : -k 2,2n -k 1,1 a", a=r.table(":")),
    lambda r: use("sort -s -k 1,1 a", a=spaced(r)),
    lambda r: use("sort -k 1.1,1.1r a", a=r.lines()),
    lambda r: use(f"sort -t : -k {r.pick('2.2', '1.2,1.3', '3.1,3.1')} a", a=r.table(":")),
    lambda r: use("sort -u -k 1,1 a", a=spaced(r)),
    lambda r: use("sort -n a", a=decimals(r) + "x\n-\n\n"),
    lambda r: use("sort -g a", a=decimals(r) + "1e2\nx\n-3e1\n"),
    lambda r: use("sort -h a", a=sizes(r)),
    lambda r: use("sort -M a", a=months(r)),
    lambda r: use("sort -d a", a=r.lines()),
    lambda r: use("sort -fu a", a="One\none\nTWO\ntwo\nTwo\n" + r.names()),
    lambda r: use("sort -c a", a=r.names()),
    lambda r: use("sort -c a", a=sorted_lines(r)),
    lambda r: use("sort -C -u a", a=sorted_lines(r)),
    lambda r: use("sort -m a b", a=sorted_lines(r), b=sorted_lines(r)),
    lambda r: use("sort a none", a=r.names()),
    lambda r: use("sort", r.names() + r.word()),
    lambda r: use("sort -z a", a=r.names().replace("\n", "\0")),
    lambda r: use(f"sort -k {r.pick('0', 'x', '1.0x', '1,')} a", a=r.names()),
    lambda r: use("sort -o b a", a=r.names()),
    lambda r: use("sort -t '' a", a=r.names()),
]
