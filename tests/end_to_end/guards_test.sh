#!/usr/bin/env bash
# Usage: guards_test.sh LYCEUM SOURCE_DIR. Lost output is an error. Links in a run folder that others can write to cause no
# damage elsewhere. Text from files cannot control the terminal. Messages name the limits of a process. All ranks must run the
# same build.
. "$(dirname "$0")/lib.sh" "$@"
make_data
one=("$lyceum" "${tiny[@]}")
expect 0 "${one[@]}"
run=$work/run
checkpoint=$run/checkpoints/step-00000012

# --- standard output
# lost COMMAND …: ends with 4 and one line if standard output is full or closed.
lost() {
  local name=$1
  code=0
  "$lyceum" "$@" >/dev/full 2>"$work/err" || code=$?
  equal "exit code without room for the output of $*" $code 4
  says err "^lyceum $name: standard output (cannot|could not) be written"
  equal "lines of stderr" "$(grep -vc 'tokens/s$' "$work/err")" 1
  code=0
  "$lyceum" "$@" >&- 2>"$work/err" || code=$?
  equal "exit code of $* without standard output" $code 4
  equal "lines of stderr" "$(grep -vc 'tokens/s$' "$work/err")" 1
}
export LYCEUM_CACHE=$work/cache
know_peaks
lost --help
lost --version
lost completion bash
lost train --help
lost train --list-keys
lost train "--config=$config" --print-config
lost train "--config=$config"
lost plan "--config=$config"
lost plan "--config=$config" --json
lost eval --checkpoint "$checkpoint"
lost eval --checkpoint "$checkpoint" --json
lost generate --checkpoint "$checkpoint" --prompt a --tokens 3
lost checkpoint ls "$run"
lost checkpoint show "$checkpoint"
lost checkpoint verify "$checkpoint"
lost checkpoint diff "$checkpoint" "$checkpoint"
lost routing report "$run"
lost routing dump "$run" --csv -
lost tokenize --help
"$lyceum" routing dump "$run" --csv - 2>"$work/err" | head -n 1 >"$work/out"
equal "stderr of | head" "$(cat "$work/err")" ""
(trap '' PIPE && "$lyceum" train --list-keys 2>"$work/err" | : ) || true
equal "stderr of a reader that goes away" "$(cat "$work/err")" ""
# Without standard output, a file that the program opens may get its descriptor, but must not be written to.
"$lyceum" checkpoint show "$checkpoint" >&- 2>/dev/null || true
expect 0 "$lyceum" checkpoint verify "$checkpoint"

# --- links and FIFOs in a run's folder
echo precious >"$work/victim"
for name in LOCK metrics.jsonl starts.jsonl routing.h5 .routing.h5.{next,journal,journal.partial}; do
  for kind in link fifo; do
    rm -rf "$work/shared"
    mkdir "$work/shared"
    if [[ $kind == link ]]; then ln -s "$work/victim" "$work/shared/$name"; else mkfifo "$work/shared/$name"; fi
    run timeout 60 "${one[@]}" "--run.dir=$work/shared" --run.steps=2
    [[ $code == 0 || $code == 3 || $code == 4 ]] || fail "exit code $code with $name as a $kind"
    equal "the file behind $name" "$(cat "$work/victim")" precious
    case $name in
      LOCK | metrics.jsonl) says err "$name: cannot .*(symbolic link|FIFO)" ;;
      starts.jsonl) says out "^warning: .*$name: cannot .*(symbolic link|FIFO)" ;;
    esac
  done
done
# Folders may be links.
mkdir "$work/scratch" "$work/elsewhere"
ln -s "$work/scratch" "$work/linked"
ln -s "$work/elsewhere" "$work/scratch/checkpoints"
expect 0 "${one[@]}" "--run.dir=$work/linked" --run.steps=5
expect 0 "${one[@]}" "--run.dir=$work/linked" --run.steps=6
says out "^resumed "
[[ -d $work/elsewhere/step-00000006 ]] || fail "a link to a folder of checkpoints was not followed"

