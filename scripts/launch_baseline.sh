#!/bin/sh
# Runs the single-agent baseline of a spec on this machine:
#   scripts/launch_baseline.sh team.toml [options of `agensh baseline`]
# A run that was interrupted goes on, on the same clock, with: .venv/bin/agensh resume RUN_FOLDER
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
make --silent -C "$root" setup
exec "$root/.venv/bin/agensh" baseline "$@"
