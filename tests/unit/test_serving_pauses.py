"""What a service has loaded is kept out of the garbage collector's passes."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from agensh.serving import GC_THRESHOLDS, keep_loaded

class Node: pass

kept = [Node() for _ in range(1000)]
keep_loaded()
assert gc.get_freeze_count() > 1000, gc.get_freeze_count()
assert gc.get_threshold() == GC_THRESHOLDS
assert not any(item is kept for item in gc.get_objects())
# What is made later is still collected.
ring = Node()
ring.own = ring
del ring
assert gc.collect() >= 1
"""


def test_what_is_loaded_is_not_looked_through_again() -> None:
    # In a process of its own: what is frozen stays so.
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
