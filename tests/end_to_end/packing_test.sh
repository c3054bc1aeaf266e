#!/usr/bin/env bash
# Usage: packing_test.sh LYCEUM SOURCE_DIR. The index of packed samples is in one file for all ranks and runs, in the cache if the
# folder of the token files cannot be written; runs have the same losses wherever it is. Merged token files.
. "$(dirname "$0")/lib.sh" "$@"
export LYCEUM_CACHE=$work/own-cache  # which holds nothing of other tests
know_peaks
make_data
cd "$work"
python3 - <<'END'
import json
with open("many.jsonl", "w") as file:  # more documents than a packing in memory may have
    for i in range(70_000): file.write(json.dumps({"text": "lamp " * (1 + i % 7)}) + "\n")
END
expect 0 "$lyceum" tokenize --input many.jsonl --tokenizer data/tokenizer.model --output data/many
packed=("${tiny[@]}" --data.train=data/many --data.samples=packed --data.document_mask=true --run.steps=4)
index=data/many.32.packing

# --- made once, by one of several ranks
expect 0 ranks 2 "${packed[@]}" --run.dir=first
says out "^packing    data/many: 70,?000 documents in .* of 32, .* split; index $index, [0-9.]+ MB$"
[[ -s $index && ! -e $index.partial && ! -e $LYCEUM_CACHE/packings ]] || fail "the index is not beside the tokens: $(ls data)"
inode=$(stat -c %i "$index")
expect 0 "$lyceum" "${packed[@]}" --run.dir=second
equal "inode of the index" "$(stat -c %i "$index")" "$inode"

# --- in the cache if it cannot be beside the tokens; four runs at once make it once
rm "$index"
mkdir -p "$index/occupied"
jobs=()
for run in a b c d; do
  "$lyceum" "${packed[@]}" --run.dir="$run" >"$run.out" 2>&1 &
  jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || fail "a run at the same time failed: $(cat ./*.out)"; done
job=
equal "files in the cache" "$(ls "$LYCEUM_CACHE/packings" | wc -l)" 1
grep -q "; index $LYCEUM_CACHE/packings/[0-9a-f]*.packing" d.out || fail "another index: $(cat d.out)"
for run in a d; do
  equal "losses of $run" "$(steps $run/metrics.jsonl)" "$(steps second/metrics.jsonl)"
done
expect 0 "$lyceum" eval --checkpoint=a --data.valid=data/many --batches 2
says out "loss"

# --- a damaged file is made again
rm -r "$index"
head -c 1000 /dev/zero >"$index"
expect 0 "$lyceum" "${packed[@]}" --run.dir=third
equal "losses with a new index" "$(steps third/metrics.jsonl)" "$(steps second/metrics.jsonl)"

# --- other documents with the same number of tokens
python3 - <<'END'
lines = open("many.jsonl").read().splitlines(True)
lines[11], lines[30_000] = lines[30_000], lines[11]
open("many.jsonl", "w").writelines(lines)
END
expect 0 "$lyceum" tokenize --input many.jsonl --tokenizer data/tokenizer.model --output data/many
before=$(sha256sum <"$index")
expect 0 "$lyceum" "${packed[@]}" --run.dir=fourth
[[ $(sha256sum <"$index") != "$before" ]] || fail "the index of other documents was used"

# --- merged token files
expect 0 "$lyceum" tokenize --merge data/many data/valid --output data/joined
says out "^ +[0-9]+ +[0-9]+  data/joined$"
cat data/many.bin data/valid.bin | cmp - data/joined.bin || fail "other tokens"
expect 0 "$lyceum" tokenize --merge data/joined --output data/copy
cmp data/joined.idx data/copy.idx || fail "another index of a copy"
printf 'data/many\n# a comment\ndata/valid\n' >list
expect 0 "$lyceum" tokenize --merge @list --output data/listed
cmp data/joined.idx data/listed.idx && cmp data/joined.json data/listed.json || fail "another result with a list"
printf '0.5 data/many\n0.5 data/valid\n' >list
expect 2 "$lyceum" tokenize --merge @list --output data/listed
says err "remove the weights"
expect 2 "$lyceum" tokenize --merge data/many data/many --output data/listed
says err "merge each once"
expect 2 "$lyceum" tokenize --merge data/many
says err "--output is missing"
expect 2 "$lyceum" tokenize --merge data/many --output data/listed --seed 3
says err "--seed has no effect with --merge"
expect 3 "$lyceum" tokenize --merge data/many data/absent --output data/listed
says err "data/absent"
expect 0 "$lyceum" "${packed[@]}" --run.dir=fifth --data.train=data/joined
echo "passed"
