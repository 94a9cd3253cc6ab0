"""Cases of cksum."""

from generators.inputs import use

ORDINARY = [
    lambda r: use("cksum a", a=r.lines()),
    lambda r: use("cksum", r.lines()),
    lambda r: use("cksum a b", a=r.lines(), b=r.names()),
    lambda r: use("cksum a", a=r.line()),
]

EDGE = [
    lambda r: use("cksum a", a=""),
    lambda r: use("cksum"),
    lambda r: use("cksum -", r.lines()),
    lambda r: use("cksum a - b", r.lines(), a=r.lines(), b=r.line()),
    lambda r: use("cksum a", a=r.blob(100, 300)),
    lambda r: use("cksum a", a="\0" * r.randint(1, 300)),
    lambda r: use("cksum a", a=r.lines() * 30),
    lambda r: use("cksum none"),
    lambda r: use("cksum a none b", a=r.lines(), b=r.lines()),
    lambda r: use("cksum -- a", a=r.lines()),
    lambda r: use(["cksum", "a b"], **{"a b": r.lines()}),
    lambda r: use("cksum --nothing a", a=r.lines()),
    lambda r: use("cksum d/a", **{"d/a": r.word()}),
]
