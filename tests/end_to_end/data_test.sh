#!/usr/bin/env bash
# Usage: data_test.sh LYCEUM SOURCE_DIR. Tests token files that are truncated while they are read, or that have changed since
# the checkpoint was saved; tokenizers other than that of the tokens; and checkpoints that were moved.
. "$(dirname "$0")/lib.sh" "$@"
make_data
data=$work/copy
copy_data() { rm -rf "$data" && cp -r "$work/data" "$data"; }
copy_data
mine=("${tiny[@]}" "--data.train=$data/train" "--data.valid=$data/valid" "--data.tokenizer=$data/tokenizer.model")

# --- files that are truncated while they are read
# holds_open FILE: succeeds if a process has FILE open.
holds_open() { [[ -n $(find /proc/[0-9]*/fd -lname "$1" 2>/dev/null || true) ]]; }
# cut_short RANKS COMMAND …: truncates the file during COMMAND, which must end with 3 and a line that names the file.
cut_short() {
  start "$@"
  wait_for 60 holds_open "$data/train.bin" || fail "no process reads $data/train.bin"
  [[ $2 != train ]] || wait_for 60 grep -Eq '^ *2/' "$work/out" || fail "no step was made"
  truncate -s 1000 "$data/train.bin"
  finish
  equal "exit code of $2" "$code" 3
  says err "^lyceum $2: rank [0-9] on [^:]+: $data/train.bin.*(are missing: the file has 1000 bytes now, but had|truncated)"
  if grep -Eiq 'bus error|exited on signal' "$work/err"; then fail "a signal ended $2"; fi
}
cut_short 4 "${mine[@]}" --run.dir="$work/cut" --run.steps=100000
copy_data
expect 0 ranks 2 "${mine[@]}" --run.dir="$work/moved/run" --parallel.expert=2
run=$work/moved/run
cut_short 2 eval --checkpoint="$run" --data.valid="$data/train" --batch.global=2

# --- files that have changed since the checkpoint: first one byte, then the length
changed() { # changed files of the same name are refused
  expect 3 "$lyceum" "${mine[@]}" --run.dir="$run" --run.steps=13
  says err "^lyceum train: data.train = $data/train: the files have changed since $run/checkpoints/step-000000.. was saved"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
}
change_first_byte() {
  python3 - "$1" <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    first = file.read(1)[0]
    file.seek(0)
    file.write(bytes([first ^ 1]))
END
}
copy_data
expect 0 "$lyceum" eval "--checkpoint=$run"
! grep -q "have changed" "$work/err" || fail "files count as changed"
change_first_byte "$data/valid.bin"
expect 0 "$lyceum" eval "--checkpoint=$run"
says err "^warning: data.valid = $data/valid: the files have changed since the checkpoint was saved$"
copy_data
change_first_byte "$data/train.bin"
changed
expect 0 "$lyceum" "${mine[@]}" --run.dir="$run" --run.steps=13 --data.changed=warn
says out "warning: data.train = $data/train: the files have changed since the checkpoint was saved"
expect 0 "$lyceum" "${mine[@]}" --run.dir="$run" --run.steps=13 # saves a checkpoint with the changed files
says out "nothing to train"
for kind in bin idx json; do cp "$data/valid.$kind" "$data/train.$kind"; done
changed
expect 3 "$lyceum" "${mine[@]}" --run.dir="$run" --run.steps=13 --data.changed=warn # has no steps left to do
says err "was saved, and its run is finished: restore the old ones, or set another run.dir to train on these$"
# Files of another name mean another run, unless data.changed allows them.
copy_data
for kind in bin idx json; do mv "$data/train.$kind" "$data/other.$kind"; done
expect 2 "$lyceum" "${mine[@]}" --run.dir="$run" --run.steps=14 --data.train="$data/other"
says err "belongs to a run with another configuration; .*: data.train = $data/other \(was $data/train\)"
expect 0 "$lyceum" "${mine[@]}" --run.dir="$run" --run.steps=14 --data.train="$data/other" --data.changed=warn
says out "warning: data.train = $data/other from now on"

