#!/bin/sh
# A whole run of a team on this box, for a cluster job: `agensh up` with the arguments given here, wait for the end,
# print the report, stop the containers. Exit code: 0 when the run got to its end, else that of what failed.
# SIGTERM or Ctrl-C (the job's time is over) stops the team in order; its record stays, and the same call goes on with it.
#   scripts/launch_single_node.sh [team.toml] [--workers N] [--runs FOLDER] …   (agensh up --help)
set -u
tools=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
agensh=${AGENSH:-$tools/.venv/bin/agensh}
[ -x "$agensh" ] || agensh=$(command -v agensh) || { echo "agensh is not installed: make setup in $tools" >&2; exit 1; }
out=$(mktemp) || exit 1
run=
child=

finish() { # finish CODE
  trap '' INT TERM HUP
  [ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null
  [ -n "$run" ] || run=$(sed -n -e 's/ (going on;.*//' -e 's/^run: //p' "$out")
  [ -z "$run" ] || "$agensh" down "$run" >&2 || :
  rm -f "$out"
  exit "$1"
}
trap 'finish 143' TERM HUP
trap 'finish 130' INT

# In the background and waited for: a shell handles a signal only between two commands in the foreground.
"$agensh" up "$@" >"$out" &
child=$!
tail -n +1 -s 0.2 -f --pid="$child" "$out" &
shown=$!
wait "$child" || { code=$?; child=; wait "$shown"; finish "$code"; }
child=
wait "$shown"
run=$(sed -n -e 's/ (going on;.*//' -e 's/^run: //p' "$out")
"$agensh" wait "$run" &
child=$!
wait "$child"
code=$?
child=
"$agensh" report "$run"
finish "$code"
