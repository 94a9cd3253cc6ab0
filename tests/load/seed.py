"""Boards with a long history, written straight into the database: contents like those of a team, all different."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import make_url

from board_service.database import prepare
from tests.support.mariadb import MariaDb

WORDS = (
    *("tabs", "expand", "parser", "wc", "cut", "paste", "sort", "uniq", "head", "tail", "locale", "utf8", "segfault"),
    *("newline", "flag", "column", "width", "claim", "implement", "option", "stdin", "posix"),
)
TYPES = ("OBSERVED", "FACT", "FAIL", "CLAIM", "OBSERVED")
WORKERS = 1024
STEP = 100_000  # entries in one transaction
CREATED = 1_700_000_000_000  # milliseconds since the epoch

_CLAIM_SECONDS = 3600
_INSERT = "INSERT INTO board_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def content(chance: random.Random, seq: int) -> str:
    """Return what an entry says."""
    word = chance.choice
    start = f"{word(WORDS)} {word(WORDS)} {word(WORDS)} fails with exit {chance.randrange(256)} on case {seq}"
    return f"{start} when the input has {word(WORDS)} {word(WORDS)} {word(WORDS)}"[:100]


def seed_sqlite(path: Path, board: str, count: int) -> None:
    """Create a database with one board of `count` entries."""
    prepare(f"sqlite+aiosqlite:///{path}")
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("INSERT INTO board_boards VALUES (?, ?, 0, 0)", (board, count))
        connection.executemany(_INSERT, _rows(board, count))
    connection.close()


def _rows(board: str, count: int) -> Iterator[tuple[object, ...]]:
    chance = random.Random(1)
    for seq in range(1, count + 1):
        text, worker, type_ = content(chance, seq), f"bench-worker{seq % WORKERS + 1}", TYPES[seq % len(TYPES)]
        created = CREATED + seq
        expires = created + _CLAIM_SECONDS * 1000 if type_ == "CLAIM" else None
        folded = f"{text}\n{worker}"
        yield (board, seq, worker, type_, text, folded, "d" * 300, 1, created, expires, None, f"i:{seq}")


def seed_mariadb(server: MariaDb, url: str, board: str, count: int) -> None:
    """Fill a board of `count` entries by statements that run in the server, which is ten times as fast."""
    words = ", ".join(f"'{word}'" for word in WORDS)
    picked = [f"ELT(1 + CRC32(CONCAT(seq, '{salt}')) % {len(WORDS)}, {words})" for salt in "abcdef"]
    text = (
        f"LEFT(CONCAT_WS(' ', {', '.join(picked[:3])}, 'fails with exit', CRC32(seq) % 256, 'on case', seq,"
        f" 'when the input has', {', '.join(picked[3:])}), 100)"
    )
    kinds = ", ".join(f"'{type_}'" for type_ in TYPES)
    name = make_url(url).database
    for first in range(1, count + 1, STEP):
        last = min(count, first + STEP - 1)
        server.run(
            f"INSERT INTO board_entries SELECT '{board}', seq, worker, type, content, CONCAT(content, '\n', worker),"
            f" REPEAT('d', 300), 1, {CREATED} + seq,"
            f" IF(type = 'CLAIM', {CREATED} + seq + {_CLAIM_SECONDS * 1000}, NULL), NULL, CONCAT('i:', seq) FROM"
            f" (SELECT seq, CONCAT('bench-worker', seq % {WORKERS} + 1) AS worker,"
            f" ELT(1 + seq % {len(TYPES)}, {kinds}) AS type, {text} AS content FROM seq_{first}_to_{last}) made",
            database=name,
        )
    server.run(f"INSERT INTO board_boards VALUES ('{board}', {count}, 0, 0)", database=name)
