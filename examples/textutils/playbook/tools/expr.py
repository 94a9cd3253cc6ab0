"""expr: evaluate an expression; the exit code is 1 when the result is empty or 0."""

import operator

import bre
import cli

COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


def run(argv):
    tokens = argv[1:] if argv[:1] == ["--"] else argv
    if not tokens:
        raise cli.Failure("missing operand", 2)
    parser = Parser(tokens)
    value = parser.alternative(True)
    if parser.place < len(tokens):
        raise cli.Failure(f"syntax error: unexpected argument '{tokens[parser.place]}'", 2)
    cli.out(cli.encode(value + "\n"))
    return 1 if null(value) else 0


def null(value):
    digits = value[1:] if value.startswith("-") else value
    return not value or (digits != "" and not digits.strip("0"))


def integer(value):
    digits = value[1:] if value.startswith("-") else value
    return int(value) if digits.isascii() and digits.isdigit() else None


def whole(value):
    number = integer(value)
    if number is None:
        raise cli.Failure("non-integer argument", 2)
    return number


class Parser:
    """Recursive descent, loosest operators first; what is not `live` is parsed, but not computed."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.place = 0

    def taken(self, *operators):
        if self.place < len(self.tokens) and self.tokens[self.place] in operators:
            self.place += 1
            return self.tokens[self.place - 1]
        return None

    def next(self):
        if self.place == len(self.tokens):
            raise cli.Failure(f"syntax error: missing argument after '{self.tokens[-1]}'", 2)
        self.place += 1
        return self.tokens[self.place - 1]

    def alternative(self, live):
        left = self.both(live)
        while self.taken("|"):
            right = self.both(live and null(left))
            if null(left):
                left = "0" if null(right) else right
        return left

    def both(self, live):
        left = self.comparison(live)
        while self.taken("&"):
            right = self.comparison(live and not null(left))
            if null(left) or null(right):
                left = "0"
        return left

    def comparison(self, live):
        left = self.sum(live)
        while sign := self.taken(*COMPARISONS):
            right = self.sum(live)
            numbers = integer(left), integer(right)
            pair = (cli.encode(left), cli.encode(right)) if None in numbers else numbers
            left = str(int(COMPARISONS[sign](*pair)))
        return left

    def sum(self, live):
        left = self.product(live)
        while sign := self.taken("+", "-"):
            right = self.product(live)
            if live:
                left = str(whole(left) + whole(right) if sign == "+" else whole(left) - whole(right))
        return left

    def product(self, live):
        left = self.match(live)
        while sign := self.taken("*", "/", "%"):
            right = self.match(live)
            if live:
                left = str(multiply(sign, whole(left), whole(right)))
        return left

    def match(self, live):
        left = self.word(live)
        while self.taken(":"):
            right = self.word(live)
            if live:
                left = matched(left, right)
        return left

    def word(self, live):
        token = self.next()
        if token == "+":
            return self.next()
        if token == "length":
            return str(len(cli.encode(self.word(live))))
        if token == "match":
            text, pattern = self.word(live), self.word(live)
            return matched(text, pattern) if live else text
        if token == "index":
            text, letters = self.word(live), self.word(live)
            return str(next((place for place, char in enumerate(text, 1) if char in letters), 0))
        if token == "substr":
            text, start, length = self.word(live), integer(self.word(live)), integer(self.word(live))
            if start is None or length is None or start < 1 or length < 1:
                return ""
            return text[start - 1 : start - 1 + length]
        if token == "(":
            value = self.alternative(live)
            if self.next() != ")":
                raise cli.Failure("syntax error: expecting ')'", 2)
            return value
        if token == ")":
            raise cli.Failure("syntax error: unexpected ')'", 2)
        return token


def multiply(sign, left, right):
    """Divide towards zero; the remainder has the sign of the dividend."""
    if sign == "*":
        return left * right
    if not right:
        raise cli.Failure("division by zero", 2)
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return quotient if sign == "/" else left - quotient * right


def matched(text, pattern):
    """Return the first group, or how many characters the anchored pattern matches."""
    compiled, groups = bre.compile(cli.encode(pattern))
    found = compiled.match(cli.encode(text))
    if groups:
        return (found.group(1) or b"").decode("utf-8", "surrogateescape") if found else ""
    return str(found.end()) if found else "0"
