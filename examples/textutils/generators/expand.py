"""Cases of expand."""

from generators.inputs import use

ORDINARY = [
    lambda r: use("expand a", a=r.tabbed()),
    lambda r: use("expand", r.tabbed()),
    lambda r: use(f"expand -t {r.randint(2, 6)} a", a=r.tabbed()),
    lambda r: use("expand a", a=r.table()),
    lambda r: use("expand -i a", a=r.tabbed()),
    lambda r: use("expand a b", a=r.tabbed(), b=r.table()),
]

EDGE = [
    lambda r: use(f"expand -t {r.randint(3, 6)},{r.randint(9, 14)},{r.randint(20, 30)} a", a=r.tabbed()),
    lambda r: use(f"expand -t '{r.randint(2, 5)} {r.randint(7, 14)}' a", a=r.tabbed()),
    lambda r: use(f"expand -i -t {r.randint(2, 5)} a", a=r.tabbed()),
    lambda r: use(f"expand -{r.randint(2, 6)} a", a=r.tabbed()),
    lambda r: use("expand -t 1 a", a=r.tabbed()),
    lambda r: use("expand a", a=f"ab\b\tc\n\b\b\t{r.word()}\n"),
    lambda r: use("expand", r.tabbed() + "\t" + r.word()),
    lambda r: use("expand -t 4 a none b", a=r.tabbed(), b=r.tabbed()),
    lambda r: use(f"expand -t {r.pick('0', 'x', '5,3', '4,4', '3,0')} a", a=r.tabbed()),
    lambda r: use("expand a", a=""),
    lambda r: use(f"expand --tabs={r.randint(2, 9)} --initial a", a="\t \t" + r.tabbed()),
    lambda r: use("expand a", a="a\rb\t" + r.tabbed()),
    lambda r: use("expand -t 3 -t 7 a", a=r.tabbed()),
    lambda r: use("expand -t 5 - a", r.tabbed(), a=r.tabbed()),
]
