#!/bin/sh
# Makes ./executable: a launcher that runs src/main.py of the folder it really lies in.
set -eu
cd "$(dirname "$0")"
python=$(command -v python3) || { echo "python3 is needed" >&2; exit 1; }
"$python" -m compileall -q src
cat >executable <<LAUNCHER
#!$python -IS
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "src"))
from main import main
main(sys.argv)
LAUNCHER
chmod 755 executable
