#!/bin/sh
# Runs the single-agent baseline of a spec on this machine, for a cluster job:
#   scripts/launch_baseline.sh team.toml [options of `agensh baseline`]
# SIGTERM or Ctrl-C (the job's time is over) stops it in order. It goes on, on the same clock, with the command that it
# prints then: agensh resume RUN_FOLDER. The same call again begins another run.
set -eu
tools=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
agensh=${AGENSH:-$tools/.venv/bin/agensh}
[ -x "$agensh" ] || agensh=$(command -v agensh) || { echo "agensh is not installed: make setup in $tools" >&2; exit 1; }
exec "$agensh" baseline "$@"
