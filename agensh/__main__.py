"""`python -m agensh` is the `agensh` command."""

from agensh.cli.main import main

main()
