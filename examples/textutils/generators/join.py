"""Cases of join."""

from generators.inputs import use


def side(r, delimiter=" ", columns=3, fold=False):
    """Return rows sorted by their first field, some keys more than once."""
    keys = sorted(r.choice("abcdefgh") + r.pick("", "1", "x") for _ in range(r.randint(5, 8)))
    keys = [r.choice([key, key.upper()]) if fold else key for key in keys]
    return "".join(delimiter.join([key, *(r.word() for _ in range(columns - 1))]) + "\n" for key in keys)


def second(r):
    """Return rows sorted by their second field."""
    keys = sorted(r.choice("abcdefgh") for _ in range(r.randint(5, 8)))
    return "".join(f"{r.word()} {key} {r.randint(1, 9)}\n" for key in keys)


ORDINARY = [
    lambda r: use("join a b", a=side(r), b=side(r)),
    lambda r: use("join a b", a=side(r, columns=2), b=side(r)),
    lambda r: use("join -t : a b", a=side(r, ":"), b=side(r, ":")),
    lambda r: use("join -t , -a 1 a b", a=side(r, ","), b=side(r, ",")),
    lambda r: use("join a -", side(r), a=side(r)),
    lambda r: use("join -v 1 a b", a=side(r), b=side(r)),
]

EDGE = [
    lambda r: use("join -1 2 a b", a=second(r), b=side(r)),
    lambda r: use("join -2 2 -a 2 a b", a=side(r), b=second(r)),
    lambda r: use("join -j 2 a b", a=second(r), b=second(r)),
    lambda r: use("join -a 1 -a 2 a b", a=side(r), b=side(r)),
    lambda r: use("join -v 1 -v 2 a b", a=side(r), b=side(r)),
    lambda r: use("join -o 1.2,2.2,0 a b", a=side(r), b=side(r)),
    lambda r: use("join -o 0,1.3,2.4 -e NONE -a 1 a b", a=side(r), b=side(r)),
    lambda r: use("join -a 1 -a 2 -e - -o auto a b", a=side(r), b=side(r, columns=2)),
    lambda r: use("join -i a b", a=side(r, fold=True), b=side(r, fold=True)),
    lambda r: use("join --header a b", a="id name x\n" + side(r), b="key value y\n" + side(r)),
    lambda r: use("join a b", a=side(r).replace(" ", "   "), b=" " + side(r).replace("\n", "\n ")[:-1]),
    lambda r: use("join a none", a=side(r)),
    lambda r: use("join a", a=side(r)),
    lambda r: use(f"join {r.pick('-1 0', '-o 3.1', '-t xy', '-a 3')} a b", a=side(r), b=side(r)),
    lambda r: use("join a b", a=side(r), b=""),
    lambda r: use("join -t : a b", a="a::1\nb:2:\n", b=f"a:{r.word()}:\nb::{r.word()}\n"),
    lambda r: use("join -a 2 a b", a="", b=side(r)),
]
