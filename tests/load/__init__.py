"""Benchmarks: `python -m tests.load`. Not collected by pytest."""
