"""Cases of paste."""

from generators.inputs import use

ORDINARY = [
    lambda r: use("paste a b", a=r.names(), b=r.names()),
    lambda r: use(f"paste -d {r.pick(',', ':', ' ')!r} a b", a=r.names(6, 6), b=r.numbers(6, 6)),
    lambda r: use("paste -s a", a=r.names()),
    lambda r: use("paste -s -d , a", a=r.names()),
    lambda r: use("paste - -", r.names()),
    lambda r: use("paste a b c", a=r.names(), b=r.numbers(), c=r.names()),
]

EDGE = [
    lambda r: use("paste -d ,: a b c", a=r.names(), b=r.names(), c=r.names()),
    lambda r: use("paste -s -d ,: a", a=r.names(8, 12)),
    lambda r: use("paste -d '\\n' a b", a=r.names(), b=r.names()),
    lambda r: use("paste -d '\\t\\\\' a b c", a=r.names(), b=r.names(), c=r.names()),
    lambda r: use("paste -d '\\0' a b", a=r.names(), b=r.names()),
    lambda r: use("paste -s a b", a=r.names(), b=r.names()),
    lambda r: use("paste - a", r.names(), a=r.numbers()),
    lambda r: use("paste a -", r.names() + r.word(), a=r.numbers() + "7"),
    lambda r: use("paste -d , - - -", r.names(7, 11)),
    lambda r: use("paste a none", a=r.names()),
    lambda r: use("paste -s a none b", a=r.names(), b=r.names()),
    lambda r: use("paste -s a b", a="", b=r.names()),
    lambda r: use("paste a b", a="", b=r.names()),
    lambda r: use("paste a b", a="", b=""),
    lambda r: use("paste -z -d , a b", a=r.names().replace("\n", "\0"), b=r.names().replace("\n", "\0")),
    lambda r: use("paste", r.names()),
    lambda r: use(["paste", "-d", "x\\", "a", "b"], a=r.names(), b=r.names()),
    lambda r: use("paste --serial --delimiters=+- a", a=r.numbers()),
]
