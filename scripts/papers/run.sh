#!/usr/bin/env bash
# Reproduces claims of the papers with small models: trains the models of a table or figure, and writes docs/papers/NAME.md with
# the paper's figures next to the measured ones. After Ctrl-C at any point, the same command resumes; after `next`, the printed one.
#   scripts/papers/run.sh NAME … [--minutes M] [--seeds 3] [--quick]    --help lists the names and all options
#   scripts/papers/run.sh next --hours H                                the first experiments that are to run, up to H core-hours
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${LYCEUM_PYTHON:-$here/../../.venv/bin/python}
"$python" -c 'import h5py, matplotlib' 2>/dev/null || { echo "run.sh: needs h5py and matplotlib: scripts/install-deps.sh installs them" >&2; exit 1; }
exec "$python" "$here/main.py" "$@"
