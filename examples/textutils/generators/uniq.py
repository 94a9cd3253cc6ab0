"""Cases of uniq."""

from generators.inputs import use


def pairs(r):
    """Return lines of two fields that often agree in the second."""
    return "".join(f"{r.choice('  ')}{r.pick('a', 'b', 'c7')} {r.pick('x', 'y')}\n" for _ in range(r.randint(6, 14)))


def mixed(r):
    return "".join(r.pick("one", "One", "ONE", "two", "Two") + "\n" for _ in range(r.randint(6, 12)))


def alike(r):
    """Return words that agree in their first letters, or behind them."""
    return "".join(r.pick("abc", "abd", "axd", "xxd") + "\n" for _ in range(r.randint(7, 12)))


ORDINARY = [
    lambda r: use("uniq a", a=r.names(pool=3)),
    lambda r: use("uniq", r.names(pool=3)),
    lambda r: use("uniq -c a", a=r.names(pool=3)),
    lambda r: use("uniq -d a", a=r.names(pool=3)),
    lambda r: use("uniq -u a", a=r.names(pool=3)),
    lambda r: use("uniq -i a", a=mixed(r)),
    lambda r: use("uniq -f 1 a", a=pairs(r)),
]

EDGE = [
    lambda r: use("uniq -cd a", a=r.names(pool=2)),
    lambda r: use("uniq -cu a", a=r.names(pool=3)),
    lambda r: use("uniq -ci", mixed(r)),
    lambda r: use("uniq -D a", a=r.names(pool=3)),
    lambda r: use(f"uniq --all-repeated={r.pick('prepend', 'separate', 'none')} a", a=r.names(10, 16, 2)),
    lambda r: use(f"uniq --group={r.pick('separate', 'prepend', 'append', 'both')} a", a=r.names(pool=3)),
    lambda r: use("uniq --group", r.names(pool=3)),
    lambda r: use(f"uniq -s {r.randint(1, 2)} a", a=alike(r)),
    lambda r: use(f"uniq -w {r.randint(1, 2)} a", a=alike(r)),
    lambda r: use("uniq -f 1 -s 1 -w 1 a", a=pairs(r)),
    lambda r: use("uniq", r.names(pool=2) + r.word()),
    lambda r: use("uniq a", a=""),
    lambda r: use("uniq none"),
    lambda r: use("uniq -z -c a", a=r.names(pool=2).replace("\n", "\0")),
    lambda r: use(f"uniq -w {r.pick('x', '-1', '1.5')} a", a=r.names()),
    lambda r: use("uniq -c --group a", a=r.names()),
    lambda r: use("uniq a", a=r.names(pool=2) + "\n\n\n" + r.names(pool=2)),
    lambda r: use("uniq a b c", a=r.names()),
]
