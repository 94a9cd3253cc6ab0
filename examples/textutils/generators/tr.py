"""Cases of tr."""

from generators.inputs import use

ORDINARY = [
    lambda r: use("tr a-z A-Z", r.lines()),
    lambda r: use(f"tr {r.pick('aeiou', 'tlo', 'xyz')} {r.pick('12345', 'abc', '*')}", r.lines()),
    lambda r: use(f"tr -d {r.pick('aeiou', 'a-f', ' ')}", r.lines()),
    lambda r: use(f"tr -s {r.pick('elo', ' ', 'a-z')}", r.lines() + "aabbcc  lleell\n"),
    lambda r: use("tr ' ' '\\n'", r.lines()),
    lambda r: use("tr '[:lower:]' '[:upper:]'", r.lines()),
    lambda r: use("tr -d '\\n'", r.lines()),
]

EDGE = [
    lambda r: use(f"tr -d '[:{r.pick('digit', 'punct', 'space', 'alpha', 'upper')}:]'", r.tabbed()),
    lambda r: use(f"tr -cd '[:{r.pick('alnum', 'digit', 'print')}:]\\n'", r.tabbed()),
    lambda r: use("tr -c '[:alnum:]' _", r.lines()),
    lambda r: use("tr -cs '[:alpha:]' '\\n'", r.lines()),
    lambda r: use("tr -s '[:space:]' ' '", r.tabbed()),
    lambda r: use("tr -ds aeiou '[:alpha:]'", r.lines() + "moon tree hello\n"),
    lambda r: use("tr -t abcdef 12", r.lines()),
    lambda r: use(f"tr a-e '[{r.pick('x', '-', '#')}*]'", r.lines()),
    lambda r: use("tr a-h '[x*3]y'", r.lines()),
    lambda r: use(f"tr a-h '{r.pick('', '1')}[{r.pick('x', '#')}*]z'", r.lines()),
    lambda r: use("tr '\\141\\142' '\\060\\\\'", r.lines()),
    lambda r: use("tr '[:upper:]' '[:lower:]'", r.lines()),
    lambda r: use(f"tr {r.pick('z-a', '[:nope:]', '[x*]')} b", r.lines()),
    lambda r: use(f"tr {r.pick('abc', '-d', '-d a b', 'a b c')}", r.lines()),
    lambda r: use(["tr", "abc", ""], r.lines()),
    lambda r: use("tr -d '\\000-\\037\\177-\\377'", r.blob()),
    lambda r: use("tr '\\200-\\377' '?'", r.blob()),
    lambda r: use("tr 'a\\-z' '123'", "a-z b-y\n" + r.lines()),
    lambda r: use("tr -- -_ _-", "a-b_c\n" + r.lines()),
    lambda r: use("tr '[=e=]' E", r.lines()),
]
