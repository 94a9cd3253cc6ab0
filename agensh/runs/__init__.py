"""The record of a run: collecting it, grading it, reporting it."""

DEFAULT_CHECKPOINTS = 12
"""How many points of main's history are graded when nobody says otherwise."""
