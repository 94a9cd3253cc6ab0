#!/bin/sh
# Goes on with the teams in containers that a reboot of the box has interrupted; `container.on_reboot` of each run's
# spec says whether it goes on or is marked aborted. A run that `agensh down` has stopped stays stopped, and with none
# to go on with this does nothing. Where there is no systemd, in the crontab of who ran `agensh up` (`crontab -e`):
#   @reboot /path/to/agensh/scripts/resume_after_reboot.sh /path/of/the/team >>/path/of/the/team/reboot.log 2>&1
# The folder is where `agensh up` was called: its .env and its runs/ are used. With systemd: scripts/agensh@.service.
set -eu
cd "${1:-.}"
tools=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
agensh=${AGENSH:-$tools/.venv/bin/agensh}
[ -x "$agensh" ] || agensh=$(command -v agensh) || { echo "agensh is not installed: make setup in $tools" >&2; exit 1; }
left=${AGENSH_WAIT:-120} # seconds; cron may be up before the engine
until docker info >/dev/null 2>&1; do
  [ "$left" -gt 0 ] || { echo "the Docker engine does not answer" >&2; exit 1; }
  left=$((left - 1))
  sleep 1
done
exec "$agensh" resume --all
