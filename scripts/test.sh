#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test:
#   1. unit tests under AddressSanitizer and UndefinedBehaviorSanitizer, and CUDA's kernels with them, which the CPU runs
#      there (preset cpu-debug),
#   2. training and messages on a GPU, for which the CPU stands in (preset cuda-on-host),
#   3. all tests, optimised: unit, multi-rank, end to end, order of includes, formatting. Where the CUDA toolkit is, this is
#      the build for GPUs (preset cuda, which runs on CPUs too), else that for CPUs (preset cpu).
# Fails when a step fails, when no test ran, or when a test was skipped or is disabled. Tests that need a GPU may be left out
# where none is: they are counted, and count as not run.
#
#   scripts/test.sh [--quick] [--cuda | --no-cuda] [--filter REGEX] [--jobs N]
#     --quick          only the third
#     --cuda           installs the CUDA toolkit where apt has it, and fails without one
#     --no-cuda        builds for CPUs only
#     --filter REGEX   runs only the tests whose name matches, as ctest -R does
#     --jobs N         compilers, and half the tests, at a time (default: one a core)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
usage_error() { echo "test.sh: $1" >&2; usage >&2; exit 2; }

quick=0 cuda=auto filter='' jobs=$(nproc)
while (($#)); do
  case $1 in
    --quick) quick=1 ;;
    --cuda | --no-cuda) cuda=${1#--} ;;
    --filter) filter=${2:?--filter needs a regular expression}; shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
selection=() unit_selection=(--no-tests=error)
if [[ -n $filter ]]; then
  selection=(--tests-regex "$filter")
  unit_selection=("${selection[@]}" --no-tests=ignore)  # the filter may name no unit test
fi

failed=()
heading() { printf '\n== %s (at %d s)\n' "$1" "$SECONDS"; }
step() {  # name, command...: goes on after a failure, which the exit code remembers
  local name=$1
  shift
  heading "$name"
  "$@" || failed+=("$name")
}
needed() {  # name, command...: nothing after it makes sense when it fails
  local before=${#failed[@]}
  step "$@"
  if ((${#failed[@]} > before)); then echo "test.sh: FAILED: ${failed[*]}" >&2; exit 1; fi
}

# Threads that wait should sleep: there are more of them than cores.
export OMP_WAIT_POLICY=passive

leak_detection() {  # prints 1 where LeakSanitizer can work; it needs ptrace, which some containers forbid
  local probe=build/cpu-debug/leak-probe
  if echo 'int main() {}' | g++ -fsanitize=address -x c++ - -o "$probe" && ASAN_OPTIONS=detect_leaks=1 "$probe" 2>/dev/null
  then echo 1; else echo 0; fi
}

# logged FOLDER WHAT ctest's options …: tests into a log, since the only CTest summary on the output is that of the main run.
# The stand-in for a GPU is always there: nothing may be skipped.
logged() {
  local log=$1/tests.log what=$2
  if ! ctest --test-dir "$1" "${@:3}" "${unit_selection[@]}" --output-on-failure >"$log" 2>&1 ||
    grep -Eq '\*\*\*(Skipped|Not Run)' "$log"; then
    grep -v ' Passed ' "$log"
    return 1
  fi
  echo "$(grep -c ' Passed ' "$log") $what"
}

sanitized_unit_tests() {
  local leaks
  leaks=$(leak_detection)
  if ((!leaks)); then echo "LeakSanitizer cannot run here (no ptrace): leaks are not looked for"; fi
  # The filter is for gpu_test, which names no cases: of its products by cuBLASLt, the stand-in's loops alone would be tested.
  GTEST_FILTER='-Gemm.*' ASAN_OPTIONS=detect_leaks=$leaks:detect_stack_use_after_return=1:strict_string_checks=1 \
    LSAN_OPTIONS=suppressions=$PWD/tests/support/leaks.supp:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1 \
    logged build/cpu-debug "tests are clean under ASan and UBSan" --label-regex '^(unit|gpu)$' \
    --exclude-regex '^repository\.|^gpu_training_test|_gpu_test|^gpu\.' --parallel "$jobs"
}

gpu_here() { nvidia-smi --list-gpus 2>/dev/null | grep -q . || compgen -G '/dev/nvidia[0-9]*' >/dev/null; }

none_left_out() {  # JUnit report of the main run
  local options=()
  gpu_here || options=(--no-gpu)
  ctest --test-dir "$build" --show-only=json-v1 >"$build/tests.json"
  scripts/check_left_out.py "$1" "$build/tests.json" "${options[@]}"
}

needed "dependencies" scripts/install-deps.sh
preset=cpu
case $cuda in
  cuda) needed "CUDA" scripts/install-deps.sh --cuda && preset=cuda ;;
  auto)
    if scripts/install-deps.sh --has-cuda; then preset=cuda; else echo "no CUDA toolkit here: the GPU's side is not built"; fi ;;
esac
build=build/$preset
needed "configure" cmake --preset $preset
needed "build" cmake --build $build --parallel "$jobs"
if ((!quick)); then
  needed "configure with sanitizers" cmake --preset cpu-debug
  needed "build with sanitizers" cmake --build build/cpu-debug --parallel "$jobs" --target sanitized_tests
  step "unit tests with sanitizers" sanitized_unit_tests
  needed "configure for the GPU's stand-in" cmake --preset cuda-on-host
  needed "build for the GPU's stand-in" cmake --build build/cuda-on-host --parallel "$jobs" --target device_tests
  step "tests on the GPU's stand-in" logged build/cuda-on-host "tests pass on the GPU's stand-in" --label-regex '^gpu$' \
    --parallel $((2 * jobs))
fi

report=$build/tests.xml
rm -f "$report"
# Two tests a core: ranks and Slurm's daemons wait for each other most of the time.
step "tests" ctest --test-dir $build "${selection[@]}" --no-tests=error --output-on-failure --parallel $((2 * jobs)) \
  --output-junit "$PWD/$report"
# From here on nothing goes to stdout, which ends with CTest's own summary.
if [[ -f $report ]]; then none_left_out "$report" || failed+=("tests left out"); fi
if ((${#failed[@]})); then
  echo "test.sh: FAILED: $(printf '%s, ' "${failed[@]}" | sed 's/, $//')" >&2
  exit 1
fi