# --- sources from a file: the same run as with the sources themselves, and resumable without the file
copy_data
for kind in bin idx json; do cp "$data/valid.$kind" "$data/other.$kind"; done
list=$work/sources.txt
printf '# two sources\n 3 %s # most\n\n1 %s\n' "$data/train" "$data/other" >"$list"
expect 0 "$lyceum" "${mine[@]}" --run.dir="$work/listed" --run.steps=4 --data.train="@$list" --data.valid="@$list" --print-config
says out "^data.train += 3 $data/train 1 $data/other +# command line"
expect 0 "$lyceum" "${mine[@]}" --run.dir="$work/listed" --run.steps=4 --data.train="@$list"
expect 0 "$lyceum" "${mine[@]}" --run.dir="$work/inline" --run.steps=4 --data.train="3 $data/train 1 $data/other"
same_weights "$work"/{listed,inline}/checkpoints/step-00000004
expect 0 "$lyceum" "${mine[@]}" --run.dir="$work/listed" --run.steps=5 --data.train="3 $data/train 1 $data/other"
rm "$list"
expect 0 "$lyceum" train --config "$work/listed/config.ini" --run.steps=6
expect 2 "$lyceum" "${mine[@]}" --run.dir="$work/listed" --run.steps=7 --data.train="@$list"
says err "^lyceum train: data.train = @$list on the command line: $list: cannot be opened: "
printf '1 %s\n3 %s\n' "$data/train" "$data/other" >"$list"
expect 2 "$lyceum" "${mine[@]}" --run.dir="$work/listed" --run.steps=7 --data.train="@$list"
says err "belongs to a run with another configuration; .*: data.train = "
printf '1 %s\n%s\n' "$data/train" "$data/other" >"$list"
expect 2 "$lyceum" "${mine[@]}" --run.dir="$work/refused" --data.train="@$list"
says err "$list:2: give either all sources a weight or none"
equal "lines of stderr" "$(wc -l <"$work/err")" 1

# --- a tokenizer other than that of the tokens
copy_data
expect 0 "$lyceum" tokenize --input "$source/lib/core" --vocab 384 --model "$work/other.model" \
  --output "$work/other/text" --sample-mb 1
not_made_with() { # PATTERN COMMAND …
  expect 3 "$lyceum" "${@:2}"
  says err "^lyceum [a-z]+: $1"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
}
not_made_with "$data/train.bin was encoded with a different tokenizer than $work/other.model: .*SHA-256 [0-9a-f]{12}…" \
  "${mine[@]}" --run.dir="$work/refused" --data.tokenizer="$work/other.model"
not_made_with "$data/valid.bin was encoded with a different tokenizer than $work/other/text.bin: " \
  "${mine[@]}" --run.dir="$work/refused" --data.tokenizer= --data.train="$work/other/text"
not_made_with "data.tokenizer = $work/other.model is not the tokenizer of $run/checkpoints/step-00000014" \
  "${mine[@]}" --run.dir="$run" --run.steps=15 --data.tokenizer="$work/other.model" --data.train="$work/other/text" \
  --data.valid= --data.changed=warn
foreign=("--checkpoint=$run" "--data.tokenizer=$work/other.model")
for command in "eval" "generate --prompt=one"; do
  # shellcheck disable=SC2086
  not_made_with "data.tokenizer = $work/other.model is not the tokenizer that $run/checkpoints/step-00000014 was" \
    $command "${foreign[@]}"
done
not_made_with "$work/other/text.bin was encoded with a different tokenizer than $run/checkpoints/step-00000014/tokenizer.model" \
  eval --checkpoint="$run" --data.valid="$work/other/text"

# --- a checkpoint contains its tokenizer, so it can be read anywhere; a run's folder can be given instead of a checkpoint
say=(generate --prompt "the file" --tokens 4 --temperature 0)
expect 0 "$lyceum" "${say[@]}" --checkpoint="$run"
cp "$work/out" "$work/before"
mv "$work/moved" "$work/elsewhere" && mv "$work/data" "$work/gone" && rm -r "$data"
cd "$work/elsewhere"
expect 0 "$lyceum" "${say[@]}" --checkpoint=run
cmp -s "$work/out" "$work/before" || fail "the moved run generates another text"
expect 0 "$lyceum" eval --checkpoint=run --data.valid="$work/gone/valid" --json
expect 0 "$lyceum" checkpoint ls run
says out "^step-00000014 "
expect 0 "$lyceum" checkpoint show run
says out "^mesh +pp1 dp[12] tp1 · edp1 ep[12] etp1$"
says out "^ +pp pipeline stages, dp data ranks"
says out "^tokenizer +tokenizer.model, SHA-256 [0-9a-f]{64}$"
expect 0 "$lyceum" checkpoint verify run

# A checkpoint of an earlier version has no tokenizer. Then data.tokenizer names one, which is compared with that in the
# description of the token files.
python3 - run/checkpoints/step-00000014/manifest.json <<'END'
import hashlib, re, sys
text = open(sys.argv[1]).read()
text = text[: text.rindex('"manifest_sha256"')]
text, found = re.subn(r',\n\{[^\n]*"name":"tokenizer\.model"[^\n]*\}', "", text)
assert found == 1, "no tokenizer.model in the manifest"
open(sys.argv[1], "w").write(f'{text}"manifest_sha256": "{hashlib.sha256(text.encode()).hexdigest()}"\n}}\n')
END
rm run/checkpoints/step-00000014/tokenizer.model
expect 0 "$lyceum" "${say[@]}" --checkpoint=run "--data.train=$work/gone/train" "--data.tokenizer=$work/gone/tokenizer.model"
cmp -s "$work/out" "$work/before" || fail "the checkpoint without a tokenizer generates another text"
not_made_with "$work/gone/train.bin was encoded with a different tokenizer than $work/other.model" \
  "${say[@]}" --checkpoint=run "--data.train=$work/gone/train" "--data.tokenizer=$work/other.model"
