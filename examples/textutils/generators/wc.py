"""Cases of wc."""

from generators.inputs import use

ORDINARY = [
    lambda r: use("wc a", a=r.lines()),
    lambda r: use("wc -l a", a=r.lines()),
    lambda r: use("wc -w a", a=r.tabbed()),
    lambda r: use("wc -c", r.lines()),
    lambda r: use("wc", r.gappy()),
    lambda r: use("wc -lw a", a=r.gappy()),
    lambda r: use("wc -l a b", a=r.lines(), b=r.lines()),
]

EDGE = [
    lambda r: use(f"wc {r.pick('-L', '--max-line-length')} a", a=r.tabbed()),
    lambda r: use("wc -L", r.lines() + r.line()),
    lambda r: use("wc -L a b", a=r.lines(), b=r.lines()),
    lambda r: use("wc -cl a", a=r.lines()),
    lambda r: use("wc -m a", a=r.blob()),
    lambda r: use("wc a b c", a=r.lines(), b="", c=r.line()),
    lambda r: use("wc a none b", a=r.lines(), b=r.tabbed()),
    lambda r: use("wc none"),
    lambda r: use("wc -"),
    lambda r: use("wc a -", r.lines(), a=r.lines()),
    lambda r: use("wc -w", f"{r.word()}\x0b{r.word()}\x0c{r.word()}\r\n{r.word()}"),
    lambda r: use("wc --lines --bytes a", a=r.lines() + r.word()),
    lambda r: use(f"wc {r.pick('-q', '--nothing')} a", a=r.lines()),
    lambda r: use("wc a", a=r.lines() * 40),
]
