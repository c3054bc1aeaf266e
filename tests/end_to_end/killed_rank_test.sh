#!/usr/bin/env bash
# Usage: killed_rank_test.sh LYCEUM SOURCE_DIR. If one of four ranks is killed, the others end within ten seconds, and a line
# names it. If one rank runs another program, the start ends with one line, whichever rank it is.
. "$(dirname "$0")/lib.sh" "$@"
make_data

dir=$work/killed
mine() { pgrep -f -- "--run.dir=$dir" | grep -vxF "$job"; }
training() { [[ -s $dir/metrics.jsonl ]]; }
gone() { ! mine >/dev/null; }

start 4 "${tiny[@]}" --run.steps=100000 --checkpoint.every=0 --parallel.expert=4 "--run.dir=$dir"
wait_for 30 training || fail "no step within 30 seconds"
equal "ranks that run" "$(mine | wc -l)" 4
for process in $(mine); do
  grep -zqx OMPI_COMM_WORLD_RANK=2 "/proc/$process/environ" && victim=$process
done
kill -KILL "${victim:?no process is rank 2}"
wait_for 10 gone || {
  left=$(mine | wc -l)
  for process in $(mine); do kill -KILL "$process" || true; done
  fail "$left ranks still run ten seconds after rank 2 was killed"
}
finish
((code != 0)) || fail "mpirun exits with code 0"
says err "process rank 2 .*signal 9"

export LYCEUM_START_TIMEOUT=1
one_line() {
  equal "lines that say why" "$(grep -c 'waited 1 s for the other ranks to start: .* LYCEUM_START_TIMEOUT=SECONDS' "$work/err")" 1
}
expect 4 timeout 60 mpirun -n 1 "$lyceum" train "--config=$config" : -n 1 /bin/true
one_line
run timeout 60 mpirun -n 1 /bin/true : -n 1 "$lyceum" train "--config=$config"
((code != 0 && code != 124)) || fail "mpirun ends with $code where rank 0 is another program"
one_line
LYCEUM_START_TIMEOUT=soon expect 2 mpirun -n 1 "$lyceum" train "--config=$config"
says err "LYCEUM_START_TIMEOUT is 'soon'"
