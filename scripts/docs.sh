#!/usr/bin/env bash
# Builds the documentation as a site, build/site/index.html, and fails if a link is broken.
#   scripts/docs.sh [--serve]     --serve: serve it at http://127.0.0.1:8000, with reload on changes, until Ctrl-C
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in
  '') command=(build --strict --quiet) ;;
  --serve) command=(serve) ;;
  *) sed -n '2,3s/^# \{0,1\}//p' "$0"; [[ $1 == --help ]]; exit ;;
esac
python=${LYCEUM_PYTHON:-.venv/bin/python}
"$python" -c 'import mkdocs' 2>/dev/null || { echo "docs.sh: needs mkdocs: scripts/install-deps.sh installs it" >&2; exit 1; }
"$python" -m mkdocs "${command[@]}"
if [[ ${1:-} == '' ]] && grep -rl --include='*.html' '```' build/site; then
  echo "docs.sh: these pages show a fence of a code block as text" >&2
  exit 1
fi
