#!/usr/bin/env bash
# Usage: compare_test.sh LYCEUM SOURCE_DIR. `lyceum compare` on real runs: a resumed one, one in progress, one of another length and
# batch, damaged and missing ones.
. "$(dirname "$0")/lib.sh" "$@"
make_data
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/short" --run.steps=8
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/long" --run.steps=12 --batch.global=4 --optim.lr=1e-3
cp -r "$work/long" "$work/growing"
printf '{"step":13,"lo' >>"$work/growing/metrics.jsonl"

# --- the table has the numbers of the files
expect 0 "$lyceum" compare "$work/short" "$work/long/metrics.jsonl" "$work/growing" --html "$work/page.html"
says out '^run +short +long +growing$'
says out '^steps +8 +12 +12$'
says out "^loss at step 8 +$(printf %.4f "$(metric "$work/short/metrics.jsonl" 8 loss)") +$(printf %.4f "$(metric "$work/long/metrics.jsonl" 8 loss)")"
# The short run has 2,048 tokens after 8 steps, the long one 1,536 after 12: that is step 6 of the short run.
says out "^loss at 1,536 tokens +$(printf %.4f "$(metric "$work/short/metrics.jsonl" 6 loss)") +$(printf %.4f "$(metric "$work/long/metrics.jsonl" 12 loss)")"
says out "^validation loss, last +$(printf %.4f "$(metric "$work/short/metrics.jsonl" 8 valid_loss)")"
says out '^batch.global +8 +4 +4$'
says out '^optim.lr +0.003 +0.001 +0.001$'
! grep -q '^run.dir\|^run.seed' "$work/out" || fail "keys that are equal, or the folder, are listed"
python3 - "$work/page.html" <<'END' || fail "the page is not valid XML with a line per run"
import json, sys, xml.etree.ElementTree as tree
page = tree.parse(sys.argv[1])
charts = [json.loads(e.get("data-lines")) for e in page.iter() if e.get("data-lines")]
assert len(charts) >= 7, len(charts)
assert all([line["name"] for line in chart] == ["short", "long", "growing"] for chart in charts), charts[0]
assert len(charts[0][0]["points"]) == 8 and len(charts[0][2]["points"]) == 12
assert not any(word in tree.tostring(page.getroot(), "unicode") for word in ("http://cdn", "https://")), "not self-contained"
END

expect 0 "$lyceum" compare "$work/short" "$work/long" --json --steps 2,5 --tokens 1e3
python3 - "$work/out" "$work/short/metrics.jsonl" "$work/long/metrics.jsonl" <<'END' || fail "--json"
import json, sys
out = json.load(open(sys.argv[1]))
files = [[json.loads(line) for line in open(name)] for name in sys.argv[2:]]
for run, file in zip(out["runs"], files):
    assert [m["step"] for m in run["at_steps"]] == [2, 5], run
    for m in run["at_steps"]:
        assert m["loss"] == file[m["step"] - 1]["loss"], (m, file)
    before = [line for line in file if line["tokens"] <= 1000]
    assert run["at_tokens"][0]["loss"] == before[-1]["loss"]
    assert run["tokens"] == file[-1]["tokens"]
    speeds = sorted(line["tokens_per_second"] for line in file)
    middle = speeds[(len(speeds) - 1) // 2]
    assert abs(run["tokens_per_second"] - middle) <= 0.003 * middle
assert "optim.lr" in out["differing_keys"]
END

# --- a run that was resumed, also if repeated lines were left in the file
rm -rf "$work"/short/checkpoints/step-00000008
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/short" --run.steps=8
expect 0 "$lyceum" compare "$work/short"
says out '^steps +8$'
head -n 3 "$work/long/metrics.jsonl" >"$work/joined.jsonl"
cat "$work/short/metrics.jsonl" >>"$work/joined.jsonl"
expect 0 "$lyceum" compare "$work/joined.jsonl" "$work/short" --json
python3 -c 'import json, sys; a, b = json.load(open(sys.argv[1]))["runs"]; sys.exit(a["at_steps"] != b["at_steps"])' "$work/out" ||
  fail "lines that a later one repeats count"

# --- wrong input
expect 2 "$lyceum" compare
says err 'name the runs to compare'
expect 2 "$lyceum" compare "$work/short" --steps 5,2
says err 'must ascend'
expect 2 "$lyceum" compare "$work/short" --tokens 1.5
says err "'1.5' is not a whole number"
expect 2 "$lyceum" compare "$work/short" --title x
expect 2 "$lyceum" compare "$work/short" --nonsense
expect 3 "$lyceum" compare "$work/nowhere"
says err 'nowhere: no such run: give the folder of a run or its metrics.jsonl'
expect 3 "$lyceum" compare "$work/data"
says err 'this folder has no metrics.jsonl'
sed -i '5s/^{"step":5,"time"/{"step":5 "time"/' "$work/long/metrics.jsonl"
expect 3 "$lyceum" compare "$work/short" "$work/long"
says err 'long/metrics.jsonl: line 5 is damaged'
expect 4 "$lyceum" compare "$work/short" --html "$work/nowhere/page.html"
