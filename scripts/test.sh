#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test:
#   - optimised: unit tests of numerical code, multi-rank, end to end, Slurm, checks of the sources. With a CUDA
#     toolkit this is the build for GPUs (preset cuda, which also runs on CPUs), else that for CPUs (preset cpu),
#   - under AddressSanitizer and UndefinedBehaviorSanitizer (preset cpu-debug): unit tests, and everything that needs a GPU,
#     which the CPU emulates there; their names begin with "sanitized".
# Fails when a step fails, when no test ran, or when a test was skipped or is disabled. Without a GPU, tests that
# need one are counted as not run; without AVX-512, so is the test of oneDNN's bf16 products.
#
#   scripts/test.sh [--quick] [--cuda | --no-cuda] [--once] [--filter REGEX] [--jobs N]
#     --quick          without the sanitizers; all unit tests are then in the optimised build
#     --cuda           install the CUDA toolkit with apt, and fail without one
#     --no-cuda        build for CPUs only
#     --once           build as fast as possible, for folders in which nobody builds or uses the program afterwards: more
#                      sources are compiled as one, and without a GPU here, code that is the same for all GPUs is compiled
#                      for one architecture only
#     --filter REGEX   run only the cases whose name matches, as ctest -R does, in the existing builds, and build only
#                      their programs
#     --jobs N         compilers at a time; three times as many tests (default: one per core)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
usage_error() { echo "test.sh: $1" >&2; usage >&2; exit 2; }

quick=0 once=0 cuda=auto filter='' jobs=$(nproc)
while (($#)); do
  case $1 in
    --quick) quick=1 ;;
    --once) once=1 ;;
    --cuda | --no-cuda) cuda=${1#--} ;;
    --filter) filter=${2:?--filter needs a regular expression}; shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage_error "no such option: $1" ;;
  esac
  shift
done

