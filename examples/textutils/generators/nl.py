"""Cases of nl."""

from generators.inputs import use


def page(r):
    one = f"\\:\\:\\:\n{r.line()}\n\\:\\:\n{r.lines(2, 4)}\\:\n{r.line()}\n"
    two = f"\\:\\:\\:\n{r.line()}\n\\:\\:\n{r.lines(2, 3)}"
    return f"{r.line()}\n{one}{two}"


ORDINARY = [
    lambda r: use("nl a", a=r.gappy()),
    lambda r: use("nl", r.lines()),
    lambda r: use("nl -b a a", a=r.gappy()),
    lambda r: use(f"nl -w {r.randint(1, 5)} a", a=r.gappy()),
    lambda r: use(f"nl -s {r.pick(':', '. ', ' ')!r} a", a=r.gappy()),
    lambda r: use(f"nl -v {r.randint(0, 90)} a", a=r.gappy()),
    lambda r: use(f"nl -n {r.pick('ln', 'rn', 'rz')} a", a=r.gappy()),
]

EDGE = [
    lambda r: use(f"nl -i {r.randint(2, 20)} -v {r.randint(1, 40)} a", a=r.gappy()),
    lambda r: use("nl a", a=page(r)),
    lambda r: use("nl -h a -f a a", a=page(r)),
    lambda r: use("nl -h a -b n a", a=page(r)),
    lambda r: use(f"nl -b p{r.pick('^t', 'a', 'o.', '[0-9]', 'e$')} a", a=r.lines()),
    lambda r: use("nl -ba -l 2 a", a=f"{r.line()}\n\n\n\n{r.line()}\n\n{r.line()}\n\n\n"),
    lambda r: use(f"nl -n rz -w {r.randint(2, 4)} -v -{r.randint(1, 5)} a", a=r.lines()),
    lambda r: use("nl -n ln -s | a", a=r.gappy()),
    lambda r: use("nl -d xx a", a=f"{r.line()}\nxxxx\n{r.line()}\n"),
    lambda r: use("nl a b", a=r.gappy(), b=r.gappy()),
    lambda r: use("nl a none b", a=r.gappy(), b=r.lines()),
    lambda r: use("nl", r.lines() + r.word()),
    lambda r: use("nl a", a=""),
    lambda r: use(f"nl {r.pick('-n xx', '-w 0', '-b z', '-i x')} a", a=r.lines()),
    lambda r: use("nl --body-numbering=n --number-separator=- a", a=r.lines()),
    lambda r: use(f"nl -w 1 -v {r.randint(8, 99)} a", a=r.lines()),
]
