"""Typed client of the board service."""


class BoardClient:
    """The board as one worker sees it."""
