"""Agensh: 1 to 1,024 coding agents on one goal, with no orchestrator."""

__version__ = "0.1.0"
