"""Cases of basename."""

from generators.inputs import use


def path(r):
    return r.pick("", "/", "./") + "/".join(r.pick("usr", "lib", "src", "a", "x.d") for _ in range(r.randint(1, 4)))


ORDINARY = [
    lambda r: use(["basename", path(r) + "/file.txt"]),
    lambda r: use(["basename", path(r) + "/file.txt", ".txt"]),
    lambda r: use(["basename", path(r)]),
    lambda r: use(["basename", path(r) + "/main.c", ".c"]),
    lambda r: use(["basename", path(r) + "/archive.tar.gz", ".gz"]),
    lambda r: use(["basename", path(r) + "/"]),
    lambda r: use(["basename", path(r) + "/a.txt", ".c"]),
]

EDGE = [
    lambda r: use(["basename", r.pick("/", "//", "///")]),
    lambda r: use(["basename", ""]),
    lambda r: use(["basename", path(r) + "//"]),
    lambda r: use(["basename", ".txt", ".txt"]),
    lambda r: use(["basename", path(r) + "/.txt", ".txt"]),
    lambda r: use(["basename", "-a", path(r), path(r) + "/x.c"]),
    lambda r: use(["basename", "-s", ".c", path(r) + "/x.c", path(r) + "/y.c"]),
    lambda r: use(["basename", f"--suffix={r.pick('.h', '.c')}", path(r) + "/x.c"]),
    lambda r: use(["basename", "-z", path(r)]),
    lambda r: use(["basename", "-az", path(r), path(r)]),
    lambda r: use(["basename"]),
    lambda r: use(["basename", path(r), ".c", "extra"]),
    lambda r: use(["basename", "--", "-" + r.word()]),
    lambda r: use(["basename", r.word() + " " + path(r)]),
    lambda r: use(["basename", path(r) + "/x.c/", ".c"]),
]
