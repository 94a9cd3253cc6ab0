"""Cases of cut."""

from generators.inputs import use

ORDINARY = [
    lambda r: use(f"cut -f {r.randint(1, 4)} a", a=r.table()),
    lambda r: use(f"cut -d : -f {r.randint(1, 4)} a", a=r.table(":")),
    lambda r: use(f"cut -d , -f 1,{r.randint(2, 4)}", r.table(",")),
    lambda r: use(f"cut -c {r.randint(1, 3)}-{r.randint(4, 9)} a", a=r.lines()),
    lambda r: use(f"cut -b {r.randint(1, 9)} a", a=r.lines()),
    lambda r: use(f"cut -f {r.randint(2, 3)}- a", a=r.table()),
    lambda r: use(f"cut -c -{r.randint(2, 9)}", r.gappy()),
]

EDGE = [
    lambda r: use(f"cut -d ' ' -f {r.randint(1, 3)} a", a=r.gappy()),
    lambda r: use(f"cut -s -d ' ' -f {r.randint(1, 3)} a", a=r.gappy()),
    lambda r: use(f"cut -d : -f 3,1,{r.randint(2, 3)} a", a=r.table(":")),
    lambda r: use(f"cut -d : --complement -f {r.pick('2', '1,3', '2-', '-2')} a", a=r.table(":")),
    lambda r: use(f"cut --complement -c {r.randint(2, 5)}-{r.randint(6, 8)} a", a=r.lines()),
    lambda r: use(f"cut -d : -f 1,3- --output-delimiter={r.pick('_', '--', '<>')} a", a=r.table(":")),
    lambda r: use("cut -c 1-3,5,7- --output-delimiter=| a", a=r.lines()),
    lambda r: use("cut -b 2-5,3-7,10 --output-delimiter=: a", a=r.lines()),
    lambda r: use(f"cut -d : -f {r.pick('0', '3-2', 'x', '-', '1,,2')} a", a=r.table(":")),
    lambda r: use("cut a", a=r.lines()),
    lambda r: use("cut -d ab -f 1 a", a=r.lines()),
    lambda r: use(f"cut -f {r.randint(1, 3)}", r.table() + r.word()),
    lambda r: use(f"cut -c {r.randint(1, 3)}- a none b", a=r.lines(), b=r.line()),
    lambda r: use("cut -z -d : -f 2 a", a=r.table(":").replace("\n", "\0")),
    lambda r: use("cut -f 1 -c 2 a", a=r.table()),
    lambda r: use(f"cut --delimiter=, --fields={r.pick('2', '1-2', '3-')} -s a", a=r.table(",") + r.word()),
]
