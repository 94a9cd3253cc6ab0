"""Cases of comm."""

from generators.inputs import use


def ordered(r, low=4, high=10):
    return "".join(
        f"{word}\n" for word in sorted(r.pick("a", "b", "c", "d", "e", "f", "g") for _ in range(r.randint(low, high)))
    )


ORDINARY = [
    lambda r: use("comm a b", a=ordered(r), b=ordered(r)),
    lambda r: use(f"comm {r.pick('-1', '-2', '-3')} a b", a=ordered(r), b=ordered(r)),
    lambda r: use(f"comm {r.pick('-12', '-23', '-13')} a b", a=ordered(r), b=ordered(r)),
    lambda r: use("comm a -", ordered(r), a=ordered(r)),
]

EDGE = [
    lambda r: use("comm --output-delimiter=, a b", a=ordered(r), b=ordered(r)),
    lambda r: use("comm -1 --output-delimiter=:: a b", a=ordered(r), b=ordered(r)),
    lambda r: use("comm --total a b", a=ordered(r), b=ordered(r)),
    lambda r: use("comm --total -123 a b", a=ordered(r), b=ordered(r)),
    lambda r: use("comm -123 a b", a=ordered(r), b=ordered(r)),
    lambda r: use("comm a b", a=ordered(r), b="b\na\n" + ordered(r)),
    lambda r: use("comm a b", a="c\na\n" + ordered(r), b=ordered(r)),
    lambda r: use("comm --nocheck-order a b", a="c\na\n" + ordered(r), b=ordered(r)),
    lambda r: use("comm a b", a=ordered(r), b=""),
    lambda r: use("comm a b", a="", b=ordered(r)),
    lambda r: use("comm a b", a=ordered(r) + "z", b=ordered(r) + "z"),
    lambda r: use("comm a none", a=ordered(r)),
    lambda r: use("comm a", a=ordered(r)),
    lambda r: use("comm a b c", a=ordered(r), b=ordered(r), c=ordered(r)),
    lambda r: use("comm -z a b", a=ordered(r).replace("\n", "\0"), b=ordered(r).replace("\n", "\0")),
    lambda r: use("comm a b", a="\n\n" + ordered(r), b="\n" + ordered(r)),
]