# --- limits of a process
limited() { (ulimit "$1" "$2" && shift 2 && exec "$@"); }
expect 4 limited -f 4 "${one[@]}" "--run.dir=$work/small" --routing.every=0
says out "^warning: checkpoint step-00000005 was not saved: .*File too large .*ulimit -f"
says err "^lyceum train: checkpoint step-00000012 was not saved: .*File too large .*ulimit -f"
equal "lines of stderr" "$(wc -l <"$work/err")" 1
failed=0
for files in {5..12}; do # limits from the least with which the program can be loaded
  rm -rf "$work/few"
  run limited -n $files "${one[@]}" "--run.dir=$work/few"
  ((code != 0)) || continue
  failed=$((failed + 1))
  says err "Too many open files \(.*ulimit -n\)"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
done
((failed > 0)) || fail "the limit of open files was not reached"

# --- a run's folder is removed while it trains
"${one[@]}" "--run.dir=$work/gone" --run.steps=1000000 --checkpoint.every=20 >"$work/out" 2>"$work/err" &
job=$!
training() { grep -q "^ *2[0-9]*/1000000 " "$work/out"; }
wait_for 60 training || fail "the run does not start"
mv "$work/gone" "$work/moved" # atomic, unlike rm -r
finish
equal "exit code of a run whose folder was removed" $code 4
says err "$work/gone was removed: this job ends"

# --- text from files
cp -r "$run" "$work/foreign"
"$LYCEUM_PYTHON" - "$work/foreign/checkpoints/step-00000012/manifest.json" <<'END'
import hashlib, json, re, sys
path = sys.argv[1]
text = open(path).read()
body = text[: text.rindex('"manifest_sha256"')]
bad = json.dumps("\x1b[2J\x9b31m\u202e", ensure_ascii=False).replace("\x1b", "\\u001b")
for key in "run_uuid", "mesh":
    body = re.sub(f'"{key}": "[^"]*"', lambda _: f'"{key}": {bad}', body, count=1)
open(path, "w").write(body + f'"manifest_sha256": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n')
END
harmless() { # expects no C0 character but line feeds, no C1, no bidirectional control
  "$LYCEUM_PYTHON" - "$work/out" "$work/err" <<'END' || fail "terminal controls are printed"
import re, sys
for file in sys.argv[1:]:
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", open(file, newline="").read()), file
END
}
expect 0 "$lyceum" checkpoint ls "$work/foreign"
harmless
says out '\\x1b\[2J\\u009b31m\\u202e'
expect 0 "$lyceum" checkpoint show "$work/foreign"
harmless
says out '^run +\\x1b\[2J\\u009b31m\\u202e$'
odd=$work/$'odd\e[31m\u202e'
mkdir -p "$odd/checkpoints/step-00000001"
for command in "ls $odd" "show $odd"; do
  run "$lyceum" checkpoint "${command%% *}" "${command#* }"
  harmless
done
mkdir "$work/locked"
printf '{"token":"x","host":"\\u001b[2Jhost","pid":1,"job":"\\u202e7","restarts":0,"since":0,"cluster":"","kernel":"%s","pid_namespace":"%s","pid_start":%s}' \
  "$(cat /proc/sys/kernel/random/boot_id)" "$(readlink /proc/self/ns/pid)" "$(sed 's/.*) //' /proc/1/stat | cut -d' ' -f20)" \
  >"$work/locked/LOCK"
expect 2 "${one[@]}" "--run.dir=$work/locked"
says err 'in use by job \\u202e7 on \\x1b\[2Jhost'
harmless

# --- ranks of different builds
other=$work/other
"$LYCEUM_PYTHON" - "$lyceum" "$other" <<'END'
import re, sys
data = open(sys.argv[1], "rb").read()
changed = re.sub(rb"(Release|Debug|RelWithDebInfo) \(", lambda m: m.group(0)[:-3] + b"X (", data)
assert changed != data
open(sys.argv[2], "wb").write(changed)
END
chmod +x "$other"
expect 2 mpirun -n 1 "$lyceum" "${tiny[@]}" "--run.dir=$work/mixed" : -n 2 "$other" "${tiny[@]}" "--run.dir=$work/mixed"
says err "^lyceum train: rank 0 on [^:]+: ranks 1-2 run lyceum .*X \(.*; rank 0 runs lyceum .*: start every rank with the same build"
equal "lines of ours" "$(grep -c '^lyceum train: ' "$work/err")" 1
[[ ! -e $work/mixed ]] || fail "ranks of different builds trained"
