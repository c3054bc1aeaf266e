#!/usr/bin/env bash
# Usage: random_kills_test.sh LYCEUM SOURCE_DIR. Twenty consecutive jobs continue one run, and each is ended at a random time in
# a random way. The final weights equal those of one undisturbed job.
. "$(dirname "$0")/lib.sh" "$@"
make_data
start_lab
job=(--nodes=4 --ntasks-per-node=1 --no-requeue)
model=("$config" --parallel.expert=4 --optim.schedule=constant --run.log_every=100 --checkpoint.every=10 --checkpoint.keep=3)
seed=${LYCEUM_TEST_SEED:-$RANDOM}
RANDOM=$seed
echo "seed $seed (LYCEUM_TEST_SEED)"

declare -A done_by=()
for cycle in $(seq 20); do
  submit "${job[@]}" "$scripts/train.sbatch" "${model[@]}" --run.steps=1000000 "--run.dir=$work/kills"
  if ((RANDOM % 4)); then  # during training
    reach "$id" kills $(($(steps_done kills) + 1 + RANDOM % 50))
  else  # possibly before MPI is initialised
    wait_for 60 log_says "$id" "^lyceum job $id: start" || fail_job "$id" "does not start"
    sleep "$((RANDOM % 2)).$((RANDOM % 10))"
  fi
  case $((RANDOM % 5)) in
    0) way=USR1 && ask_to_stop "$id" ;;
    1) way=cancelled && scancel "$id" ;;
    2) way="rank killed" && kill -KILL "$(ranks_of kills | shuf -n 1)" 2>/dev/null || scancel "$id" ;;
    3) way="all ranks killed" && kill -KILL $(ranks_of kills) 2>/dev/null || scancel "$id" ;;
    4) way="launcher killed" && pkill -KILL -f "^mpirun .*--run.dir=$work/kills" || scancel "$id" ;;
  esac
  wait_for 60 over "$id" || fail_job "$id" "not over a minute after: $way"
  wait_for 20 all_idle || fail_job "$id" "a node is still busy with it after: $way"
  done_by[$way]=$((${done_by[$way]:-0} + 1))
done
for way in "${!done_by[@]}"; do echo "${done_by[$way]} x $way"; done

steps=$(($(steps_done kills) + 20))
((steps > 200)) || fail "only $steps steps in 20 jobs"
for name in kills calm; do
  submit "${job[@]}" "$scripts/train.sbatch" "${model[@]}" --run.steps=$steps "--run.dir=$work/$name"
  complete 240 "$id"
done
same_weights "$work"/{calm,kills}/checkpoints/"step-$(printf %08d $steps)"
diff <(steps "$work/calm/metrics.jsonl") <(steps "$work/kills/metrics.jsonl") >"$work/out" || fail "metrics differ"
