"""Accounts, tokens, repository, channel and board of a run."""

from agensh.provision.all import provision

__all__ = ["provision"]
