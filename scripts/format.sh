#!/usr/bin/env bash
# Formats every C++ and CUDA source with clang-format; --check changes nothing and fails if a file would change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t files < <(find lib apps tests benchmarks -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort)
((${#files[@]})) || { echo "format.sh: no sources found" >&2; exit 1; }

case ${1:-} in
  '') clang-format -i "${files[@]}" ;;
  --check)
    if ! report=$(clang-format --dry-run -Werror "${files[@]}" 2>&1); then
      echo "not formatted:"
      sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: .*/  \1/p' <<<"$report" | sort -u
      echo "to fix: scripts/format.sh"
      exit 1
    fi
    echo "${#files[@]} files are formatted"
    ;;
  *) echo "usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac
