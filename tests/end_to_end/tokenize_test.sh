#!/usr/bin/env bash
# Usage: tokenize_test.sh LYCEUM ROOT. Tests the files and exit codes of `lyceum tokenize`, and that a second run gives the same
# bytes.
set -euo pipefail
lyceum=$1 root=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*" >&2; exit 1; }
expect_exit() {  # code words command…
  local code=$1 words=$2 got=0
  shift 2
  "$@" >out 2>err || got=$?
  [ "$got" = "$code" ] || fail "exit $got instead of $code: $* ($(cat err))"
  grep -qF -- "$words" err || fail "no '$words' in: $(cat err)"
}

run() { "$lyceum" tokenize --input "$root/lib/io" "$root/lib/model" --model tok.model --vocab 1000 "$@"; }
run --output a/train --valid a/valid --valid-fraction 0.1 | tee summary
grep -q "bytes/token" summary || fail "no summary"
for name in train valid; do
  for kind in bin idx json; do [ -s "a/$name.$kind" ] || fail "a/$name.$kind is missing"; done
done
train=$(grep -o '"bytes": [0-9]*' a/train.json | grep -o '[0-9]*$')
valid=$(grep -o '"bytes": [0-9]*' a/valid.json | grep -o '[0-9]*$')
share=$((1000 * valid / (train + valid)))
[ "$share" -ge 50 ] && [ "$share" -le 100 ] || fail "$valid of $((train + valid)) bytes held out"
grep -q "$(sha256sum tok.model | cut -d' ' -f1)" a/train.json || fail "another model's digest"

cp tok.model first.model
run --retrain --threads 3 --output b/train --valid b/valid --valid-fraction 0.1 >/dev/null
cmp tok.model first.model
for file in train.bin train.idx train.json valid.bin valid.idx valid.json; do cmp "a/$file" "b/$file"; done

run --max-mb 0.05 --output small >/dev/null
small=$(grep -o '"bytes": [0-9]*' small.json | grep -o '[0-9]*$')
[ "$small" -gt 25000 ] && [ "$small" -le 50000 ] || fail "$small bytes for --max-mb 0.05"

"$lyceum" tokenize --help | grep -q -- --valid-fraction || fail "no help"
expect_exit 2 "--input" "$lyceum" tokenize --model m --output o
expect_exit 2 "--inptu" "$lyceum" tokenize --inptu x --model m --output o
expect_exit 2 "--retrain" "$lyceum" tokenize --input "$root/lib" --model tok.model --vocab 999 --output o
expect_exit 2 "--valid-fraction" run --output o --valid v --valid-fraction 1.5
expect_exit 3 "absent" "$lyceum" tokenize --input absent --model tok.model --output o
mkdir empty
expect_exit 3 "no UTF-8 text" "$lyceum" tokenize --input empty --model tok.model --output o
echo "hello" >tiny.txt
expect_exit 3 "new.model" "$lyceum" tokenize --input tiny.txt --model new.model --output o
echo "not a model" >bad.model
expect_exit 3 "bad.model" "$lyceum" tokenize --input tiny.txt --model bad.model --output o
[ ! -e o.bin ] || fail "a failed run left o.bin"