failed=()
heading() { printf '\n== %s (at %d s)\n' "$1" "$SECONDS"; }
step() {  # name, command...: continues after a failure, which the exit code reports
  local name=$1
  shift
  heading "$name"
  "$@" || failed+=("$name")
}
needed() {  # name, command...: ends the script if it fails
  local before=${#failed[@]}
  step "$@"
  if ((${#failed[@]} > before)); then echo "test.sh: FAILED: ${failed[*]}" >&2; exit 1; fi
}

# Threads that wait should sleep: there are more of them than cores.
export OMP_WAIT_POLICY=passive

# Sets the environment of programs with sanitizers; other programs do not read it.
sanitizers() {
  local probe=build/cpu-debug/leak-probe leaks=0 symbolizer  # LeakSanitizer needs ptrace, which some containers forbid
  needed "LeakSanitizer" clang++-19 -fsanitize=address -x c++ - -o "$probe" <<<'int main() {}'
  if ASAN_OPTIONS=detect_leaks=1 "$probe" 2>/dev/null; then leaks=1
  else echo "LeakSanitizer cannot run here (no ptrace): leaks are not checked"; fi
  export ASAN_OPTIONS=detect_leaks=$leaks:detect_stack_use_after_return=1:strict_string_checks=1
  symbolizer=$(command -v llvm-symbolizer-19) && export ASAN_SYMBOLIZER_PATH=$symbolizer  # names and lines in reports
  export LSAN_OPTIONS=suppressions=$PWD/tests/support/leaks.supp:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1
}

gpu_here() { nvidia-smi --list-gpus 2>/dev/null | grep -q . || compgen -G '/dev/nvidia[0-9]*' >/dev/null; }

avx512_here() { grep -qw avx512vl /proc/cpuinfo; }  # part of what oneDNN calls avx512_core

none_left_out() {  # JUnit report: fails if a test was left out
  local options=() preset
  gpu_here || options+=(--no-gpu)
  avx512_here || options+=(--no-avx512)
  if [[ -z $filter ]]; then
    options+=(--cases)
    for preset in "${presets[@]}"; do options+=("build/$preset/tests/reports"); done
  fi
  ctest --test-dir "$together" --show-only=json-v1 >"$together/tests.json"
  scripts/check_left_out.py "$1" "$together/tests.json" "${options[@]}"
}

# in_memory COMMAND ...: runs COMMAND with TMPDIR on a tmpfs, if this user may mount one, since tests save and sync often.
in_memory() {
  local folder=$PWD/$together/tmp
  mkdir -p "$folder"
  if ((EUID == 0)) && unshare --mount mount -t tmpfs tmpfs "$folder" 2>/dev/null; then
    TMPDIR=$folder unshare --mount bash -c 'mount -t tmpfs -o size=50% tmpfs "$TMPDIR" && exec "$@"' in_memory "$@"
  else
    "$@"
  fi
}

build() {  # preset: builds everything, or the programs that the filter selects
  local targets=()
  if [[ -n $filter ]]; then
    mapfile -t targets < <(scripts/test_targets.py "build/$1" "$filter")
    ((${#targets[@]})) || return 0
    targets=(--target "${targets[@]}")
  fi
  needed "build $1" cmake --build "build/$1" --parallel "$jobs" "${targets[@]}"
}

optimised=cpu
case $cuda in
  cuda) needed "CUDA" scripts/install-deps.sh --cuda && optimised=cuda ;;
  auto)
    if scripts/install-deps.sh --has-cuda; then optimised=cuda; else echo "no CUDA toolkit found: the GPU code is not built"; fi ;;
esac
needed "dependencies" scripts/install-deps.sh
presets=("$optimised")
if ((!quick)) && [[ -z $filter || -f build/cpu-debug/build.ninja ]]; then presets+=(cpu-debug); fi
# With two builds, unit tests that compute little run only in the sanitized one.
if ((${#presets[@]} > 1)); then unit_tests=OFF; else unit_tests=ON; fi
configured() {  # preset: succeeds if there is a build of it with the tests that this run needs
  [[ -f build/$1/build.ninja ]] &&
    { [[ $unit_tests == OFF ]] || ! grep -q '^LYCEUM_UNIT_TESTS:BOOL=OFF' "build/$1/CMakeCache.txt"; }
}
unity_factor=1 common_architecture=''
if ((once)); then
  unity_factor=2
  gpu_here || common_architecture=90a-real
fi
build_options=("-DLYCEUM_UNITY_FACTOR=$unity_factor" "-DLYCEUM_CUDA_COMMON_ARCHITECTURE=$common_architecture")
for preset in "${presets[@]}"; do
  if [[ -z $filter ]] || ! configured "$preset"; then
    needed "configure $preset" cmake --preset "$preset" -DLYCEUM_UNIT_TESTS=$unit_tests "${build_options[@]}" \
      -DLYCEUM_ODR_CHECK=$([[ $preset == "$optimised" ]] && echo ON || echo OFF)
  fi
done

# Runs ctest once for all builds, so that a test that waits leaves its cores to tests of another build. Tests of the optimised
# build often wait, for Slurm for example, so the sanitized build is compiled meanwhile, as the fixture of its tests. Its
# compilers have the lowest priority, and one slot, since they take the cores that others leave: at equal priority a message
# between ranks would wait for their time slices, which makes tests with many ranks ten times slower. For the same reason tests
# that only compute are started with nice (tests/CMakeLists.txt).
together=build/tests
rm -rf "$together" build/*/tests/reports/*.xml
mkdir -p "$together"
for preset in "${presets[@]}"; do
  echo "subdirs(\"$PWD/build/$preset\")" >>"$together/CTestTestfile.cmake"
  if [[ $preset == cpu-debug && -z $filter ]]; then
    cat >>"$together/CTestTestfile.cmake" <<EOF
add_test(sanitized.build nice -n 19 cmake --build "$PWD/build/$preset" --parallel $jobs)
set_tests_properties(sanitized.build PROPERTIES FIXTURES_SETUP sanitized.build COST 2000 TIMEOUT 7200)
EOF
  else
    build "$preset"
  fi
done
selection=()
if [[ -n $filter ]]; then
  export LYCEUM_TEST_CASES=1
  selection=(--tests-regex "$filter")
  if [[ $(ctest --test-dir "$together" --show-only "${selection[@]}") == *"Total Tests: 0"* ]]; then
    echo "test.sh: no test's name matches '$filter'; to list the names: LYCEUM_TEST_CASES=1 ctest --test-dir $together -N" >&2
    exit 1
  fi
fi
((${#presets[@]} == 1)) || sanitizers

report=$PWD/$together/tests.xml
# There are three slots per core. A test states how many it takes (PROCESSORS): one that mostly waits for Slurm takes 1, and
# three tests that compute share two cores.
step "tests" in_memory ctest --test-dir "$together" "${selection[@]}" --no-tests=error --output-on-failure \
  --parallel $((3 * jobs)) --output-junit "$report"
# From here on nothing is written to stdout, so that it ends with the summary of CTest.
if [[ -f $report ]]; then none_left_out "$report" || failed+=("tests left out"); fi
if ((${#failed[@]})); then
  echo "test.sh: FAILED: $(printf '%s, ' "${failed[@]}" | sed 's/, $//')" >&2
  exit 1
fi
