#!/usr/bin/env bash
# Trains a small mixture-of-experts language model on a fresh machine: installs what is missing, builds, tokenises text
# from this machine, trains on two MPI ranks, and reports.
#
#   scripts/quickstart.sh [--fresh] [PATH ...] [-- --section.key=value ...]
#     PATH      folders or files of text to learn from (default: /usr/include, or /usr/share without it)
#     --fresh   remove runs/quickstart, the result of an earlier run, and start over
#     --        the arguments after this are passed to `lyceum train`
#
# In a clone it works in the clone. As share/lyceum/quickstart.sh of an installation it uses the installed program and
# works in the current folder.
#
# After Ctrl-C at any point, the same command resumes where it stopped. During training the first Ctrl-C saves a
# checkpoint (exit code 75), a second one stops at once and loses the steps since the last checkpoint.
set -euo pipefail
started_in=$PWD
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/mpi-env.sh
. "$here/mpi-env.sh"
if [[ -f $here/../CMakeLists.txt ]]; then
  cd "$here/.."
  installed=0 lyceum=build/cpu/apps/lyceum tools=scripts configs=configs
else
  installed=1 lyceum=$(realpath "$here/../../bin/lyceum") tools=$here configs=$here/configs
fi

run=runs/quickstart
precision=f32
if grep -qw amx_bf16 /proc/cpuinfo; then precision=bf16; fi  # without AMX, bf16 is slower than f32

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
die() { phase=''; echo "quickstart.sh: $1" >&2; exit "${2:-1}"; }

fresh=0 inputs=() train_options=()
while (($#)); do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --fresh) fresh=1 ;;
    --) shift; train_options=("$@"); break ;;
    -*) usage >&2; die "no such option: $1; options for training follow --" 2 ;;
    *)
      path=$(cd "$started_in" && realpath -e -- "$1" 2>/dev/null) || die "no such file or folder: $1" 3
      inputs+=("$path")
      ;;
  esac
  shift
done
if ((!${#inputs[@]})); then
  inputs=(/usr/include)
  [[ -d ${inputs[0]} ]] || inputs=(/usr/share)  # no compiler here
fi

phase=''
bold='' plain=''
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi
heading() {
  phase=$1
  printf '\n%s%s%s  (%d:%02d)\n' "$bold" "$1" "$plain" $((SECONDS / 60)) $((SECONDS % 60))
}
on_exit() {
  local code=$?
  if ((code)) && [[ -n $phase ]]; then
    printf '\nStopped in "%s" (exit code %d). The same command resumes from here.\n' "$phase" "$code" >&2
  fi
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

build() {
  [[ -f build/cpu/build.ninja ]] || cmake --preset cpu >/dev/null
  cmake --build build/cpu --target lyceum
}

tokenise() {
  local made_from=$run/data/made-from
  if [[ -f $made_from ]]; then
    if [[ $(<"$made_from") == "$(printf '%s\n' "${inputs[@]}")" ]]; then
      echo "already done"
      return
    fi
    die "$run was made from $(paste -sd' ' "$made_from"); --fresh removes it and starts over with ${inputs[*]}" 2
  fi
  mkdir -p "$run/data"
  "$lyceum" tokenize --input "${inputs[@]}" --vocab 4096 --model "$run/data/tokenizer.model" \
    --output "$run/data/train" --valid "$run/data/valid" --valid-fraction 0.05
  printf '%s\n' "${inputs[@]}" >"$made_from"
}

# In a separate process group, so that Ctrl-C reaches only this script, which then requests a checkpoint first.
train() {
  local code=0 job
  set -m
  mpirun -n 2 "$lyceum" train --config "$configs/quickstart.ini" --run.precision="$precision" "${train_options[@]}" \
    </dev/null &
  job=$!
  set +m
  # shellcheck disable=SC2064  # the process is known now
  trap "stop_training $job" INT TERM HUP
  while kill -0 "$job" 2>/dev/null; do wait "$job" || true; done  # wait also returns when a signal is received
  wait "$job" || code=$?
  trap 'exit 130' INT
  trap 'exit 143' TERM
  if ((code == 75)); then
    phase=''
    echo "Stopped after saving a checkpoint. The same command resumes from it."
  fi
  return "$code"
}

asked_to_stop=0
stop_training() {  # process
  if ((asked_to_stop++ == 0)); then
    echo "Saving a checkpoint before stopping; Ctrl-C again stops at once."
    kill -USR1 "$1" 2>/dev/null || true
  else
    kill -TERM "$1" 2>/dev/null || true
  fi
}

if ((fresh)); then rm -rf "$run"; fi

if ((!installed)); then
  heading "1/6  Installing what is missing"
  scripts/install-deps.sh --build

  heading "2/6  Building"
  build
fi

heading "3/6  Tokenising ${inputs[*]}"
tokenise

heading "4/6  Training a mixture of 1 shared and 15 routed experts on two ranks"
train

heading "5/6  How the router used its experts"
"$lyceum" routing report "$run/routing.h5" --html "$run/report.html" --metrics "$run/metrics.jsonl"
echo "The same with the loss curve, as a page: $PWD/$run/report.html"

heading "6/6  What the model writes after \"#include <\""
"$lyceum" generate --checkpoint "$run/checkpoints" --prompt '#include <' --tokens 100

heading "Done"
phase=''
cat <<NEXT
Two commands to try next, in $PWD:

  # more text, with more variation
  $lyceum generate --checkpoint $run/checkpoints --prompt "struct node {" --tokens 200 --temperature 0.9

  # continue to 1,000 steps
  . $tools/mpi-env.sh && mpirun -n 2 $lyceum train --config $configs/quickstart.ini \\
    --run.precision=$precision --run.steps=1000
NEXT
