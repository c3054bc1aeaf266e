#!/usr/bin/env bash
# lyceum tokenize: files, exit codes, and that a second run gives the same bytes.   usage: tokenize_test.sh LYCEUM ROOT
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
echo "passed"
