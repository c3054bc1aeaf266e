#!/usr/bin/env bash
# Usage: crash_test.sh LYCEUM SOURCE_DIR. Tests a four-node job whose ranks and nodes die, two jobs with the same run
# directory, and cancelled jobs.
. "$(dirname "$0")/lib.sh" "$@"
make_data
start_lab
job=(--nodes=4 --ntasks-per-node=1)
model=("$config" --parallel.expert=4 --optim.schedule=constant --run.log_every=100 --checkpoint.every=40)
run=("${model[@]}" --run.steps=300)
last=checkpoints/step-00000300

submit "${job[@]}" "$scripts/train.sbatch" "${run[@]}" "--run.dir=$work/calm"
complete 240 "$id"

# --- a rank is killed: the others end within ten seconds, a line names the rank, and the job is requeued and continues
submit "${job[@]}" --comment=mine "$scripts/train.sbatch" "${run[@]}" "--run.dir=$work/rank"
reach "$id" rank 60
for process in $(ranks_of rank); do
  grep -zqx OMPI_COMM_WORLD_RANK=2 "/proc/$process/environ" && victim=$process
done
kill -KILL "${victim:?no process is rank 2}"
wait_for 10 log_says "$id" "^lyceum job $id: ended with code [0-9]+, see above$" ||
  fail_job "$id" "still there ten seconds after rank 2 was killed"
counted() { scontrol show job "$id" | grep -q '^ *Comment=mine; lyceum: 1 failed starts *$'; }
wait_for 10 counted || fail_job "$id" "its comment does not count the failed start"
expect_log "$id" "process rank 2 .* on node n3 exited on signal 9"
complete 240 "$id"
expect_log "$id" "^lyceum job $id: start 2"
expect_log "$id" "^resumed .*/step-"
same_weights "$work/calm/$last" "$work/rank/$last"

# --- a node dies with all its processes, and returns
for node in n3 n1; do  # n1 runs the batch script, so Slurm must requeue the job itself
  submit "${job[@]}" "$scripts/train.sbatch" "${run[@]}" "--run.dir=$work/$node"
  reach "$id" $node 60
  crash $node
  sleep 1
  boot $node
  complete 240 "$id"
  (($(restarts "$id") >= 1)) || fail_job "$id" "was not requeued"
  expect_log "$id" "^resumed .*/step-"
  same_weights "$work/calm/$last" "$work/$node/$last"
done

# --- a host is lost before it reports to mpirun: Open MPI 4 then usually waits forever
cat >"$lab/orted" <<END
#!/bin/bash
[[ \$(hostname) != n4 || -e $work/start ]] || exec sleep 100
exec $(command -v orted) "\$@"
END
chmod +x "$lab/orted"
OMPI_MCA_orte_launch_agent=$lab/orted submit "${job[@]}" "$scripts/train.sbatch" "${run[@]}" "--run.dir=$work/start"
daemons_started() { on_node n2 orted && on_node n3 orted && on_node n4 sleep; } >/dev/null
wait_for 60 daemons_started || fail_job "$id" "no daemons of mpirun"
sleep 2
mkdir "$work/start"
scancel "$id.0"
complete 240 "$id"
expect_log "$id" "^lyceum job $id: start 2"
same_weights "$work/calm/$last" "$work/start/$last"

# --- repeated crashes: the job gives up
endless=("${model[@]}" --run.steps=1000000)
export LYCEUM_MAX_CRASHES=0
submit "${job[@]}" "$scripts/train.sbatch" "${endless[@]}" "--run.dir=$work/hopeless"
hopeless=$id
reach "$id" hopeless 100  # two checkpoints
kill -KILL "$(ranks_of hopeless | head -n 1)"
ends_as FAILED 60 "$id"
expect_log "$id" "giving up; when the cause above is fixed: scontrol requeue $id"
unset LYCEUM_MAX_CRASHES

# --- two jobs with the same run directory; then the first is cancelled
endless+=("--run.dir=$work/shared")
submit --nodes=2 --ntasks-per-node=2 --exclusive "$scripts/train.sbatch" "${endless[@]}"
first=$id
reach "$first" shared 60
submit --nodes=2 --ntasks-per-node=2 --exclusive "$scripts/train.sbatch" "${endless[@]}"
ends_as FAILED 60 "$id"
expect_log "$id" "^lyceum train: rank 0 on n3: $work/shared is in use by job $first on n1 \(process [0-9]+\), which took it [0-9<]+.* ago: set another run.dir, or end that job$"
in_state "$first" RUNNING || fail_job "$first" "disturbed by job $id"
scancel "$first"
ends_as CANCELLED 60 "$first"
sleep 2
in_state "$first" CANCELLED || fail_job "$first" "was cancelled and is $(state "$first")"
kept=$(ls "$work/shared/checkpoints" | sort | tail -n 1)
[[ $kept == LATEST || $kept == step-????????.partial || $kept == step-???????? ]] || fail "checkpoints contain $kept"

# --- the newest checkpoint is damaged; two ranks continue the run of a killed job with four
newest=$(ls -d "$work/hopeless/checkpoints/"step-???????? | sort | tail -n 1)
printf X | dd of="$newest/rank-00001.h5" bs=1 seek=5000 conv=notrunc status=none
steps=$(($(steps_done hopeless) + 20))
submit --nodes=2 --ntasks-per-node=1 "$scripts/train.sbatch" "${model[@]}" --parallel.expert=2 \
  "--run.dir=$work/hopeless" --run.steps=$steps
complete 240 "$id"
expect_log "$id" "^warning: the lock of job $hopeless on n1 \(process [0-9]+\), which took it .* ago was stale: taken over$"
expect_log "$id" "^warning: checkpoint $(basename "$newest") is skipped: .*rank-00001.h5: damaged"
resumed=$(sed -n 's/^resumed .*step-0*\([0-9]*\) .*/\1/p' "$work/$id.log")
submit "${job[@]}" "$scripts/train.sbatch" "${model[@]}" "--run.dir=$work/four" --run.steps=$steps
complete 240 "$id"
# Sums have another order, so rounding differs more with each step, and soon a token chooses another expert.
for step in $((resumed + 1)) $((resumed + 10)); do
  close "loss of step $step on two ranks" "$(metric "$work/hopeless/metrics.jsonl" "$step" loss)" \
    "$(metric "$work/four/metrics.jsonl" "$step" loss)" 1e-3
done
