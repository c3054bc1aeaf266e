#!/usr/bin/env bash
# Searches for inputs that a parser of the program neither accepts nor refuses cleanly (tests/faults/fuzz). Builds the targets
# with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer (preset fuzz), runs them, and prints a table, one line per
# target when it ends. Inputs that reach additional code are packed into the corpus. Fails if there are finds; these are in
# build/fuzz/finds.
#
#   scripts/fuzz.sh [--minutes N] [--executions N] [--jobs N] [TARGET ...]
#     --minutes N      time per target (default: 5)
#     --executions N   executions per target, if reached sooner
#     --jobs N         targets at a time (default: as many as there are cores)
#     TARGET           a file tests/faults/fuzz/TARGET.cpp; default: all of them
# Needs clang: scripts/install-deps.sh --fuzz installs it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
usage_error() { echo "fuzz.sh: $1" >&2; usage >&2; exit 2; }

sources=tests/faults/fuzz build=build/fuzz
corpora=$build/$sources/corpus  # unpacked by the build
minutes=5 executions=0 jobs=$(nproc) targets=()
while (($#)); do
  case $1 in
    --minutes) minutes=${2:?--minutes needs a number}; shift ;;
    --executions) executions=${2:?--executions needs a number}; shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    --help | -h) usage; exit 0 ;;
    -*) usage_error "no such option: $1" ;;
    *) [[ -f $sources/$1.cpp ]] || usage_error "no such target: $sources/$1.cpp"; targets+=("$1") ;;
  esac
  shift
done
if ((${#targets[@]} == 0)); then
  for source in "$sources"/*.cpp; do
    name=$(basename "$source" .cpp)
    [[ $name == replay_main || $name == support ]] || targets+=("$name")
  done
fi
command -v clang++-19 >/dev/null || { echo "fuzz.sh: clang++-19 is missing: run scripts/install-deps.sh --fuzz" >&2; exit 1; }
if [[ ! -f $build/build.ninja ]] || ! grep -q '^CMAKE_CXX_COMPILER:.*clang++-19$' "$build/CMakeCache.txt"; then
  cmake --fresh --preset fuzz >/dev/null || exit
fi
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}" || exit

symbolizer=$(command -v llvm-symbolizer-19) && export ASAN_SYMBOLIZER_PATH=$symbolizer  # names and lines in reports
# Options for the search: no stacks of allocations, and small tables of freed memory and returned frames, since every exception
# traverses these. A find is run again with the default sizes, for a complete report.
thorough=detect_leaks=0:detect_stack_use_after_return=1
fast=$thorough:malloc_context_size=0:quarantine_size_mb=2:max_uar_stack_size_log=16
export UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1
[[ -n ${TMPDIR:-} || ! -w /dev/shm ]] || export TMPDIR=/dev/shm  # targets write their input to files

limited() {  # options of the sanitizer, target, arguments: runs a target with limits
  ASAN_OPTIONS=$1 "$build/$sources/fuzz_$2" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=2100 "${@:3}"
}
statistic() { sed -n "s/^stat::$1: *//p" "$2" | tail -1; }

# Prints the bytes of the longest inputs of a target: a quarter more than its longest seed, except for seeds with deep recursion.
longest_input() {  # target
  local longest
  longest=$(find "$corpora/$1" -type f -size -16k -printf '%s\n' | sort -n | tail -1)
  echo $((longest * 5 / 4 > 4096 ? longest * 5 / 4 : 4096))
}

# Runs a target until its time or its executions are used up, and starts it again after each find. Sets runs and finds.
fuzz() {  # target
  local target=$1 log=$build/logs/$1.txt end=$((SECONDS + minutes * 60)) most_finds=5 interrupted=72
  local options left code report input
  runs=0 finds=0
  mkdir -p "$build/corpus/$target" "$build/finds" "$build/logs"
  while ((SECONDS < end && finds < most_finds && (executions == 0 || runs < executions))); do
    left=$((end - SECONDS))
    options=(-max_total_time=$((left > 0 ? left : 1)) -detect_leaks=0 -print_final_stats=1 -max_len="$(longest_input "$target")"
      -artifact_prefix="$build/finds/$target-")
    ((executions == 0)) || options+=(-runs=$((executions - runs)))
    limited "$fast" "$target" "${options[@]}" "$build/corpus/$target" "$corpora/$target" >"$log" 2>&1
    code=$?
    runs=$((runs + $(statistic number_of_executed_units "$log" | grep . || echo 0)))
    ((code == 0 || code == interrupted)) && break
    finds=$((finds + 1)) report=$build/finds/$target-$finds.log
    mv "$log" "$report"
    input=$(sed -n 's/^.*Test unit written to //p' "$report" | tail -1)
    [[ ! -f $input ]] || limited "$thorough" "$target" "$input" >>"$report" 2>&1
  done
}

# Adds inputs that reach more code than the named files to the archive, smallest first, up to the limits.
minimise() {  # target
  local target=$1 corpus=$corpora/$1 fresh=$build/merged/$1 file bytes most_files=30 most_bytes=100000
  rm -rf "$fresh"
  mkdir -p "$fresh"
  # Only named files: those that a fuzzer found are named by their digest.
  find "$corpus" -type f ! -regex '.*/[0-9a-f]*' -exec cp -t "$fresh" {} +
  limited "$fast" "$target" -merge=1 -use_counters=0 "$fresh" "$corpus" "$build/corpus/$target" \
    >"$build/logs/$target-merge.txt" 2>&1 || return
  find "$corpus" -type f -regex '.*/[0-9a-f]*' -delete
  find "$fresh" -type f -regex '.*/[0-9a-f]*' -printf '%s %p\n' | sort -n | while read -r bytes file; do
    (($(find "$corpus" -type f | wc -l) < most_files && $(du -sb --apparent-size "$corpus" | cut -f1) + bytes < most_bytes)) || break
    cp "$file" "$corpus"
  done
  "$sources/corpus.py" pack "$corpora" "$target"
}

# Fuzzes a target and prints its line of the table.
row() {  # target
  local target=$1 begin=${EPOCHREALTIME/[.,]/} microseconds
  fuzz "$target"
  microseconds=$((${EPOCHREALTIME/[.,]/} - begin))
  minimise "$target" || echo "fuzz.sh: the corpus of $target is unchanged: see $build/logs/$target-merge.txt" >&2
  printf '%-15s %12d %9d %13d %8d %6d\n' "$target" "$runs" $((microseconds / 1000000)) $((runs * 1000000 / microseconds)) \
    "$(find "$corpora/$target" -type f | wc -l)" "$finds"
}

export sources corpora build minutes executions fast thorough
export -f limited statistic longest_input fuzz minimise row
printf '%-15s %12s %9s %13s %8s %6s\n' target executions seconds executions/s corpus finds
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'row {}' | tee "$build/table.txt" || exit
all=$(awk '{ finds += $NF } END { print finds + 0 }' "$build/table.txt")
((all == 0)) || { echo "fuzz.sh: $all finds in $build/finds: fix them, and add their input to the corpus as find-WHAT" >&2; exit 1; }
