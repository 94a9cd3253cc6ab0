"""Cases of expr."""

from generators.inputs import use


def small(r):
    return r.randint(-9, 20)


ORDINARY = [
    lambda r: use(f"expr {small(r)} {r.pick('+', '-')} {small(r)}"),
    lambda r: use(f"expr {small(r)} '*' {small(r)}"),
    lambda r: use(f"expr {r.randint(1, 99)} {r.pick('/', '%')} {r.randint(1, 9)}"),
    lambda r: use(f"expr {small(r)} {r.pick('<', '<=', '=', '!=', '>=', '>')!r} {small(r)}"),
    lambda r: use(f"expr {r.randint(1, 9)} + {r.randint(1, 9)} '*' {r.randint(1, 9)}"),
    lambda r: use(f"expr length {r.word()!r}"),
    lambda r: use(f"expr substr {r.pick('hello', 'abcdef')} {r.randint(1, 3)} {r.randint(1, 4)}"),
    lambda r: use(f"expr {r.word()!r} : '[a-z]*'"),
]

EDGE = [
    lambda r: use(f"expr -{r.randint(1, 99)} {r.pick('/', '%')} {r.randint(2, 9)}"),
    lambda r: use(f"expr {r.randint(1, 99)} {r.pick('/', '%')} -{r.randint(2, 9)}"),
    lambda r: use(f"expr '(' {small(r)} + {small(r)} ')' '*' {small(r)}"),
    lambda r: use(f"expr {small(r)} - {small(r)} - {small(r)}"),
    lambda r: use(f"expr {r.pick(0, 5, '00', 'x', '')!r} '|' {r.pick(0, 7, 'y', '')!r}"),
    lambda r: use(f"expr {r.pick(0, 5, '-0', 'x', '')!r} '&' {r.pick(0, 7, 'y', '')!r}"),
    lambda r: use(f"expr {r.pick('a', 'b10', '10')} '<' {r.pick('b', 'b9', '9', 'a')}"),
    lambda r: use(f"expr {r.pick('abc', 'xyz', 'aab')} : '\\(a*\\)b'"),
    lambda r: use(f"expr {r.pick('file.txt', 'a.b.c', 'none')} : '\\(.*\\)\\.[a-z]*$'"),
    lambda r: use(f"expr match {r.word()!r} {r.pick('.*e', 'o.', '[A-Z].*', 'x*')!r}"),
    lambda r: use(f"expr index {r.word()!r} {r.pick('aeiou', 'xyz', 'e', '')!r}"),
    lambda r: use(f"expr substr hello {r.randint(-1, 7)} {r.randint(-1, 7)}"),
    lambda r: use("expr 1 / 0"),
    lambda r: use(f"expr {r.pick('a', '1.5', '')!r} + 1"),
    lambda r: use(f"expr {r.pick('', '1 +', '1 2', ')', '( 1', '+')}"),
    lambda r: use("expr 1 '|' 1 / 0"),
    lambda r: use("expr 0 '&' 1 / 0"),
    lambda r: use(f"expr + {r.pick('length', 'match', 'index')}"),
    lambda r: use(f"expr {10**18 + r.randint(1, 99)} '*' {10**18 + r.randint(1, 99)}"),
    lambda r: use(f"expr -- {r.randint(1, 9)} + -{r.randint(1, 9)}"),
    lambda r: use("expr a = a"),
    lambda r: use(f"expr {r.pick(1, 2, 3)} '<' 2 '<' 2"),
    lambda r: use("expr 'a+b' : 'a+b'"),
    lambda r: use(f"expr length {r.pick('', 'a b', '0')!r}"),
]
