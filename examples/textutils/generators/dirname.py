"""Cases of dirname."""

from generators.inputs import use


def path(r):
    return r.pick("", "/", "./") + "/".join(r.pick("usr", "lib", "src", "a", "x.d") for _ in range(r.randint(1, 4)))


ORDINARY = [
    lambda r: use(["dirname", path(r) + "/file.txt"]),
    lambda r: use(["dirname", path(r)]),
    lambda r: use(["dirname", path(r) + "/"]),
    lambda r: use(["dirname", r.word()]),
    lambda r: use(["dirname", path(r), path(r)]),
    lambda r: use(["dirname", "/" + r.word()]),
]

EDGE = [
    lambda r: use(["dirname", r.pick("/", "//", "///")]),
    lambda r: use(["dirname", ""]),
    lambda r: use(["dirname", path(r) + "//" + r.word()]),
    lambda r: use(["dirname", path(r) + "//" + r.word() + "//"]),
    lambda r: use(["dirname", "//" + r.word()]),
    lambda r: use(["dirname", r.pick(".", "..", "./.", "../..")]),
    lambda r: use(["dirname", "-z", path(r), path(r)]),
    lambda r: use(["dirname", "--zero", path(r)]),
    lambda r: use(["dirname"]),
    lambda r: use(["dirname", "--", "-" + path(r)]),
    lambda r: use(["dirname", r.word() + " " + path(r) + "/x"]),
    lambda r: use(["dirname", "-x", path(r)]),
    lambda r: use(["dirname", r.word() + "/", r.word() + "//", "/"]),
]
