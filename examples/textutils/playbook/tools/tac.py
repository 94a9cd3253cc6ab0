"""tac: the records of each input in reverse."""

import bre
import cli

LONG = {"before": "b", "regex": "r", "separator=": "s"}


def run(argv):
    found, names = cli.options(argv, "brs:", LONG)
    chosen = dict(found)
    separator = cli.encode(chosen.get("s", "\n"))
    inputs = cli.Inputs("tac", names)
    for _, data in inputs:
        if "r" in chosen:
            pattern, _ = bre.compile(separator)
            spans = [match.span() for match in pattern.finditer(data)]
        else:
            spans = occurrences(data, separator)
        cuts = [start if "b" in chosen else end for start, end in spans]
        edges = sorted({0, *cuts, len(data)})
        records = [data[start:end] for start, end in zip(edges, edges[1:])]
        cli.out(b"".join(reversed(records)))
    return inputs.code


def occurrences(data, separator):
    """Return where the separator stands; of overlapping places the later counts."""
    spans, end = [], len(data)
    while (place := data.rfind(separator, 0, end)) >= 0:
        spans.append((place, place + len(separator)))
        end = place
    return spans
