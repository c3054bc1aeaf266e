#!/usr/bin/env bash
# Searches for inputs that a parser of the program neither accepts nor refuses cleanly (tests/faults/fuzz): builds the targets
# with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer (preset fuzz), runs one after another, prints a table, and
# keeps the inputs that reach more of the code as corpus. Fails if there are finds, which are in build/fuzz/finds.
#
#   scripts/fuzz.sh [--minutes N] [--executions N] [TARGET ...]
#     --minutes N      time per target (default: 5)
#     --executions N   executions per target, if reached sooner
#     TARGET           a file tests/faults/fuzz/TARGET.cpp; default: all of them
# Needs clang: scripts/install-deps.sh --fuzz installs it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
usage_error() { echo "fuzz.sh: $1" >&2; usage >&2; exit 2; }

sources=tests/faults/fuzz build=build/fuzz
most_files=30 most_bytes=100000  # of a target's corpus that is committed
most_finds=5                     # then the next target's turn
minutes=5 executions=0 targets=()
while (($#)); do
  case $1 in
    --minutes) minutes=${2:?--minutes needs a number}; shift ;;
    --executions) executions=${2:?--executions needs a number}; shift ;;
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
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
export OMP_NUM_THREADS=1
[[ -n ${TMPDIR:-} || ! -w /dev/shm ]] || export TMPDIR=/dev/shm  # targets write their input to files
limits=(-timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=2048)

statistic() { sed -n "s/^stat::$1: *//p" "$2" | tail -1; }

# Runs a target until its time or its executions are spent, again after each find. Sets runs, seconds, finds.
fuzz() {  # target
  local target=$1 log=$build/logs/$1.txt end=$((SECONDS + minutes * 60)) begin=$SECONDS code options left
  runs=0 finds=0
  mkdir -p "$build/corpus/$target" "$build/finds" "$build/logs"
  while ((SECONDS < end && finds < most_finds && (executions == 0 || runs < executions))); do
    left=$((end - SECONDS))
    options=("${limits[@]}" -max_total_time=$((left > 0 ? left : 1)) -print_final_stats=1 -max_len=16384
      -artifact_prefix="$build/finds/$target-")
    ((executions == 0)) || options+=(-runs=$((executions - runs)))
    "$build/$sources/fuzz_$target" "${options[@]}" "$build/corpus/$target" "$sources/corpus/$target" >"$log" 2>&1
    code=$?
    runs=$((runs + $(statistic number_of_executed_units "$log" | grep . || echo 0)))
    ((code == 0)) && break
    finds=$((finds + 1))
    mv "$log" "$build/finds/$target-$finds.log"
  done
  seconds=$((SECONDS - begin))
}

# Puts into the committed corpus inputs that reach code that its named files do not, smallest first, up to the limits.
minimise() {  # target
  local target=$1 corpus=$sources/corpus/$1 fresh=$build/merged/$1 file bytes
  rm -rf "$fresh"
  mkdir -p "$fresh"
  find "$corpus" -type f ! -regex '.*/[0-9a-f]*' -exec cp -t "$fresh" {} +  # fuzzers name files by their digest
  "$build/$sources/fuzz_$target" "${limits[@]}" -merge=1 -use_counters=0 "$fresh" "$corpus" "$build/corpus/$target" \
    >"$build/logs/$target-merge.txt" 2>&1 || return
  find "$corpus" -type f -regex '.*/[0-9a-f]*' -delete
  find "$fresh" -type f -regex '.*/[0-9a-f]*' -printf '%s %p\n' | sort -n | while read -r bytes file; do
    (($(find "$corpus" -type f | wc -l) < most_files && $(du -sb --apparent-size "$corpus" | cut -f1) + bytes < most_bytes)) || break
    cp "$file" "$corpus"
  done
}

all=0
printf '%-15s %12s %13s %8s %6s\n' target executions executions/s corpus finds
for target in "${targets[@]}"; do
  fuzz "$target"
  minimise "$target" || echo "fuzz.sh: the corpus of $target is unchanged: see $build/logs/$target-merge.txt" >&2
  all=$((all + finds))
  printf '%-15s %12d %13d %8d %6d\n' "$target" "$runs" $((runs / (seconds > 0 ? seconds : 1))) \
    "$(find "$sources/corpus/$target" -type f | wc -l)" "$finds"
done
((all == 0)) || { echo "fuzz.sh: $all finds in $build/finds: fix them, and add their input to the corpus as find-WHAT" >&2; exit 1; }
