"""Only the full handle addresses a worker."""

from __future__ import annotations

import pytest

from router.listeners.mentions import mentions


@pytest.mark.parametrize(
    ("text", "addressed"),
    [
        ("@demo-worker1", True),
        ("hello @demo-worker1, look", True),
        ("see (@demo-worker1).", True),
        ("@Demo-Worker1!", True),
        ("@demo-worker1: yes\n", True),
        ("@demo-worker1's parser", True),
        ("thanks @demo-worker1.", True),
        ("@demo-worker12", False),
        ("@demo-worker1-b", False),
        ("@demo-worker1_x", False),
        ("@demo-worker1.txt", False),
        ("@worker1", False),
        ("demo-worker1", False),
        ("mail@demo-worker1", False),
        ("x/@demo-worker1", False),
        ("@@demo-worker1", False),
        ("@demo-worker1@example.org", False),
        ("", False),
    ],
)
def test_mentions(text: str, addressed: bool) -> None:
    assert mentions(text, "demo-worker1") is addressed
