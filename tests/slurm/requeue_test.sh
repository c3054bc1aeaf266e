#!/usr/bin/env bash
# Usage: requeue_test.sh LYCEUM SOURCE_DIR. A four-node job that is asked to stop, preempted or out of time is requeued and
# continues, and ends with the weights of the undisturbed run.
. "$(dirname "$0")/lib.sh" "$@"
export LYCEUM_CACHE=$work/cache  # which only know_peaks has written to
know_peaks "${nodes[@]}"
make_data
start_lab
job=(--nodes=4 --ntasks-per-node=1)
model=("$config" --parallel.expert=4 --optim.schedule=constant --run.log_every=100)
run=("${model[@]}" --run.steps=300 --checkpoint.every=125)
last=checkpoints/step-00000300

# --- undisturbed
submit "${job[@]}" "$scripts/train.sbatch" "${run[@]}" "--run.dir=$work/calm"
complete 240 "$id"
expect_log "$id" "^lyceum job $id: start 1 on n\[1-4\]"
expect_log "$id" "^job +Slurm job $id \(lyceum, partition low\) on n\[1-4\]$"
expect_log "$id" "^peak .* measured on "
expect_log "$id" "^rank +host +local +cores +threads +memory +device$"
for rank in 0 1 2 3; do expect_log "$id" "^ +$rank +n$((rank + 1)) +0 +[0-9,-]+ +1 +[0-9.]+ GB +cpu$"; done
[[ ! -e $work/calm/LOCK ]] || fail "the lock of a complete run was not removed"

# --- asked to stop twice, and again during the second start
submit "${job[@]}" "$scripts/train.sbatch" "${run[@]}" "--run.dir=$work/asked"
reach "$id" asked 60
ask_to_stop "$id"
ask_to_stop "$id"
wait_for 60 log_says "$id" "^lyceum job $id: start 2" || fail_job "$id" "not requeued"
ask_to_stop "$id"
complete 240 "$id"
expect_log "$id" "^stopped on request after step [0-9]+: run the same command to continue"
expect_log "$id" "^resumed .*/step-0000"
expect_log "$id" "^job +Slurm job $id .*, restart 2$"
equal "restarts of the job that was asked to stop" "$(restarts "$id")" 2
same_weights "$work/calm/$last" "$work/asked/$last"
equal "steps in its metrics" "$(steps "$work/asked/metrics.jsonl" | wc -l)" 300
diff <(steps "$work/calm/metrics.jsonl") <(steps "$work/asked/metrics.jsonl") >"$work/out" || fail "metrics differ"
run "$lyceum" checkpoint show "$work/asked/$last"
says out "^job +Slurm job $id \(lyceum, partition low\) on n\[1-4\], restart 2$"
equal "attributes" "$("$LYCEUM_PYTHON" -c "
import h5py
a = h5py.File('$work/asked/$last/index.h5').attrs
print(a['slurm_job_id'], a['slurm_restart_count'], a['slurm_job_nodelist'])")" "$id 2 n[1-4]"

# --- preempted by a partition of higher priority
submit "${job[@]}" "$scripts/train.sbatch" "${run[@]}" "--run.dir=$work/preempted"
reach "$id" preempted 60
low=$id
# Its ranks rest until Slurm has sent the signal, since the run may take only seconds.
kill -STOP $(ranks_of preempted) || fail_job "$low" "has no ranks"
submit "${job[@]}" --partition=high --exclusive --wrap="sleep 1"
signalled() { [[ $(scontrol show job "$low") == *PreemptTime=2* ]]; }
wait_for 60 signalled || fail_job "$low" "not preempted"
sleep 1
kill -CONT $(ranks_of preempted)
complete 240 "$id"
complete 240 "$low"
expect_log "$low" "^stopped on request after step"
equal "restarts of the preempted job" "$(restarts "$low")" 1
same_weights "$work/calm/$last" "$work/preempted/$last"

# --- started by srun
submit "${job[@]}" "$scripts/train-srun.sbatch" "${run[@]}" "--run.dir=$work/by-srun"
reach "$id" by-srun 60
ask_to_stop "$id"
complete 240 "$id"
expect_log "$id" "^stopped on request after step"
equal "restarts of the job with srun" "$(restarts "$id")" 1
same_weights "$work/calm/$last" "$work/by-srun/$last"

# --- a chain of jobs that cannot be requeued: the second job completes the run, the remaining ones are cancelled
run "$scripts/chain.sh" 4 "${job[@]}" "$scripts/train.sbatch" "${run[@]}" "--run.dir=$work/chain"
equal "exit code of chain.sh" "$code" 0
read -ra chain <<<"$(sed -n 's/^job [1-4] of 4: //p' "$work/out" | tr '\n' ' ')"
reach "${chain[0]}" chain 60
ask_to_stop "${chain[0]}"
ends_as FAILED 120 "${chain[0]}"
complete 240 "${chain[1]}"
dropped() { in_state "$1" CANCELLED; }
for left in "${chain[@]:2}"; do wait_for 120 dropped "$left" || fail_job "$left" "what is left of the chain is not dropped"; done
equal "restarts in the chain" "$(restarts "${chain[0]}")" 0
same_weights "$work/calm/$last" "$work/chain/$last"

# --- out of time: Slurm checks every 30 s, so the signal comes in the first half of the one minute. The run gets its final
# number of steps after its first start.
cp "$config" "$work/timed.ini"
timed=("$work/timed.ini" "${model[@]:1}" "--run.dir=$work/timed" --checkpoint.every=100000)
sed -i 's/^steps = .*/steps = 1000000/' "$work/timed.ini"
submit "${job[@]}" --time=1 --signal=B:USR1@60 "$scripts/train.sbatch" "${timed[@]}"
out_of_time=$id
# The same without a signal: the run continues from its last checkpoint.
cp "$work/timed.ini" "$work/unwarned.ini"
submit "${job[@]}" --time=1 --signal=B:URG@1 "$scripts/train.sbatch" "$work/unwarned.ini" "${model[@]:1}" \
  "--run.dir=$work/unwarned" --checkpoint.every=50
unwarned=$id
wait_for 90 log_says "$out_of_time" "^lyceum job $out_of_time: requeued" || fail_job "$out_of_time" "was not out of time"
steps=$(($(steps_done timed) + 50))
sed -i "s/^steps = .*/steps = $steps/" "$work/timed.ini"
reach "$unwarned" unwarned 60
# Until Slurm ends the job, its ranks leave the cores to other tests. On a busy machine it may have ended already.
kill -STOP $(ranks_of unwarned) 2>/dev/null || true
wait_for 120 log_says "$unwarned" "^lyceum job $unwarned: requeued" || fail_job "$unwarned" "was not out of time"
sed -i "s/^steps = .*/steps = $(($(steps_done unwarned) + 50))/" "$work/unwarned.ini"
complete 240 "$unwarned"
expect_log "$unwarned" "^resumed .*/step-"
complete 240 "$out_of_time"
(($(restarts "$out_of_time") >= 1)) || fail_job "$out_of_time" "was not requeued"
submit "${job[@]}" "$scripts/train.sbatch" "${timed[@]}" "--run.dir=$work/untimed"
complete 240 "$id"
same_weights "$work"/{timed,untimed}/checkpoints/"step-$(printf %08d "$steps")"
