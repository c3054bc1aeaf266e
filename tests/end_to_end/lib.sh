# shellcheck shell=bash
# Functions shared by the end-to-end tests. Source this file with the test's own arguments: LYCEUM SOURCE_DIR.
# Sets $lyceum, $source and $work, a folder that is removed when the test ends. make_data writes tokens of this repository to
# $work/data. A check that fails ends the test with a line that states the expected and the actual result.
set -euo pipefail
lyceum=$(realpath "$1") source=$(realpath "$2")
. "$source/scripts/mpi-env.sh"
# The python3 on PATH may be a script that looks for Python at every start (pyenv): this is the program itself. Processes that
# get signals, and other programs that start Python, need "$python3" instead of the function.
python3=$(python3 -c 'import sys; print(sys.executable)')
python3() { "$python3" "$@"; }
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} LC_ALL=C.UTF-8
work=$(mktemp -d)
job=
stop_job() { [[ -z $job ]] || kill -KILL "$job" 2>/dev/null || true; }
trap 'stop_job; rm -rf "$work"' EXIT
export LYCEUM_CACHE=${LYCEUM_TEST_CACHE:-$work/cache}  # never the user's own, which know_peaks must not write to
# know_peaks [HOST …]: so that no start measures the peak of this machine.
know_peaks() { python3 "$source/tests/support/known_peaks.py" "$lyceum" "$LYCEUM_CACHE" "$@"; }
know_peaks
config=$work/tiny.ini
tiny=(train "--config=$config")

fail() {
  echo "FAILED: $*" >&2
  for file in out err; do
    [[ ! -s $work/$file ]] || { echo "--- last std$file:" && tail -n 15 "$work/$file"; } >&2
  done
  exit 1
}

# run COMMAND …: writes standard output to $work/out and standard error to $work/err, and sets $code to the exit code.
run() {
  code=0
  "$@" >"$work/out" 2>"$work/err" || code=$?
}

# expect CODE COMMAND …: as `run`; fails unless the exit code is CODE.
expect() {
  local wanted=$1
  shift
  run "$@"
  [[ $code == "$wanted" ]] || fail "exit code $code, not $wanted, of: $*"
}

# ranks N ARGUMENTS …: runs lyceum on N ranks.
ranks() { mpirun -n "$1" "$lyceum" "${@:2}"; }

# start N ARGUMENTS …: the same in the background as process $job, with output as of `run`.
start() {
  mpirun -n "$1" "$lyceum" "${@:2}" >"$work/out" 2>"$work/err" &
  job=$!
}

# finish: waits for $job and sets $code.
finish() {
  code=0
  wait "$job" || code=$?
  job=
}

# says out|err PATTERN: fails unless a line of the last command's output matches the extended regular expression.
says() { grep -Eq -- "$2" "$work/$1" || fail "no line of std$1 matches: $2"; }

# equal WHAT A B: fails unless A is B.
equal() { [[ $2 == "$3" ]] || fail "$1: '$2' is not '$3'"; }

# close WHAT A B TOLERANCE: fails unless A is within this relative tolerance of B. NaN never is.
close() {
  python3 -c 'import sys; a, b, t = map(float, sys.argv[1:]); sys.exit(not abs(a - b) <= t * abs(b))' "$2" "$3" "$4" ||
    fail "$1: $2 is not within $4 of $3"
}

poll=0.1  # seconds
# wait_for SECONDS COMMAND …: repeats COMMAND until it succeeds. Returns 1 if it does not within this time.
wait_for() {
  local until=$((SECONDS + $1))
  while ! "${@:2}"; do
    ((SECONDS < until)) || return 1
    sleep "$poll"
  done
}

# steps FILE: prints the records of metrics.jsonl without values that depend on a clock or the allocator, and without those
# of validation, which a run has at its end, whichever step that is.
steps() {
  python3 - "$1" <<'END'
import json, sys
for line in open(sys.argv[1]):
    record = json.loads(line)
    for key in "time", "tokens_per_second", "step_ms", "mfu", "memory_peak_bytes", "resident_peak_bytes", "valid_loss", "valid_standard_error", \
            "valid_tokens", "unigram_entropy":
        record.pop(key, None)
    print(json.dumps(record))
END
}

# metric FILE STEP KEY: prints a value of metrics.jsonl.
metric() {
  python3 - "$@" <<'END'
import json, sys
file, step, key = sys.argv[1:]
print(next(r[key] for r in map(json.loads, open(file)) if r["step"] == int(step) and key in r))
END
}

# same_weights A B: fails unless all tensors, with their moments, of two checkpoints are equal bit for bit.
same_weights() {
  expect 0 "$lyceum" checkpoint diff "$1" "$2"
  says out '^[1-9][0-9]* tensors, equal bit for bit$'
}

# write_noisy_tokens PREFIX FROM TO: writes samples of 32 tokens that follow a rule; samples 240 to 271 are noise, and samples [FROM,
# TO) are omitted. All samples begin with the same token, so the target of the last token before a gap is not changed by it.
write_noisy_tokens() {
  python3 - "$@" <<'END'
import random, struct, sys
prefix, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
noise, tokens = random.Random(1), []
for sample in range(700):
    for place in range(32):
        rule = (sample * 5 + place * (1 + sample % 3)) % 61
        token = 0 if place == 0 else noise.randrange(250) if 240 <= sample < 272 else rule
        if not first <= sample < last:
            tokens.append(token)
tokens.append(0)
open(prefix + ".bin", "wb").write(struct.pack(f"<{len(tokens)}H", *tokens))
open(prefix + ".idx", "wb").write(
    struct.pack("<9sQBQQiqqq", b"MMIDIDX\0\0", 1, 8, 1, 2, len(tokens), 0, 0, 1))
END
}
# Options of a run on these tokens, whose loss rises in the noise so that it is unsound.
noisy=("${tiny[@]}" --data.order=sequential --data.valid= --data.tokenizer= --model.vocab=256 --batch.seq_len=32
  --batch.global=4 --run.steps=120 --checkpoint.every=20 --optim.schedule=constant --optim.warmup_steps=0 --optim.lr=0.01)

make_data() {
  "$lyceum" tokenize --input "$source/docs" --input "$source/apps" --input "$source/lib/core" --vocab 384 \
    --model "$work/data/tokenizer.model" --output "$work/data/train" --valid "$work/data/valid" --valid-fraction 0.1 \
    --sample-mb 1 --threads 2 >"$work/out" 2>"$work/err" || fail "lyceum tokenize"
  cat >"$config" <<END
[run]
dir = $work/run
steps = 12
log_every = 1
device = cpu
threads = 1
[data]
train = $work/data/train
valid = $work/data/valid
tokenizer = $work/data/tokenizer.model
[batch]
global = 8
seq_len = 32
[model]
vocab = 384
layers = 3
hidden = 32
heads = 2
first_dense_layers = 1
init_std = 0.02
[moe]
experts = 8
shared_experts = 1
top_k = 2
expert_hidden = 24
[balance]
expert = 0.01
[optim]
lr = 3e-3
warmup_steps = 3
[eval]
batches = 2
[checkpoint]
every = 5
keep = 0
[routing]
every = 4
END
}
