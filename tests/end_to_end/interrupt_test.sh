#!/usr/bin/env bash
# Usage: interrupt_test.sh LYCEUM SOURCE_DIR. An interrupted run saves a checkpoint, ends with 75, and when continued ends with
# the weights of an undisturbed run. Interrupted twice, it ends at once. Tested with one rank, and with two ranks started by
# the mpirun of mpi-env.sh.
. "$(dirname "$0")/lib.sh" "$@"
make_data
run_of=("${tiny[@]}" --optim.schedule=constant --run.steps=120 --checkpoint.every=50 --checkpoint.keep=2 --data.valid=)

# begin COMMAND …: as `start`, but in a separate process group, as a terminal does, so that SIGINT is not ignored.
begin() {
  set -m
  "$@" >"$work/out" 2>"$work/err" &
  job=$!
  set +m
}
# In an interactive shell, as if typed.
two_ranks() { exec bash --norc -ic '. "$0/scripts/mpi-env.sh" && mpirun -n 2 "$@"; exit $?' "$source" "$lyceum" "$@"; }
beyond() { [[ -f $1/metrics.jsonl ]] && (($(wc -l <"$1/metrics.jsonl") > 5)); }

# saved NAME: expects that the run ended with 75, and that its newest checkpoint has the step after which it stopped.
saved() {
  equal "exit code of $1" "$code" 75
  says out "stopped on request after step [0-9]+"
  step=$(grep -Eo "stopped on request after step [0-9]+" "$work/out" | grep -Eo "[0-9]+")
  ((step < 120)) || fail "$1 was over before it was interrupted"
  equal "newest checkpoint of $1" "$(<"$work/$1/checkpoints/LATEST")" "$(printf 'step-%08d' "$step")"
  ! grep -Eq -- "-----|MPI_ABORT|Exit code" "$work/err" || fail "Open MPI printed banners for $1"
}

# --- Ctrl-C, one rank
expect 0 "$lyceum" "${run_of[@]}" "--run.dir=$work/calm-1"
begin "$lyceum" "${run_of[@]}" "--run.dir=$work/alone"
wait_for 30 beyond "$work/alone" || fail "the run to interrupt does not start"
kill -INT "$job"
finish
saved alone
says err "^lyceum train: SIGINT: saving a checkpoint after this step, then exiting"
expect 0 "$lyceum" "${run_of[@]}" "--run.dir=$work/alone"
says out "resumed "
same_weights "$work/calm-1/checkpoints/step-00000120" "$work/alone/checkpoints/step-00000120"

# --- timeout(1) sends its signal to the process and then to its group: this counts as one request
begin "$lyceum" "${run_of[@]}" "--run.dir=$work/timeout"
wait_for 30 beyond "$work/timeout" || fail "the run to time out does not start"
term=("$job" "$job" "$job" "$job")
kill -TERM "${term[@]}" "${term[@]}" "${term[@]}" "${term[@]}"
finish
saved timeout
equal "lines for the signals" "$(grep -c "^lyceum train: SIGTERM" "$work/err")" 1

# --- a signal from a parent that is not the launcher counts as a user's request
# shellcheck disable=SC2016  # expanded by the shell that mpirun starts
begin mpirun -n 1 bash -c '"$@" & job=$!; until [[ -e $0 ]]; do sleep 0.1; done; kill -TERM $job; wait $job' "$work/go" \
  "$lyceum" "${run_of[@]}" "--run.dir=$work/parent"
wait_for 30 beyond "$work/parent" || fail "the run of a script does not start"
touch "$work/go"
finish
says err "^lyceum train: SIGTERM: saving a checkpoint after this step, then exiting"
says out "stopped on request after step [0-9]+"

# --- Ctrl-C on mpirun: the terminal sends SIGINT to the whole foreground group
pair=("${run_of[@]}" --parallel.expert=2)
expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/calm-2"
begin two_ranks "${pair[@]}" "--run.dir=$work/pair"
wait_for 30 beyond "$work/pair" || fail "the ranks to interrupt do not start"
kill -INT -- "-$job"
finish
saved pair
equal "lines for the signal" "$(grep -c "^lyceum train: SIGUSR1: saving a checkpoint" "$work/err")" 1
expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/pair"
same_weights "$work/calm-2/checkpoints/step-00000120" "$work/pair/checkpoints/step-00000120"

# --- while a checkpoint is written in the background
saving() { compgen -G "$1/checkpoints/step-*.partial" >"$work/partial"; }
begin two_ranks "${pair[@]}" "--run.dir=$work/back" --checkpoint.background=true --checkpoint.every=1
poll=0.01 wait_for 30 saving "$work/back" || fail "the ranks to interrupt save nothing"
kill -INT -- "-$job"
finish
saved back
equal "left behind" "$(ls "$work/back/checkpoints" | grep -Evc '^(LATEST|step-[0-9]{8})$' || true)" 0
expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/back"
same_weights "$work/calm-2/checkpoints/step-00000120" "$work/back/checkpoints/step-00000120"

# --- two signals during a long step: the second one ends the run at once
long=("${run_of[@]}" --batch.global=20480)
in_step() { [[ -f $1/metrics.jsonl ]] && sleep 1; }  # the file is made just before the first step
reported() { grep -q "saving a checkpoint after this step" "$work/err"; }
begin "$lyceum" "${long[@]}" "--run.dir=$work/twice"
wait_for 30 in_step "$work/twice" || fail "the long step does not start"
kill -TERM "$job"
wait_for 10 reported || fail "no message for SIGTERM"
sleep 1  # signals within half a second count as one request
kill -TERM "$job"
finish
equal "exit code after the second SIGTERM" "$code" 143
says err "^lyceum train: SIGTERM again: exiting without saving"
begin two_ranks "${long[@]}" "--run.dir=$work/twice-2"
wait_for 30 in_step "$work/twice-2" || fail "the long step of two ranks does not start"
kill -INT -- "-$job"
wait_for 10 reported || fail "no message for Ctrl-C"
sleep 1
kill -INT -- "-$job"
finish
equal "exit code after the second Ctrl-C" "$code" 130
! grep -q "SIGTERM again" "$work/err" || fail "a message for a signal that mpirun sent"
for run in twice twice-2; do
  [[ ! -e $work/$run/checkpoints/LATEST ]] || fail "$run saved a checkpoint"
done

# --- commands other than train end at the first signal; after an error of all ranks there is no banner of mpirun
reads() { [[ -n $(find "/proc/$job/fd" -lname "$1" 2>/dev/null || true) ]]; }
begin "$lyceum" eval "--checkpoint=$work/calm-1/checkpoints" "--data.valid=$work/data/train" --batch.global=8
poll=0.01 wait_for 60 reads "$work/data/train.bin" || fail "eval does not start"
kill -INT "$job"
finish
equal "exit code of an interrupted eval" "$code" 130
expect 2 ranks 2 train "--config=$config" --no.such=key
equal "lines after a mistake on two ranks" "$(grep -c . "$work/err")" 1
