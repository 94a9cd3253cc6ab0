"""Cases of od."""

from generators.inputs import use

ORDINARY = [
    lambda r: use("od a", a=r.lines()),
    lambda r: use("od -c a", a=r.lines()),
    lambda r: use("od -x a", a=r.lines()),
    lambda r: use("od -A x -t x1 a", a=r.blob()),
    lambda r: use("od -An -t u1", r.blob()),
    lambda r: use("od -b a", a=r.line()),
    lambda r: use("od -t d4 a", a=r.blob()),
]

EDGE = [
    lambda r: use(f"od -t {r.pick('d', 'o', 'u', 'x')}{r.pick(1, 2, 4, 8)} a", a=r.blob()),
    lambda r: use(f"od -A {r.pick('d', 'o', 'x', 'n')} -c a", a=r.blob()),
    lambda r: use("od -t a a", a=r.blob()),
    lambda r: use("od -t x1z a", a=r.blob()),
    lambda r: use("od -A d -t x2z -N 20", r.lines()),
    lambda r: use(f"od -t {r.pick('x1 -t c', 'o1c', 'x2 -t x1', 'd4u1', 'a -b')} a", a=r.blob()),
    lambda r: use(f"od -j {r.randint(1, 15)} -N {r.randint(5, 40)} -c a", a=r.lines()),
    lambda r: use(f"od -w{r.pick(4, 8, 12, 20)} -t x1 a", a=r.blob()),
    lambda r: use("od a", a="\0" * r.randint(50, 90)),
    lambda r: use("od -v -t x1 a", a="ab" * r.randint(20, 40)),
    lambda r: use("od -c a", a="z" * 48 + r.line() + "z" * 64),
    lambda r: use("od a", a=""),
    lambda r: use("od -c a b", a=r.line(), b=r.line()),
    lambda r: use("od -c a none", a=r.line()),
    lambda r: use("od none"),
    lambda r: use(f"od {r.pick('-A q', '-t q', '-t x3', '-j x')} a", a=r.line()),
    lambda r: use("od -j 500 a", a=r.word()),
    lambda r: use(f"od {r.pick('-d', '-s', '-i', '-l', '-o', '-a')} a", a=r.blob()),
    lambda r: use("od --address-radix=n --format=x1 --read-bytes=7 a", a=r.blob()),
]