# --- outputs that would replace what is read, or each other
mkdir own
echo '{"text": "the only copy of these words"}' | tee own/train.json own/corpus.jsonl >own/x.bin
cp tok.model own/own.json
ln -s own other
keeps() {  # words command…: the command is refused, and own/ stays as it is
  local words=$1 before
  shift
  before=$(cat own/* | sha256sum)
  expect_exit 2 "$words" "$@"
  [ "$before" = "$(cat own/* | sha256sum)" ] || fail "files were replaced by: $*"
}
text=("$lyceum" tokenize --json-key text)
keeps "--output other/train.json would replace" "${text[@]}" --input own/train.json --model tok.model --output other/train
keeps "--valid own/train.json would replace" "${text[@]}" --input own --model tok.model --output o --valid own/train
keeps "--output own/x.bin would replace own/x.bin, which is read" "${text[@]}" --input own/x.bin --model tok.model --output own/x
keeps "--output own/own.json would replace own/own.json" "${text[@]}" --input own/corpus.jsonl --tokenizer own/own.json --output own/own
cp own/corpus.jsonl own/p.progress
keeps "--output own/p.progress would replace" "${text[@]}" --input own/p.progress --model tok.model --output own/p
keeps "--model own/corpus.jsonl would replace" "${text[@]}" --input own/corpus.jsonl --model own/corpus.jsonl --retrain --output o
# In the folder of the text, what tokenize writes and its tokenizer are not text, so the same command encodes the same again.
mkdir beside && cp own/corpus.jsonl beside/a.jsonl && cp tok.model beside/tok.model
for name in t t u; do
  "$lyceum" tokenize --input beside --tokenizer beside/tok.model --output beside/$name >out || fail "beside/$name was not encoded"
  grep -q '"documents": 1,' beside/$name.json || fail "beside/$name has other documents: $(cat beside/$name.json)"
done
grep -q 'a description of token files (.*/beside/t.json)' out || fail "nothing says that a description was skipped"
# What is no regular file is not replaced, a folder is no name, and shells do not replace ~ everywhere.
ln -s corpus.jsonl own/link.bin && mkfifo own/pipe.bin
text=("$lyceum" tokenize --tokenizer tok.model --input "$root/README.md")
expect_exit 2 "--output own/link.bin is a link" "${text[@]}" --output own/link
expect_exit 2 "--output own/pipe.bin is not a file" "${text[@]}" --output own/pipe
expect_exit 2 "--output own/ is a folder: add the name of the token files, as in own/train" "${text[@]}" --output own/
expect_exit 2 "--valid . is a folder" "${text[@]}" --output o --valid .
expect_exit 2 "--output=~/o: shells do not replace ~ behind =; write --output ~/o" "${text[@]}" '--output=~/o'
[ -L own/link.bin ] && [ -p own/pipe.bin ] && [ ! -e own/.bin ] && [ ! -e '~' ] || fail "something was replaced or made"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 42\n' >own/pointer.model
expect_exit 3 "the tokenizer own/pointer.model is a pointer of Git LFS" "$lyceum" tokenize --tokenizer own/pointer.model --input "$root/README.md" --output o
echo '[{"text": "a"}, {"text": "b"}]' >own/list.json
expect_exit 0 "own/list.json: read as text although it is a JSON array of objects" "$lyceum" tokenize --tokenizer tok.model --input own/list.json --output list
expect_exit 2 "--output and --valid name the same file, ./o.bin" run --output o --valid ./o
expect_exit 2 "holds nothing out without --valid" run --output o --valid-fraction 0.5
expect_exit 2 "--threads 100000 is not between 1 and 4096" run --output o --threads 100000
[ ! -e o.bin ] || fail "a refused command left o.bin"

# --- JSON lines, compressed files, files and records that are skipped
mkdir mixed
for i in $(seq 400); do printf '{"text": "record %d\\nwith some words", "id": %d}\n' "$i" "$i"; done >mixed/a.jsonl
gzip -c mixed/a.jsonl >mixed/b.jsonl.gz
gzip -c tiny.txt >mixed/c.txt.gz
printf '{"content": "x"}\nnot json\n' >>mixed/a.jsonl
printf 'a\0b' >mixed/binary
: >mixed/empty
mixed=("$lyceum" tokenize --input mixed --model tok.model)
"${mixed[@]}" --output mixed-tokens >summary
grep -q '"documents": 801' mixed-tokens.json || fail "other documents: $(cat mixed-tokens.json)"
grep -qFx "skipped 2 files: 1 binary ($work/mixed/binary), 1 empty ($work/mixed/empty)" summary || fail "other skipped files: $(cat summary)"
grep -qFx "skipped 2 records: 1 not JSON \
($work/mixed/a.jsonl:402), 1 without \"text\" ($work/mixed/a.jsonl:401)" summary || fail "other skipped records: $(cat summary)"
head -c 1000 mixed/b.jsonl.gz >cut.jsonl.gz
expect_exit 3 "cut.jsonl.gz is truncated: it ends at byte 1000" "$lyceum" tokenize --input cut.jsonl.gz --model tok.model --output o
[ ! -e o.bin ] || fail "a failed run left o.bin"
expect_exit 2 "--tokenizer" "$lyceum" tokenize --input tiny.txt --output o
expect_exit 2 "use one or the other" "$lyceum" tokenize --input tiny.txt --output o --tokenizer tok.model --retrain

# --- killed several times, the same command ends with the same bytes
for _ in $(seq 40); do cat mixed/b.jsonl.gz; done >many.jsonl.gz
many=("$lyceum" tokenize --input many.jsonl.gz mixed "$root/lib" --model tok.model --valid-fraction 0.2 --threads 2 --save-every 0)
"${many[@]}" --output whole --valid whole-valid >/dev/null
killed=0
for delay in 0.03 0.06 0.1 0.15 0.2 0.3 0.5; do
  timeout -s KILL "$delay" "${many[@]}" --output cut --valid cut-valid >/dev/null 2>&1 && break
  killed=$((killed + 1))
  if [ -e cut.idx ]; then  # killed after the last byte
    { cmp whole.bin cut.bin && cmp whole.idx cut.idx; } || fail "an interrupted encoding looks complete"
  fi
done
"${many[@]}" --output cut --valid cut-valid >summary
echo "killed $killed times; then: $(head -n 2 summary | tail -n 1)"
for file in .bin .idx -valid.bin -valid.idx; do cmp "whole$file" "cut$file"; done
[ -z "$(find . -name 'cut*.partial' -o -name 'cut*.progress')" ] || fail "temporary files are left"

# --- texts that must be encoded as a whole, since this tokenizer puts a space before each text
python3 - <<'END'
import json
json.dump({"version": "1.0", "truncation": None, "padding": None, "post_processor": None, "decoder": None,
           "added_tokens": [{"id": 0, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
                             "normalized": False, "special": True}],
           "normalizer": {"type": "Prepend", "prepend": " "}, "pre_tokenizer": {"type": "Whitespace"},
           "model": {"type": "BPE", "vocab": {"<|endoftext|>": 0, "l": 1, "a": 2, "m": 3, "p": 4}, "merges": []}},
          open("whole.json", "w"))
text = "lamp " * 3_500_000  # 17.5 MB
open("large.txt", "w").write(text)
with open("large.jsonl", "w") as file:
    for one in ["a lamp", text, "two lamps"]: file.write(json.dumps({"text": one}) + "\n")
END
whole() { "$lyceum" tokenize --tokenizer whole.json --threads 1 --output limited "$@"; }
expect_exit 3 "large.txt has more than 17 MB of text after byte 0 that cannot be encoded in parts: split it into documents, or raise --max-document-mb" \
  whole --input large.txt --max-document-mb 17
[ ! -e limited.idx ] || fail "a text that is too large was encoded"
whole --input large.txt --max-document-mb 18 >/dev/null
[ "$(stat -c %s limited.bin)" = $((2 * (4 * 3500000 + 1))) ] || fail "wrong tokens of a large text"
rm limited.*
whole --input large.jsonl --max-document-mb 17 >summary
grep -q "skipped 1 record: 1 too long (.*/large.jsonl:2)$" summary || fail "a record that is too long is not reported: $(cat summary)"
grep -q '"documents": 2' limited.json || fail "wrong records next to one that is too long"
rm limited.*
whole --input large.jsonl --max-document-mb 18 >summary
grep -q '"documents": 3' limited.json || fail "wrong tokens of a record within --max-document-mb"
for limit in 16 2001 nan; do
  expect_exit 2 "--max-document-mb $limit" whole --input large.txt --max-document-mb $limit
done
echo "passed"
