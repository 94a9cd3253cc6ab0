"""Find the tool by the name of the program or by the first argument, run it, end with its exit code."""

import importlib
import os
import sys

import cli
from dispatch import TOOLS


def main(argv):
    name = os.path.basename(argv[0])
    arguments = argv[1:]
    if name not in TOOLS:
        if not arguments:
            sys.stderr.write("usage: textutils TOOL [ARGUMENT]...\n")
            sys.exit(127)
        name, arguments = arguments[0], arguments[1:]
    if name not in TOOLS:
        sys.stderr.write(f"textutils: unknown tool: {name}\n")
        sys.exit(127)
    try:
        code = importlib.import_module(TOOLS[name]).run(arguments)
    except cli.Failure as failure:
        cli.complain(name, str(failure))
        code = failure.code
    except BrokenPipeError:
        code = 141
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # What could not be written must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 141
    # Nothing is left to tear down, and an interpreter's shutdown takes a fifth of a short run.
    sys.stderr.flush()
    os._exit(code)
