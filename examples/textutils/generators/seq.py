"""Cases of seq."""

from generators.inputs import use

ORDINARY = [
    lambda r: use(f"seq {r.randint(3, 15)}"),
    lambda r: use(f"seq {r.randint(1, 8)} {r.randint(9, 20)}"),
    lambda r: use(f"seq {r.randint(1, 5)} {r.randint(2, 4)} {r.randint(12, 30)}"),
    lambda r: use(f"seq {r.randint(8, 12)} -{r.randint(1, 3)} {r.randint(1, 5)}"),
    lambda r: use(f"seq -s {r.pick(', ', ':', ' ')!r} {r.randint(3, 12)}"),
    lambda r: use(f"seq -w {r.randint(8, 12)}"),
    lambda r: use(f"seq 1 0.{r.randint(2, 5)} {r.randint(2, 4)}"),
]

EDGE = [
    lambda r: use(f"seq -w {r.randint(1, 9)} {r.randint(3, 9)} {r.randint(90, 120)}"),
    lambda r: use(f"seq -w 0 .{r.randint(10, 50)} 2"),
    lambda r: use(f"seq -w -{r.randint(2, 12)} {r.randint(1, 3)}"),
    lambda r: use(f"seq -{r.randint(2, 6)} {r.randint(1, 3)}"),
    lambda r: use(f"seq {r.randint(6, 9)} {r.randint(1, 5)}"),
    lambda r: use(f"seq 0.{r.randint(1, 5)} {r.randint(2, 4)}.5"),
    lambda r: use(f"seq 1 .{r.randint(1, 4)} 2.{r.randint(1, 9)}"),
    lambda r: use(f"seq 1.{r.randint(10, 50)} -0.{r.randint(1, 3)} 0"),
    lambda r: use(f"seq -f '%0{r.randint(3, 6)}.{r.randint(0, 2)}f' {r.randint(2, 6)}"),
    lambda r: use(f"seq -f 'n{r.pick('%g', '%e', '%.1f', '%-4g|', '%%%g')}' {r.randint(2, 6)}"),
    lambda r: use(f"seq -f {r.pick('%d', 'x', '%g%g', '%')} 3"),
    lambda r: use(f"seq {r.pick('x', '1 x 3', '1 2 3 4', '')}"),
    lambda r: use(f"seq {r.randint(1, 4)} 0 {r.randint(1, 9)}"),
    lambda r: use(f"seq --separator=+ --equal-width {r.randint(8, 11)}"),
    lambda r: use(f"seq 0 {r.randint(11, 30)} 99"),
    lambda r: use(f"seq {10**18 + r.randint(1, 99)} {10**18 + 102}"),
    lambda r: use(f"seq +{r.randint(1, 4)} +{r.randint(5, 9)}"),
    lambda r: use(f"seq -w 1 {r.randint(2, 4)}.0"),
]
