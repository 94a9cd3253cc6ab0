"""Cases of factor."""

from generators.inputs import use

PRIMES = (2, 3, 5, 7, 11, 13, 101, 9973, 104729, 999983, 2147483647)

ORDINARY = [
    lambda r: use(f"factor {r.randint(2, 200)}"),
    lambda r: use(f"factor {r.randint(200, 100000)}"),
    lambda r: use(f"factor {r.randint(2, 50)} {r.randint(2, 500)} {r.randint(2, 5000)}"),
    lambda r: use("factor", r.numbers().replace("-", "")),
    lambda r: use(f"factor {r.choice(PRIMES)}"),
    lambda r: use(f"factor {2 ** r.randint(2, 40)}"),
]

EDGE = [
    lambda r: use("factor 0 1 2"),
    lambda r: use(f"factor {r.choice(PRIMES) * r.choice(PRIMES) * r.choice(PRIMES)}"),
    lambda r: use(f"factor {2147483647 * r.choice((2147483629, 2147483647, 2147483587))}"),
    lambda r: use(f"factor {r.randint(10**15, 10**16)}"),
    lambda r: use(f"factor {2**64 - r.choice((59, 1, 2, 95))}"),
    lambda r: use(f"factor {r.pick('x', '-4', '1.5', '')} {r.randint(2, 99)}"),
    lambda r: use("factor", f"{r.randint(2, 99)}   {r.randint(2, 99)}\n\t{r.randint(2, 99)}\n\n"),
    lambda r: use("factor", f"{r.randint(2, 99)} x {r.randint(2, 99)}\n"),
    lambda r: use("factor", f"{r.randint(2, 9999)}"),
    lambda r: use("factor", ""),
    lambda r: use(f"factor +{r.randint(2, 99)}"),
    lambda r: use(f"factor 00{r.randint(2, 99)}"),
    lambda r: use(["factor", f" {r.randint(2, 99)}"]),
    lambda r: use(f"factor {r.choice((9973, 104729, 999983)) ** 2}"),
]
