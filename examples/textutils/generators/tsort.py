"""Cases of tsort; no loops: how they are broken is not part of the task."""

from generators.inputs import use


def edges(r, nodes="abcdefgh", low=4, high=9):
    """Return pairs that never lead back."""
    order = list(nodes)
    r.shuffle(order)
    pairs = []
    for _ in range(r.randint(low, high)):
        one, two = sorted(r.sample(range(len(order)), 2))
        pairs.append(f"{order[one]} {order[two]}")
    return pairs


ORDINARY = [
    lambda r: use("tsort a", a="\n".join(edges(r)) + "\n"),
    lambda r: use("tsort", "\n".join(edges(r)) + "\n"),
    lambda r: use("tsort a", a=" ".join(edges(r)) + "\n"),
    lambda r: use("tsort a", a="\n".join(edges(r, "abcd", 3, 4)) + "\n"),
]

EDGE = [
    lambda r: use("tsort a", a="\n".join(edges(r, "abcdefghijklmnop", 10, 20)) + "\n"),
    lambda r: use("tsort", "\n".join([*edges(r), "z z"]) + "\n"),
    lambda r: use("tsort a", a="x x\ny y\n" + "\n".join(edges(r, "bdac"))),
    lambda r: use("tsort a", a="\n".join(edges(r) * 2) + "\n"),
    lambda r: use("tsort a", a=""),
    lambda r: use("tsort a", a="\n".join(edges(r)) + " odd\n"),
    lambda r: use("tsort none"),
    lambda r: use("tsort a b", a="\n".join(edges(r)), b=""),
    lambda r: use("tsort -", "\n\t".join(edges(r)) + "\n\n"),
    lambda r: use("tsort a", a="\n".join(edges(r, ("ant", "Bee", "cat", "A1", "a", "_x")))),
    lambda r: use("tsort -x a", a="\n".join(edges(r))),
]
