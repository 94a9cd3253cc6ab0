"""nl: number lines."""

import bre
import cli

LONG = {
    "body-numbering=": "b",
    "section-delimiter=": "d",
    "footer-numbering=": "f",
    "header-numbering=": "h",
    "line-increment=": "i",
    "join-blank-lines=": "l",
    "number-format=": "n",
    "no-renumber": "p",
    "number-separator=": "s",
    "starting-line-number=": "v",
    "number-width=": "w",
}


def run(argv):
    found, names = cli.options(argv, "b:d:f:h:i:l:n:ps:v:w:", LONG)
    chosen = {"b": "t", "h": "n", "f": "n", "d": "\\:", "i": "1", "l": "1", "n": "rn", "s": "\t", "v": "1", "w": "6"}
    chosen.update(found)
    if chosen["n"] not in ("ln", "rn", "rz"):
        raise cli.Failure(f"invalid line numbering format: '{chosen['n']}'")
    styles = {section: style(chosen[section]) for section in "hbf"}
    start = cli.number(chosen["v"], "starting line number", low=-(10**18))
    step = cli.number(chosen["i"], "line number increment", low=-(10**18))
    join = cli.number(chosen["l"], "number of blank lines", low=1)
    width = cli.number(chosen["w"], "line number field width", low=1)
    mark = cli.encode(chosen["d"])
    mark = mark + b":" if len(mark) == 1 else mark
    sections = {mark * 3: "h", mark * 2: "b", mark: "f"}
    inputs = cli.Inputs("nl", names)
    section, current, blanks = "b", start, 0
    empty = b" " * (width + len(cli.encode(chosen["s"])))
    for line in cli.lines(inputs.joined()):
        if line in sections:
            section = sections[line]
            if "p" not in chosen:
                current = start
            cli.out(b"\n")
            continue
        blanks = blanks + 1 if not line else 0
        counted = styles[section](line) and (line or blanks % join == 0)
        if not counted:
            cli.out(empty + line + b"\n")
            continue
        shown = {"ln": f"{current:<{width}}", "rn": f"{current:>{width}}", "rz": f"{current:0{width}}"}[chosen["n"]]
        cli.out(cli.encode(shown + chosen["s"]) + line + b"\n")
        current += step
    return inputs.code


def style(text):
    """Return the function that says whether a line is numbered."""
    if text == "a":
        return lambda line: True
    if text == "t":
        return lambda line: line != b""
    if text == "n":
        return lambda line: False
    if text.startswith("p"):
        pattern, _ = bre.compile(cli.encode(text[1:]))
        return lambda line: pattern.search(line) is not None
    raise cli.Failure(f"invalid numbering style: '{text}'")
