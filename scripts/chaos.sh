#!/usr/bin/env bash
# Kills, signals and breaks small training runs at random for some minutes and resumes them each time; then looks whether
# they came to where undisturbed runs come. tests/faults/chaos.py tells what is done and compared.
#
#   scripts/chaos.sh --minutes N [--seed S] [--gpu-stand-in PROGRAM]
#     --minutes N               how long
#     --seed S                  of the disturbances (default: a new one, which is printed)
#     --gpu-stand-in PROGRAM    runs this lyceum of a sanitized build instead, for whose GPU the CPU stands in
#
# Needs a build: build/cuda or build/cpu, LYCEUM_BUILD names another. Exit code 1 on any failure; the runs then stay.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
(($#)) || { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
for build in "${LYCEUM_BUILD:-build/cuda}" build/cpu; do
  [[ -f $build/tests/fault_shim.so ]] || continue
  exec python3 tests/faults/chaos.py "$build/apps/lyceum" "$build/tests/fault_shim.so" "$@"
done
echo "chaos.sh: no fault_shim.so in ${LYCEUM_BUILD:-build/cuda} or build/cpu: cmake --build FOLDER --target fault_programs" >&2
exit 2
