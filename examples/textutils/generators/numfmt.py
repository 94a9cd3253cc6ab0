"""Cases of numfmt. Thousands with --to=si are left out: newer versions print their unit in lower case."""

from generators.inputs import use


def big(r):
    return r.randint(10**6, 10 ** r.randint(7, 13))


def column(r):
    return "".join(f"{r.word()} {r.randint(1, 9000)} {r.randint(1, 10**6)}\n" for _ in range(r.randint(3, 6)))


ORDINARY = [
    lambda r: use(f"numfmt --to=iec {r.randint(1, 10**7)}"),
    lambda r: use(f"numfmt --to=si {big(r)}"),
    lambda r: use(f"numfmt --from=iec {r.randint(1, 900)}{r.pick('K', 'M', 'G')}"),
    lambda r: use(f"numfmt --from=si {r.randint(1, 900)}{r.pick('K', 'M', 'G', '')}"),
    lambda r: use("numfmt --to=iec", "".join(f"{r.randint(1, 10**8)}\n" for _ in range(r.randint(2, 5)))),
    lambda r: use(f"numfmt --to=iec-i {r.randint(1, 10**7)} {r.randint(1, 10**9)}"),
    lambda r: use(f"numfmt --from=auto {r.randint(1, 99)}{r.pick('K', 'Ki', 'M', 'Mi')}"),
]

EDGE = [
    lambda r: use(
        "numfmt --to=iec"
        f" --round={r.pick('up', 'down', 'from-zero', 'towards-zero', 'nearest')} {r.randint(1025, 99999)}"
    ),
    lambda r: use(f"numfmt --padding={r.randint(8, 14)} --to=iec {r.randint(1, 10**6)}"),
    lambda r: use(f"numfmt --padding=-{r.randint(8, 14)} --suffix=B {r.randint(1, 10**6)}"),
    lambda r: use(f"numfmt --suffix=B --from=iec {r.randint(1, 99)}K{r.pick('B', '')}"),
    lambda r: use("numfmt --field=2 --to=iec", column(r)),
    lambda r: use(f"numfmt --field={r.pick('2-', '2,3', '3')} --to=iec-i", column(r)),
    lambda r: use("numfmt -d : --field=2 --to=iec", column(r).replace(" ", ":")),
    lambda r: use(f"numfmt --header={r.randint(1, 2)} --field=2 --to=iec", "a b c\n" + column(r)),
    lambda r: use(f"numfmt --format={r.pick('%10f', '%-10f|', '<%.2f>', '%08.1f')!r} --to=iec {r.randint(1, 10**7)}"),
    lambda r: use(f"numfmt --from-unit={r.pick(512, 1024, 3)} {r.randint(1, 999)}"),
    lambda r: use(f"numfmt --to-unit={r.pick(10, 7, 1024)} {r.randint(1, 9999)}"),
    lambda r: use(f"numfmt --invalid={r.pick('fail', 'warn', 'ignore', 'abort')} --to=iec 2048 x 4096"),
    lambda r: use(f"numfmt {r.pick('x', '1K', '1.2.3', '5Q', '')!r}"),
    lambda r: use(f"numfmt --from=iec {r.randint(1, 9)}.{r.randint(1, 9)}K"),
    lambda r: use(f"numfmt -- -{r.randint(1, 999)} {r.randint(0, 9)}.{r.randint(10, 99)}"),
    lambda r: use(f"numfmt --to=iec -- -{r.randint(1025, 10**7)}"),
    lambda r: use(f"numfmt {r.pick('--to=x', '--from=x', '--round=x', '--field=0', '--padding=0', '--format=%d')} 1"),
    lambda r: use("numfmt --to=iec", f"   {r.randint(1, 10**6)} x\n{r.randint(1, 10**6)}\ty"),
    lambda r: use(f"numfmt --to=iec {r.choice((1023, 1024, 1025, 10239, 10240, 1048575, 1048576, 999, 0))}"),
    lambda r: use(f"numfmt --from=iec-i {r.randint(1, 99)}{r.pick('Ki', 'Mi', 'K')}"),
    lambda r: use(f"numfmt --from=iec --to=si {r.randint(1, 99)}G"),
]
