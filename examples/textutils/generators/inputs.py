"""Random material for cases."""

from __future__ import annotations

import random
import shlex

WORDS = """
the quick brown fox jumps over a lazy dog and then it sleeps under an old oak tree while rain falls on grey hills
Alpha beta Gamma delta 7up x86 re-entry e.g. don't A1 zeta_9 I of
""".split()


def use(command: str | list[str], stdin: str | None = None, /, **files: str) -> dict:
    """Return a case; `command` is split as a shell would split it."""
    args = shlex.split(command) if isinstance(command, str) else command
    return {"args": args, "stdin": stdin, "files": files}


class Inputs(random.Random):
    """A seeded source of texts; every text ends with a newline unless its name says otherwise."""

    def pick(self, *values: object) -> str:
        """Return one of the values as text."""
        return str(self.choice(values))

    def word(self) -> str:
        return self.choice(WORDS)

    def line(self, low: int = 1, high: int = 7) -> str:
        return " ".join(self.word() for _ in range(self.randint(low, high)))

    def lines(self, low: int = 4, high: int = 14) -> str:
        """Return some lines of words."""
        return "".join(self.line() + "\n" for _ in range(self.randint(low, high)))

    def gappy(self, low: int = 5, high: int = 14) -> str:
        """Return lines of words with empty lines between them."""
        return "".join(self.choice(["", self.line(), self.line()]) + "\n" for _ in range(self.randint(low, high)))

    def names(self, low: int = 6, high: int = 16, pool: int = 6) -> str:
        """Return one word a line, with repetitions."""
        words = self.sample(WORDS, pool)
        return "".join(self.choice(words) + "\n" for _ in range(self.randint(low, high)))

    def numbers(self, low: int = 6, high: int = 14) -> str:
        """Return one whole number a line, negative ones too."""
        return "".join(f"{self.randint(-120, 1200)}\n" for _ in range(self.randint(low, high)))

    def table(self, delimiter: str = "\t", columns: int = 4, rows: int = 8) -> str:
        """Return rows of words and numbers."""
        cells = (self.word, lambda: str(self.randint(0, 300)))
        return "".join(
            delimiter.join(self.choice(cells)() for _ in range(columns)) + "\n" for _ in range(self.randint(4, rows))
        )

    def tabbed(self, low: int = 4, high: int = 9) -> str:
        """Return lines with tabs and runs of spaces."""
        gaps = ["\t", " ", "  ", "\t\t", " \t", "        ", "   "]
        rows = []
        for _ in range(self.randint(low, high)):
            row = self.choice(["", *gaps])
            for _ in range(self.randint(1, 5)):
                row += self.word() + self.choice(gaps)
            rows.append(row + self.choice(["", self.word()]) + "\n")
        return "".join(rows)

    def blob(self, low: int = 20, high: int = 90) -> str:
        """Return any bytes at all."""
        data = bytes(self.choice((self.randint(0, 255), self.randint(32, 126))) for _ in range(self.randint(low, high)))
        return data.decode("utf-8", "surrogateescape")
