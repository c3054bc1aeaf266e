#!/usr/bin/env bash
# Runs clang-tidy (configuration: .clang-tidy) over sources, with the compile commands of build/cpu.
#   scripts/tidy.sh              files changed since the branch left main, and uncommitted ones
#   scripts/tidy.sh PATH ...     these files, or all .cpp files under these folders
# Exit code 1 if there is a finding. Needs clang-tidy 16 or newer (older ones lack std::source_location):
#   apt-get install clang-tidy-19
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tool=$(compgen -c run-clang-tidy- | grep -E -- '-(1[6-9]|[2-9][0-9])$' | sort -V | tail -n 1 || true)
[[ -n $tool ]] || { echo "tidy.sh: needs clang-tidy 16 or newer: apt-get install clang-tidy-19" >&2; exit 1; }
[[ -f build/cpu/compile_commands.json ]] || cmake --preset cpu >/dev/null

if (($#)); then
  mapfile -t files < <(git ls-files -- "$@" | grep '\.cpp$' || true)
else
  base=$(git merge-base HEAD main 2>/dev/null || echo HEAD)
  mapfile -t files < <({ git diff --name-only --diff-filter=d "$base" -- '*.cpp'
                         git ls-files --others --exclude-standard -- '*.cpp'; } | sort -u)
fi
((${#files[@]})) || { echo "tidy.sh: no .cpp file to check"; exit 0; }

# Anchored patterns, since run-clang-tidy takes regular expressions that it searches in absolute paths.
patterns=()
for file in "${files[@]}"; do
  escaped=$(printf '%s' "$PWD/$file" | sed 's/[][\.*^$+?(){}|]/\\&/g')
  patterns+=("^$escaped\$")
done

# clang has no omp.h: use that of g++.
headers=build/cpu/tidy-headers
mkdir -p "$headers"
ln -sf "$(g++ -print-file-name=include/omp.h)" "$headers/omp.h"

"$tool" -quiet -p build/cpu -extra-arg="-isystem$PWD/$headers" "${patterns[@]}"
