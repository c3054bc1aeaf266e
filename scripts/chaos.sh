#!/usr/bin/env bash
# Kills, signals and disturbs small training runs at random for some minutes, resumes them each time, and compares the
# results with undisturbed runs. See tests/faults/chaos.py for details.
#
#   scripts/chaos.sh --minutes N [--seed S] [--gpu-stand-in PROGRAM]
#     --minutes N               duration
#     --seed S                  seed of the disturbances (default: a new one, which is printed)
#     --gpu-stand-in PROGRAM    run this lyceum of a sanitized build, in which the CPU emulates a GPU
#
# Needs a build: build/cuda or build/cpu, or the one that LYCEUM_BUILD names. Exit code 1 on any failure; the runs are
# then kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
(($#)) || { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
for build in "${LYCEUM_BUILD:-build/cuda}" build/cpu; do
  [[ -f $build/tests/fault_shim.so ]] || continue
  exec python3 tests/faults/chaos.py "$build/apps/lyceum" "$build/tests/fault_shim.so" "$@"
done
echo "chaos.sh: no fault_shim.so in ${LYCEUM_BUILD:-build/cuda} or build/cpu: cmake --build FOLDER --target fault_programs" >&2
exit 2
