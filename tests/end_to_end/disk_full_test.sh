#!/usr/bin/env bash
# Usage: disk_full_test.sh LYCEUM SOURCE_DIR. If there is no space for a checkpoint or a log, the run prints a warning and
# continues. Earlier checkpoints stay complete, and the logs are completed when there is space again. Only a run whose last
# checkpoint could not be saved fails. Tested with a limit on the size of files, which needs no privileges, and then on a
# small file system if one can be mounted here.
if [[ -z ${OWN_MOUNTS:-} ]]; then
  export OWN_MOUNTS=no
  for flags in -m -rm; do
    if unshare $flags mount -t tmpfs -o size=1m none /tmp 2>/dev/null; then
      OWN_MOUNTS=yes exec unshare $flags bash "$0" "$@"
    fi
  done
fi
. "$(dirname "$0")/lib.sh" "$@"
make_data

limited() { (ulimit -f "$1" && shift && exec "$@"); } # KILOBYTES COMMAND …
warnings() { grep -c "^warning: .*$1" "$work/out" || true; }

one=("$lyceum" "${tiny[@]}" --optim.schedule=constant)
expect 0 "${one[@]}" "--run.dir=$work/calm"
expect 0 "${one[@]}" "--run.dir=$work/full" --run.steps=5
first=$(sha256sum "$work"/full/checkpoints/step-00000005/*)

# Space for logs, but not for checkpoints: the run trains to the end, and reports that its result is lost.
for background in false true; do
  expect 4 limited 200 "${one[@]}" "--run.dir=$work/full" --run.steps=12 --checkpoint.background=$background
  says out "^warning: checkpoint step-00000010 was not saved: .*earlier checkpoints are untouched"
  says out "^12/12 "
  says err "^lyceum train: checkpoint step-00000012 was not saved: .*: remove the cause, then run the same command, which resumes from the previous checkpoint$"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
  equal "steps in metrics" "$(steps "$work/full/metrics.jsonl" | wc -l)" 12
  equal "checkpoints" "$(ls "$work/full/checkpoints")" $'LATEST\nstep-00000005'
  equal "the earlier checkpoint" "$(sha256sum "$work"/full/checkpoints/step-00000005/*)" "$first"
  expect 0 "$lyceum" checkpoint verify "$work/full/checkpoints"
done

expect 4 limited 200 "${one[@]}" "--run.dir=$work/first" --run.steps=2
says err "^lyceum train: checkpoint step-00000002 was not saved: .*, then run the same command, which starts again$"

# No space for metrics either: this is reported once, and metrics.jsonl has complete lines only.
expect 4 limited 4 "${one[@]}" "--run.dir=$work/full" --run.steps=12 --routing.every=0
equal "warnings of metrics" "$(warnings metrics.jsonl)" 1
says out "^12/12 "
equal "lines of stderr" "$(wc -l <"$work/err")" 1
written=$(steps "$work/full/metrics.jsonl" | wc -l)
((written >= 5 && written < 12)) || fail "$written steps in 4 KB of metrics"

# With enough space, the same command ends with the weights of the undisturbed run.
expect 0 "${one[@]}" "--run.dir=$work/full" --run.steps=12
same_weights "$work"/{calm,full}/checkpoints/step-00000012
diff <(steps "$work/calm/metrics.jsonl") <(steps "$work/full/metrics.jsonl") >"$work/out" || fail "metrics differ"

# If the routing log cannot be created, there is a warning. Checkpoints keep its records, and the next start writes them, even
# if it has nothing to train. That start also reports which metrics are missing, and repairs what a killed save leaves behind.
blocked=$work/blocked
mkdir -p "$blocked/.routing.h5.next/in-the-way"
expect 0 "${one[@]}" "--run.dir=$blocked"
equal "warnings of routing" "$(warnings routing.h5)" 2
says out "^warning: .*routing.h5: lacks [0-9]+ records, which could not be written: remove the cause"
[[ ! -e $blocked/routing.h5 ]] || fail "routing.h5 was written on a full disk"
rm -r "$blocked/.routing.h5.next"
sed -i 10,12d "$blocked/metrics.jsonl"
echo step-00000010 >"$blocked/checkpoints/LATEST"
mkdir "$blocked/checkpoints/step-00000003" "$blocked/checkpoints/step-00000015.partial"
expect 0 "${one[@]}" "--run.dir=$blocked"
says out "^warning: metrics.jsonl lacks steps 10 to 12"
says out "^nothing to train"
equal "LATEST" "$(cat "$blocked/checkpoints/LATEST")" step-00000012
equal "checkpoints" "$(ls "$blocked/checkpoints")" $'LATEST\nstep-00000005\nstep-00000010\nstep-00000012'
for run in calm blocked; do expect 0 "$lyceum" routing dump "$work/$run" --csv "$work/$run.csv"; done
cmp "$work"/{calm,blocked}.csv || fail "the routing log lacks records that could not be written at first"

[[ $OWN_MOUNTS == yes ]] || { echo "no file system of its own can be mounted here: the rest is not tried" && exit 0; }

# A disk is filled while a job of two ranks runs, and then cleared again.
disk=$work/disk
mkdir "$disk"
mount -t tmpfs -o size=12m none "$disk"
trap 'stop_job; umount -l "$disk"; rm -rf "$work"' EXIT
start 2 "${tiny[@]}" --parallel.expert=2 --run.steps=1000000 --checkpoint.every=20 --checkpoint.keep=2 --routing.every=1 \
  "--run.dir=$disk/run"
saved() { [[ -f $disk/run/checkpoints/LATEST ]]; }
starved() { # fills the disk; again in each call, since a save that fails frees its space
  until ! head -c 64K /dev/zero 2>/dev/null >>"$disk/filler"; do :; done 2>/dev/null
  grep -Eaq "warning: .*$1" "$work/out"
}
newest() { cat "$disk/run/checkpoints/LATEST"; }
wait_for 60 saved || fail "no first checkpoint"
for what in "checkpoint step-[0-9]+ was not saved" metrics.jsonl routing.h5; do
  wait_for 120 starved "$what" || fail "no warning of $what on a full disk"
done
whole() { expect 0 "$lyceum" checkpoint verify "$disk/run/checkpoints"; }
whole
before=$(newest)
rm "$disk/filler"
again() { [[ $(newest) != "$before" ]]; }
wait_for 60 again || fail "no checkpoint after the disk was cleared"
kill -USR1 "$job"
finish
equal "exit code after USR1" $code 75
whole
last=$(newest)
last=$((10#${last#step-}))
equal "steps in metrics" "$(steps "$disk/run/metrics.jsonl" | wc -l)" "$last"
expect 0 "$lyceum" routing dump "$disk/run" --csv -
equal "routing records" "$(tail -n +2 "$work/out" | cut -d, -f1 | sort -u | wc -l)" "$last"
