#!/usr/bin/env bash
# Usage: stopped_rank_test.sh LYCEUM SOURCE_DIR. One of four ranks is stopped. After the timeout, one line names it and the
# operation that it did not start, the job ends with exit code 4, and no process is left.
. "$(dirname "$0")/lib.sh" "$@"
make_data

mine() { pgrep -f -- "--run.dir=$dir" | grep -vxF "$job"; }
training() { [[ -s $dir/metrics.jsonl ]]; }
gone() { ! mine >/dev/null; }

stops=0
# stop_rank RANK KEYS…: trains on four ranks with these keys, stops that rank, and waits for the end.
stop_rank() {
  dir=$work/stopped-$((++stops))
  start 4 "${tiny[@]}" --run.steps=100000 --checkpoint.every=0 --run.timeout_seconds=6 "--run.dir=$dir" "${@:2}"
  wait_for 60 training || fail "no step within a minute"
  victim=
  for process in $(mine); do
    grep -zqx "OMPI_COMM_WORLD_RANK=$1" "/proc/$process/environ" && victim=$process
  done
  kill -STOP "${victim:?no process is rank $1}"
  local begin=$SECONDS
  wait_for 30 gone || {
    left=$(mine | wc -l)
    for process in $(mine); do kill -KILL "$process" || true; done
    fail "$left processes still run thirty seconds after rank $1 was stopped"
  }
  finish
  equal "exit code" "$code" 4
  says err "^lyceum train: rank [0-9] on .* waited 6 s: rank $1 on .* \(process $victim is stopped\) .*#[0-9]+ of [0-9]+ B.* on group .*\([a-z_]+\.(cpp|h):[0-9]+\), which ranks? [0-9,-]+ entered [0-9.]+ s ago; its last operation: "
  equal "lines that say why" "$(grep -c '^lyceum train: ' "$work/err")" 1
}

stop_rank 2 --parallel.expert=4
stop_rank 1 --parallel.expert=4 --batch.micro=1 --parallel.overlap=batches
stop_rank 0 --parallel.tensor=2 --parallel.expert=2 --parallel.zero=3
# mpirun ends the other ranks at once or some seconds after one has reported the error.
OMPI_MCA_odls_base_sigkill_timeout=4 stop_rank 3 --parallel.pipeline=2 --batch.micro=1
OMPI_MCA_odls_base_sigkill_timeout=0 stop_rank 2 --parallel.expert=2

# The same for an error that all ranks find.
for seconds in 0 4; do
  OMPI_MCA_odls_base_sigkill_timeout=$seconds expect 2 ranks 4 train "--config=$config" --no.such=key
  equal "lines after a mistake on four ranks" "$(grep -c '^lyceum ' "$work/err")" 1
done
