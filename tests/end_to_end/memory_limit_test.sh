#!/usr/bin/env bash
# Usage: memory_limit_test.sh LYCEUM SOURCE_DIR. The memory of a process is as planned. A run that does not fit in its control
# group is refused, and one that meets the limit although its plan fits ends with a message. Where the test may not create
# control groups, Slurm's limit stands for that of a group, and only the last part is left out.
. "$(dirname "$0")/lib.sh" "$@"
make_data
keys=(--model.layers=6 --model.hidden=128 --model.heads=4 --batch.seq_len=256 --batch.global=32 --run.steps=3 --eval.every=0
  --model.recompute=none --moe.experts=4 --moe.top_k=4 --moe.expert_hidden=64)

# planned RANKS KEY …: prints a number of bytes from the plan.
planned() {
  "$lyceum" plan "--config=$config" "${keys[@]}" --ranks "$1" --json "${@:3}" >"$work/plan" || fail "lyceum plan"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["memory_bytes_per_rank"][sys.argv[2]])' "$work/plan" "$2"
}

# --- resident memory against the plan, with the allocator's peak as planned
for ranks in 1 2; do
  expect 0 ranks $ranks "${tiny[@]}" "${keys[@]}" "--run.dir=$work/run-$ranks"
  close "resident memory on $ranks ranks" "$(metric "$work/run-$ranks/metrics.jsonl" 3 resident_peak_bytes)" \
    "$(planned $ranks resident)" 0.2
  close "the allocator's peak on $ranks ranks" "$(metric "$work/run-$ranks/metrics.jsonl" 3 memory_peak_bytes)" \
    "$(planned $ranks total)" 0.1
done

# --- the start check: the allocator's memory alone would fit
total=$(planned 1 total)
export SLURM_MEM_PER_NODE=$((total / 1024 / 1024 + 8))
expect 2 "$lyceum" "${tiny[@]}" "${keys[@]}" "--run.dir=$work/refused"
unset SLURM_MEM_PER_NODE
says err "^lyceum train: rank 0 needs .*, process .*\), but each of this machine's 1 ranks has only .*: set "
[[ ! -e $work/refused/metrics.jsonl ]] || fail "a run was refused but trained"

# --- a control group in which others take memory, too
mount=/sys/fs/cgroup group=
if [[ -d $mount/memory ]]; then mount=$mount/memory limit=memory.limit_in_bytes; else limit=memory.max; fi
new=$mount/lyceum-test-$$
if mkdir "$new" 2>/dev/null; then
  group=$new
  leave() { stop_job; sleep 0.2; rmdir "$group" 2>/dev/null || true; rm -rf "$work"; }
  trap leave EXIT
  [[ -w $group/$limit ]] || group=
fi
if [[ -z $group ]]; then
  echo "no control group can be created here: the last part is left out"
  exit 0
fi
inside() { bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"; }
resident=$(planned 1 resident)
echo $((resident + 100000000)) >"$group/$limit"
bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" \
  "$python3" -c 'import time; memory = bytearray(160_000_000); print("holds", flush=True); time.sleep(600)' >"$work/holder" &
job=$!
wait_for 60 grep -q holds "$work/holder" || fail "the other process does not start"
expect 4 inside "$lyceum" "${tiny[@]}" "${keys[@]}" "--run.dir=$work/met"
says err "^lyceum train: out of memory: cannot allocate .* for .*the control group .* MB left of .*planned for each of the 1 ranks"
equal "lines of stderr" "$(wc -l <"$work/err")" 1
stop_job
wait "$job" 2>/dev/null || true
job=
# What the plan says is enough.
echo $((resident * 21 / 20)) >"$group/$limit"
expect 0 inside "$lyceum" "${tiny[@]}" "${keys[@]}" "--run.dir=$work/enough"
