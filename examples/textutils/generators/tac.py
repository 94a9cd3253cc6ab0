"""Cases of tac."""

from generators.inputs import use

ORDINARY = [
    lambda r: use("tac a", a=r.lines()),
    lambda r: use("tac", r.lines()),
    lambda r: use("tac a", a=r.gappy()),
    lambda r: use("tac a b", a=r.lines(), b=r.lines()),
    lambda r: use(f"tac -s {r.pick(':', ',')} a", a=r.table(r.pick(":", ","))),
]

EDGE = [
    lambda r: use("tac a", a=r.lines() + r.word()),
    lambda r: use("tac", r.line()),
    lambda r: use("tac a", a=""),
    lambda r: use("tac a", a="\n\n" + r.lines() + "\n"),
    lambda r: use("tac -b a", a=r.lines()),
    lambda r: use("tac -b -s : a", a=":" + r.table(":")),
    lambda r: use("tac -s an a", a=r.lines() + "banana band\n"),
    lambda r: use("tac -s aa a", a=f"1aaa2aaaa3aa{r.word()}"),
    lambda r: use(f"tac -r -s {r.pick('[0-9]', '[aeiou]', '[ ,]')!r} a", a=r.table(", ")),
    lambda r: use("tac -br -s '[.-]' a", a=r.lines() + "a-b.c-d\n"),
    lambda r: use("tac a none b", a=r.lines(), b=r.lines()),
    lambda r: use("tac none"),
    lambda r: use("tac a - b", r.lines(), a=r.lines(), b=r.lines()),
    lambda r: use("tac a b", a=r.line(), b=r.lines()),
    lambda r: use("tac --separator=x --before a", a=r.lines() + "x1x2x3"),
    lambda r: use("tac a", a=r.blob()),
]
