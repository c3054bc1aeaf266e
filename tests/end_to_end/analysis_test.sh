#!/usr/bin/env bash
# Usage: analysis_test.sh LYCEUM SOURCE_DIR. Tests all outputs for the analysis of a run: console text in a file, the routing
# log as tables, page and CSV, the evaluations of a checkpoint (token logs, sweeps over experts, routing by data set,
# activation flow), and the drawings of scripts/analysis. LYCEUM_PYTHON names a Python with h5py.
. "$(dirname "$0")/lib.sh" "$@"
make_data
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
[[ -x $python ]] || fail "LYCEUM_PYTHON must name a Python with h5py: scripts/install-deps.sh"

expect 0 ranks 2 "${tiny[@]}" --parallel.expert=2 --moe.expert_sizes=16,16,16,16,24,24,32,48
# Output to a file has no escape codes and no lines that overwrite each other.
if LC_ALL=C grep -q $'[\r\033]' "$work/out"; then fail "console output in a file has terminal codes"; fi
equal "lines of steps" "$(grep -Ec '^ *[0-9]+/12 ' "$work/out")" 12
says out "validation loss [0-9.]+ nats per token · unigram entropy of all [0-9]+ validation tokens [0-9.]+"
[[ ! -s $work/err ]] || fail "a successful run prints to stderr"

# Two layers with experts, top-2, 8 experts; 12 steps of 256 tokens in records of 4 steps.
expect 0 "$lyceum" routing dump "$work/run" --csv -
"$python" - "$work/out" "$work/run/routing.h5" <<'END' || fail "the CSV differs from routing.h5"
import collections, csv, sys
import h5py
totals = collections.Counter()
with h5py.File(sys.argv[2]) as log:
    steps = list(log["step"])
    assert steps == [4, 8, 12], steps
    rows = list(csv.DictReader(open(sys.argv[1])))
    for row in rows:
        layer, step, choice, expert = (int(row[key]) for key in ("layer", "step", "choice", "expert"))
        count = log[f"layers/{layer:03}/counts"][steps.index(step), choice, expert]
        assert int(row["tokens"]) == count, (row, count)
        assert int(row["expert_size"]) == [16, 16, 16, 16, 24, 24, 32, 48][expert], row
        assert int(row["expert_rank"]) in (0, 1), row
        totals[layer, step, choice] += int(row["tokens"])
    assert len(rows) == 2 * 3 * 2 * 8, len(rows)
assert len(totals) == 2 * 3 * 2 and set(totals.values()) == {4 * 256}, totals
END

cp "$work/out" "$work/dumped.csv"
expect 0 "$lyceum" routing dump "$work/run" -
cmp "$work/out" "$work/dumped.csv" || fail "dump RUN - prints different output"
expect 0 "$lyceum" routing dump "$work/run"
cmp "$work/out" "$work/dumped.csv" || fail "dump without --csv prints different output"
expect 0 "$lyceum" routing dump "$work/run" --csv "$work/file.csv"
says out "^wrote .*file.csv: 3 records of 2 layers"
cmp "$work/file.csv" "$work/dumped.csv" || fail "dump to a file writes different output"
expect 0 "$lyceum" routing dump "$work/run" --every 2 --select-layers 0,2-5
grep -E '^(step|4,2,|12,2,)' "$work/dumped.csv" | cmp - "$work/out" || fail "dump selects other records"
expect 2 "$lyceum" routing dump "$work/run" --select-layers 0
says err "none of the selected layers has experts; the log has layers 1 to 2"
expect 2 "$lyceum" routing dump "$work/run" --select-layers 2-1
says err "'2-1' is not a layer or a range"
expect 2 "$lyceum" routing dump "$work/run" --every 0
says err "--every 0: must be at least 1"
expect 2 "$lyceum" routing report "$work/run" --every 2
says err "apply only to lyceum routing dump"

# Outputs never replace what a command reads, or a file of a run or of a checkpoint.
ln -s run "$work/same-run"
checkpoint=$(echo "$work"/run/checkpoints/step-*12)
keeps() {  # expected message, command…
  local before
  before=$(cat "$work/run"/*.* "$checkpoint"/* "$work"/data/* "$config" | sha256sum)
  expect 2 "${@:2}"
  says err "$1"
  equal "the files after ${*:2}" "$(cat "$work/run"/*.* "$checkpoint"/* "$work"/data/* "$config" | sha256sum)" "$before"
}
keeps "--csv .* would replace .*routing.h5, which is read" "$lyceum" routing dump "$work/run" --csv "$work/same-run/routing.h5"
keeps "--html .* would replace .*routing.h5, which is read" "$lyceum" routing report "$work/run" --html "$work/run/routing.h5"
keeps "--html .* would replace a file of the run $work/run" "$lyceum" compare "$work/run" --html "$work/same-run/metrics.jsonl"
keeps "--svg .* would replace .*, which is read" "$lyceum" plan "--config=$config" --svg "$config"
evaluated=("$lyceum" eval "--checkpoint=$work/run" --batches=1)
keeps "--routing .* would replace a file of the run" "${evaluated[@]}" --routing "$work/run/routing.h5"
keeps "--token-log .* would be in .*, which has checkpoints" "${evaluated[@]}" --token-log "$checkpoint/index.h5"
keeps "--html .* would be in .*, which has checkpoints" "$lyceum" compare "$work/run" --html "$work/run/checkpoints/LATEST"
keeps "--token-log .* would replace .*, which is read" "${evaluated[@]}" "--config=$config" --token-log "$config"
keeps "--token-log .* would replace .*valid.bin, which is read" "${evaluated[@]}" --token-log "$work/data/valid.bin"
keeps "--routing and --token-log name the same file" "${evaluated[@]}" --routing "$work/both.h5" --token-log "$work/./both.h5"
keeps "--h5 .* would replace .*valid.idx, which is read" "$lyceum" routing domains "--checkpoint=$work/run" \
  --data "all=$work/data/valid" --h5 "$work/data/valid.idx"

# The values of single steps in routing.h5 are those in metrics.jsonl.
"$python" - "$work/run" <<'END' || fail "the figures of single steps differ between routing.h5 and metrics.jsonl"
import json, sys
import h5py, numpy as np
steps = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
with h5py.File(sys.argv[1] + "/routing.h5") as log:
    routers = [log[f"layers/{name}"] for name in log["layers"]]
    column = lambda name: np.array([router[name][:] for router in routers], dtype=float)
    for record, last in enumerate(log["step"][:]):
        of = [line for line in steps if last - 4 < line["step"] <= last]
        assert len(of) == 4
        assert np.isclose(column("step_max_vio_max")[:, record].max(), max(s["load_imbalance"] for s in of) - 1, atol=1e-6)
        assert np.isclose(column("step_idle_mean")[:, record].sum(), np.mean([s["idle_experts"] for s in of]))
    assert (column("step_max_vio_mean") <= column("step_max_vio_max")).all()
    sums = np.array([router["counts"][:].sum(axis=1) for router in routers])
    assert (sums.max(axis=-1) / sums.mean(axis=-1) - 1 <= column("step_max_vio_mean") + 1e-6).all(), "a sum is more even"
    assert len(log.attrs["run_uuid"]) == 36 and "training run " + sys.argv[1] in log.attrs["description"]
END

expect 0 "$lyceum" routing report "$work/run"
says out "top0"
says out "^Single steps: MaxVio and idle experts"
width=$(grep -oP '^mean width of the chosen experts \K[0-9.]+(?=, of all experts 24.0$)' "$work/out") || fail "no mean width was printed"
"$python" - "$work/run/routing.h5" "$width" <<'END' || fail "the mean width is not that of the choices"
import sys
import h5py
with h5py.File(sys.argv[1]) as log:
    counts = sum(log[f"layers/{layer:03}/counts"][-1].sum(axis=0) for layer in (1, 2))  # one record: a quarter of three
    mean = (counts * log["layers/001"].attrs["expert_sizes"]).sum() / counts.sum()
assert abs(mean - float(sys.argv[2])) <= 0.06, (mean, sys.argv[2])
END
expect 0 "$lyceum" routing report "$work/run/routing.h5" --html "$work/page.html" --title "A run <of> ours"
"$python" - "$work/page.html" "$("$lyceum" --version | head -n 1 | cut -d ' ' -f 2-)" <<'END' || fail "the page is incomplete"
import html.parser, sys
text = open(sys.argv[1], encoding="utf-8").read()
assert "A run &lt;of&gt; ours" in text
assert text.count("<svg") >= 2 and text.rstrip().endswith("</html>")
assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text, "not self-contained"
class Balance(html.parser.HTMLParser):
    open = []
    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br", "hr", "img", "link", "col", "input"):
            self.open.append(tag)
    def handle_startendtag(self, tag, attributes):
        pass
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
page = Balance()
page.feed(text)
assert not page.open, page.open
for fact in ("<dt>Program</dt><dd>" + sys.argv[2], "<dt>Mesh</dt>", "expert_sizes = 16,16,16,16,24,24,32,48", "Learning rate",
             "Gradient norm"):
    assert fact in text, fact
END
# The pictures of the maps, read by another decoder, are black exactly at experts without tokens in routing.h5.
"$python" - "$work/page.html" "$work/run/routing.h5" <<'END' || fail "the maps differ from routing.h5"
import base64, re, struct, sys, zlib
import h5py

def pixels(uri):
    png = base64.b64decode(uri)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        size, = struct.unpack(">I", png[at:at + 4])
        assert struct.unpack(">I", png[at + 8 + size:at + 12 + size])[0] == zlib.crc32(png[at + 4:at + 8 + size])
        chunks[png[at + 4:at + 8]] = png[at + 8:at + 8 + size]
        at += 12 + size
    width, height, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, kind) == (4, 3)
    data, row = zlib.decompress(chunks[b"IDAT"]), 1 + (width + 1) // 2
    assert len(data) == height * row
    return [[data[y * row + 1 + x // 2] >> (4 if x % 2 == 0 else 0) & 15 for x in range(width)] for y in range(height)]

text = open(sys.argv[1], encoding="utf-8").read()
maps = re.findall(r'data-row="expert"[^>]*><img alt="Layer (\d+):[^"]*" src="data:image/png;base64,([^"]*)"', text)
assert len(maps) == 2 * (1 + 2), len(maps)
with h5py.File(sys.argv[2]) as log:
    for n, (layer, uri) in enumerate(maps):
        counts = log[f"layers/{int(layer):03}/counts"][:]
        counts = counts.sum(axis=1) if n % 3 == 0 else counts[:, n % 3 - 1]  # all choices together, then each choice
        got = pixels(uri)
        for e in range(8):
            for r in range(3):
                load = counts[r, e] * 8 / counts[r].sum()
                assert (got[e][r] == 13) == (load == 0) and (got[e][r] < 13 or load == 0), (layer, n, e, r, got[e][r])
                assert load == 0 or not 0.9 < load < 1.1 or got[e][r] == 6, (layer, n, e, r, load, got[e][r])
END

# With 64 experts and 64 tokens per step, some experts have no token for two steps, and have tokens again later. The expected
# numbers are counted from the log of every step.
few=("${tiny[@]}" "--run.dir=$work/few" --moe.experts=64 --batch.global=2 --routing.every=1 --routing.dead_after=2)
expect 0 "$lyceum" "${few[@]}"
says out "^warning: step [0-9]+: dead experts, no token for 2 steps: layer [12]: [0-9].* of 64 dead\)$"
says out "^step [0-9]+: experts that receive tokens again: layer [12]: [0-9].* of 64 dead\)$"
"$python" - "$work/few" <<'END' || fail "dead_experts differs from routing.h5"
import json, sys
import h5py
with h5py.File(sys.argv[1] + "/routing.h5") as log:
    counts = [log[f"layers/{layer:03}/counts"][:].sum(axis=1) for layer in (1, 2)]
reported = [json.loads(line)["dead_experts"] for line in open(sys.argv[1] + "/metrics.jsonl")]
expected = [int(sum(((c[step] == 0) & (c[step - 1] == 0)).sum() for c in counts)) if step else 0 for step in range(12)]
assert reported == expected and max(reported) > 0, (reported, expected)
END
# A finished run records no further start. A page of a log without the run's other files states which files are missing.
expect 0 "$lyceum" "${few[@]}"
equal "starts" "$(wc -l <"$work/few/starts.jsonl")" 1
mkdir "$work/alone" && cp "$work/few/routing.h5" "$work/alone"
expect 0 "$lyceum" routing report "$work/alone" --html "$work/page.html"
for what in metrics.jsonl starts.jsonl; do
  grep -q "<p class=\"missing\">No $work/alone/$what: " "$work/page.html" || fail "the page does not report that $what is missing"
done
printf '{"step": 0\n' >"$work/alone/starts.jsonl"
expect 3 "$lyceum" routing report "$work/alone" --html "$work/page.html"
says err "starts.jsonl: line 1 is damaged, since it does not describe a start of a run"

expect 0 "$python" "$source/scripts/analysis/routing.py" "$work/run/routing.h5" --out "$work/routing.svg"
grep -q "Load of each expert .*, steps 9 to 12" "$work/routing.svg" || fail "no title with the steps of the newest record"
expect 4 "$python" "$source/scripts/analysis/routing.py" "$work/run" --out "$work/missing/routing.png"
says err "^routing.py: cannot write $work/missing/routing.png: No such file or directory"
expert_load=("$python" "$source/scripts/analysis/expert_load.py" "--lyceum=$lyceum" --out "$work/load.png" --exponents=0,1 "--config=$config")
expect 0 "${expert_load[@]}" --ranks=2 --parallel.expert=2
[[ -s $work/load.png ]] || fail "no picture of loads"
expect 3 "${expert_load[@]}" --parallel.expert=1
says err '^expert_load.py: .*set parallel.expert above 1'

# --- evaluations of a checkpoint: losses and experts of every token, on one rank and on four
log_tokens() { expect 0 "$lyceum" eval "--checkpoint=$work/run/checkpoints$2" "--batches=$3" "--token-log=$work/$1.h5"; }
log_tokens old /step-00000005 2
log_tokens less "" 1
# Logs are written although the results cannot be printed, and nothing that is no regular file is replaced.
"$lyceum" eval "--checkpoint=$work/run" --batches=1 "--token-log=$work/kept.h5" "--routing=$work/counted.h5" >/dev/full 2>"$work/err" &&
  fail "the error does not report that nothing could be printed"
[[ -s $work/kept.h5 && -s $work/counted.h5 ]] || fail "logs were lost with the results"
for option in --token-log --routing; do
  expect 4 flock "$work/busy.h5.partial" "$lyceum" eval "--checkpoint=$work/run" --batches=1 "$option=$work/busy.h5"
  says err 'busy.h5 cannot be written: another process is writing it'
  [[ ! -e $work/busy.h5 ]] || fail "$option wrote a file that another process was writing"
done
mkfifo "$work/pipe"
expect 2 "$lyceum" compare "$work/run" --html "$work/pipe"
says err '^lyceum compare: --html .*/pipe is not a file'
# The results are printed although the end of the log is not written.
limit=$(($(stat -c %s "$work/less.h5") / 1024 - 1))
(ulimit -f $limit && exec "$lyceum" eval "--checkpoint=$work/run" --batches=1 "--token-log=$work/cut.h5") >"$work/out" 2>"$work/err" &&
  fail "the error does not report the full disk"
says out '^loss +[0-9.]+ nats per token'
says err 'cut.h5.partial: cannot .*File too large'
log_tokens new "" 2
says out '^mean width of the chosen experts [0-9.]+, of all experts 24.0$'
four=(--parallel.pipeline=2 --parallel.tensor=2 --parallel.expert=2 --batch.micro=2 --json)
expect 0 ranks 4 eval "--checkpoint=$work/run" --batches=2 "--token-log=$work/four.h5" "${four[@]}" "--routing=$work/counts.h5"
cp "$work/out" "$work/four.json"
expect 0 "$lyceum" routing difficult "$work/old.h5" "$work/new.h5" --thresholds=3,5.9,5.7 --json
"$python" - "$work" <<'END' || fail "wrong token logs or results from them"
import json, sys
import h5py
import numpy as np
work = sys.argv[1]
old, new, four = (h5py.File(f"{work}/{name}.h5") for name in ("old", "new", "four"))
evaluation = json.load(open(f"{work}/four.json"))
tokens = np.fromfile(f"{work}/data/valid.bin", np.uint16)
sizes = np.array([16, 16, 16, 16, 24, 24, 32, 48])
assert len(new["loss"]) == evaluation["tokens"] == 2 * 8 * 32
assert abs(new["loss"][:].mean() - evaluation["loss"]) < 1e-5
chosen = np.stack([four[f"layers/{layer:03}/chosen"][:] for layer in (1, 2)])
assert abs(sizes[chosen].mean() - evaluation["chosen_width"]) < 1e-9
with h5py.File(f"{work}/counts.h5") as counts:
    for layer, choices in zip((1, 2), chosen):
        for k in range(2):
            assert (np.bincount(choices[:, k], minlength=8) == counts[f"layers/{layer:03}/counts"][0, k]).all()
for name in "token", "source", "target":
    assert (new[name][:] == four[name][:]).all(), name
assert (new["source"][:] == tokens[new["token"][:]]).all() and (new["target"][:] == tokens[new["token"][:] + 1]).all()
assert np.abs(new["loss"][:] - four["loss"][:]).max() < 1e-4
for layer in "layers/001", "layers/002":
    assert (new[layer + "/chosen"][:] == four[layer + "/chosen"][:]).mean() > 0.999  # equal except for ties within rounding
    assert np.abs(new[layer + "/gate"][:] - four[layer + "/gate"][:]).max() < 1e-3
    gate = new[layer + "/gate"]
    assert [axis.label for axis in gate.dims] == ["token", "choice"] and gate.dims[0][0] == new["token"]
    assert gate.attrs["units"] == "1" and (gate.attrs["expert_sizes"] == sizes).all()
assert new["loss"].attrs["units"] == "nats" and new.attrs["step"] == 12 and old.attrs["step"] == 5

reported = json.load(open(f"{work}/out"))
a, b = old["loss"][:].astype(float), new["loss"][:].astype(float)
assert [row["threshold"] for row in reported["loss_reduction"]] == [5.9, 5.7, 3]
for row in reported["loss_reduction"]:
    hard = a > row["threshold"]
    assert row["tokens"] == hard.sum() > 0, row
    assert abs(row["reduction"] - (a[hard].mean() - b[hard].mean())) < 1e-9, row
hard = a > 5.9
chosen = np.stack([new[f"layers/{layer:03}/chosen"][:] for layer in (1, 2)])
for row in reported["widths"]:
    here = sizes[chosen] == row["width"]
    assert row["choices"] == here[:, hard].sum() and row["first_choices"] == here[:, hard, 0].sum(), row
    assert row["all_choices"] == here.sum() and row["experts"] == 2 * (sizes == row["width"]).sum(), row
assert [row["width"] for row in reported["widths"]] == [48, 32, 24, 16]
assert reported["wider"]["choices"] == (sizes[chosen][:, hard] > 24).sum()
assert reported["narrower"]["choices"] == (sizes[chosen][:, hard] < 24).sum()
END
expect 0 "$lyceum" routing difficult "$work/old.h5" "$work/new.h5" --layers
says out '^ *all tokens +512 +100.0 %'
says out '^layer2 top1 '
expect 3 "$lyceum" routing difficult "$work/old.h5" "$work/less.h5"
says err "old.h5 has 512 tokens, .*less.h5 has 256: evaluate both models on the same data"
expect 3 "$lyceum" routing difficult "$work/old.h5" "$work/run/routing.h5"
says err "routing.h5: is not a token log"
expect 2 "$lyceum" routing difficult "$work/old.h5"

# The losses of a sweep equal those of eval.
sweep=("$python" "$source/scripts/analysis/expert_sweep.py" "--lyceum=$lyceum" --batches=1 --ratios=0,1/4 --out "$work/sweep.png")
expect 0 "${sweep[@]}" "twelve=$work/run"
says out "4/4  twelve  --moe.shared_experts=0 --moe.top_k=3: "
for change in --skip-top=2 --moe.top_k=1; do
  expect 0 "$lyceum" eval "--checkpoint=$work/run" --batches=1 "$change" --json
  "$python" - "$work" "$change" <<'END' || fail "wrong loss of the sweep with $change"
import json, sys
kept = json.load(open(sys.argv[1] + "/sweep.json"))["evaluations"]
found = [each["result"] for each in kept if each["arguments"] == ["--batches=1", sys.argv[2]]]
assert found == [json.load(open(sys.argv[1] + "/out"))], found
END
done

# --- routing by data set: shares and probabilities equal those counted here from eval on each set; on one rank and on four
encode() { expect 0 "$lyceum" tokenize --input "$source/$1" --model "$work/data/$3" "${@:4}" --output "$work/data/$2"; }
encode apps code tokenizer.model
encode apps other other.model --vocab 380 --sample-mb 1
sets=(--data "valid=$work/data/valid" --data "code=$work/data/code" --batches=2)
domains=("$lyceum" routing domains "--checkpoint=$work/run" "${sets[@]}")
expect 0 "${domains[@]}" --h5 "$work/domains.h5" --html "$work/domains.html"
says out '^layer2 +softmax +8 +2 +0\.[0-9]{4} +0\.[0-9]{4}  valid, code  [0-7] \((valid|code) [0-9.]+ %, '
cp "$work/out" "$work/domains.txt"
expect 0 ranks 4 routing domains "--checkpoint=$work/run" "${sets[@]}" "${four[@]}"
cp "$work/out" "$work/domains.json"
for set in valid code; do
  expect 0 "$lyceum" eval "--checkpoint=$work/run" --batches=2 "--data.valid=$work/data/$set" "--routing=$work/$set.h5" --json
  cp "$work/out" "$work/$set.json"
done
"$python" - "$work" <<'END_PYTHON' || fail "wrong routing by data set"
import json, re, sys
import xml.etree.ElementTree as tree
import h5py
import numpy as np
work = sys.argv[1]
file, reported = h5py.File(f"{work}/domains.h5"), json.load(open(f"{work}/domains.json"))
assert list(file.attrs["data_sets"]) == ["valid", "code"] == [each["name"] for each in reported["data_sets"]]
table = open(f"{work}/domains.txt").read()
shares = {}
for d, name in enumerate(("valid", "code")):
    log, evaluation = h5py.File(f"{work}/{name}.h5"), json.load(open(f"{work}/{name}.json"))
    assert file["tokens"][d] == evaluation["tokens"] == 512 and abs(file["loss"][d] - evaluation["loss"]) < 1e-9
    assert abs(reported["data_sets"][d]["loss"] - evaluation["loss"]) < 1e-5
    for i, layer in enumerate(("layers/001", "layers/002")):
        counts = log[f"{layer}/counts"][0]
        assert (file[f"{layer}/counts"][d] == counts).all()
        assert (file[f"{layer}/mean_probability"][d] == log[f"{layer}/mean_probability"][0]).all()
        share = shares[layer, name] = counts.sum(axis=0) / counts.sum()
        assert np.abs(file[f"{layer}/share"][d] - share).max() < 1e-12
        assert np.abs(reported["routers"][i]["share"][name] - share).max() < 2.5 / 1024  # one or two ties within rounding
        assert np.abs(reported["routers"][i]["mean_probability"][name] - log[f"{layer}/mean_probability"][0]).max() < 1e-5
page = tree.parse(f"{work}/domains.html").getroot()
titles = [each.text for each in page.iter() if each.tag.endswith("}title")]
for layer in "layers/001", "layers/002":
    share = file[f"{layer}/share"]
    assert [axis.label for axis in share.dims] == ["data_set", "expert"] and (share.attrs["expert_sizes"][-1] == 48)
    distance = np.abs(shares[layer, "valid"] - shares[layer, "code"]).sum() / 2
    assert distance > 0 and np.abs(file[f"{layer}/total_variation"][:] - [[0, distance], [distance, 0]]).max() < 1e-12
    row = re.search(rf"^layer{int(layer[-3:])} .*", table, re.M).group()
    assert f" {distance:.4f} " in row and f"  {np.argmax(np.abs(share[0] - share[1]))} (" in row, row
    for e in range(8):
        assert any(t.startswith(f"code, expert {e} of width") and f": {100 * share[1, e]:.2f} %" in t for t in titles), e
END_PYTHON
# Every kind of router, also in attention.
few_steps=("${tiny[@]}" --run.steps=1 --checkpoint.every=1)
expect 0 "$lyceum" "${few_steps[@]}" "--run.dir=$work/moa" --model.attention=moa --attention_experts.count=4 --attention_experts.top_k=2
expect 0 "$lyceum" "${few_steps[@]}" "--run.dir=$work/hash" --moe.router=hash --moe.top_k=1 --balance.expert=0
for model in moa hash; do
  expect 0 "$lyceum" routing domains "--checkpoint=$work/$model" "${sets[@]}" --h5 "$work/$model.h5"
done
"$python" - "$work" <<'END_PYTHON' || fail "wrong routing of attention experts or by hash"
import sys
import h5py
import numpy as np
work = sys.argv[1]
with h5py.File(f"{work}/moa.h5") as file:
    assert file["layers/000/attention/counts"].shape == (2, 2, 4) and file["layers/002/counts"].shape == (2, 2, 8)
    assert np.allclose(file["layers/000/attention/share"][:].sum(axis=1), 1)
with h5py.File(f"{work}/hash.h5") as file:
    for layer in "layers/001", "layers/002":  # its probability of a chosen expert is 1
        assert file[layer].attrs["router"] == "hash"
        assert np.abs(file[f"{layer}/share"][:] - file[f"{layer}/mean_probability"][:]).max() < 1e-6
END_PYTHON

# --- activation flow: the input of the first layer's attention is the RMSNorm of the embeddings; four ranks agree with one
flow=("$lyceum" routing flow "--checkpoint=$work/run" --data "$work/data/valid")
expect 0 "${flow[@]}" --h5 "$work/flow.h5" --html "$work/flow.html"
says out '^2 +FFN output +[0-9.]+ +[0-9.]+ % '
expect 0 ranks 4 routing flow "--checkpoint=$work/run" --data "$work/data/valid" --h5 "$work/flow4.h5" "${four[@]}" --parallel.sequence=true
"$python" - "$work" <<'END_PYTHON' || fail "wrong activation flow"
import json, sys
import xml.etree.ElementTree as tree
import h5py
import numpy as np
work, hidden, seq_len = sys.argv[1], 32, 32
one, four = h5py.File(f"{work}/flow.h5"), h5py.File(f"{work}/flow4.h5")
tree.parse(f"{work}/flow.html")
tokens = np.fromfile(f"{work}/data/valid.bin", np.uint16)
samples = (len(tokens) - 1) // seq_len
assert one.attrs["tokens"] == samples * seq_len
with h5py.File(f"{work}/run/checkpoints/step-00000012/index.h5") as weights:
    table, norm = weights["model/embed_tokens/weight"][:], weights["model/layers/0/input_layernorm/weight"][:]
x = table[tokens[:samples * seq_len]].astype(np.float64)
x = (x / np.sqrt((x ** 2).mean(axis=1, keepdims=True) + 1e-6) * norm) ** 2
read = one["layers/000/attention/input"]
order = -np.sort(-x, axis=1)
assert np.abs(read["magnitude"][:] - x.mean(axis=0)).max() < 1e-5
assert np.abs(read["top_share"][:] - (np.cumsum(order, axis=1) / x.sum(axis=1, keepdims=True)).mean(axis=0)).max() < 1e-5
assert abs(read.attrs["median"] - np.median(x, axis=1).mean()) < 1e-5
for q, part in enumerate((0.05, 0.1, 0.2, 0.5)):
    high = (x >= order[:, int(np.ceil(part * hidden)) - 1:][:, :1]).reshape(samples, seq_len, hidden)
    for w in range(1, 21):
        windows = np.stack([high[:, i:seq_len - w + 1 + i] for i in range(w)]).all(axis=0)
        assert abs(read["common"][q, w - 1] - windows.sum(axis=2).mean()) < 1e-3, (part, w)
    five = np.stack([high[:, i:seq_len - 4 + i] for i in range(5)]).sum(axis=0)
    assert np.abs(read["shared"][q] - [(five == n).sum(axis=2).mean() for n in range(6)]).max() < 1e-3, part
names = []
one.visititems(lambda name, each: names.append(name) if isinstance(each, h5py.Dataset) else None)
assert sum(name.startswith("layers/") for name in names) == 3 * 4 * 5
for name in names:
    assert np.allclose(one[name][:], four[name][:], rtol=2e-3, atol=1e-3), name  # except for ties within rounding
END_PYTHON
expect 0 "${flow[@]}" --batches=1 --json
"$python" -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["values"]) == 12' "$work/out" || fail "wrong JSON of flow"

# Mistakes are reported in one line, and nothing is written.
wrong() {
  expect "$1" "$lyceum" routing "${@:3}" --h5 "$work/wrong.h5" --html "$work/wrong.html"
  says err "^lyceum routing: .*$2"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
  [[ ! -e $work/wrong.h5 && ! -e $work/wrong.html ]] || fail "something was written"
}
on=("--checkpoint=$work/run" --data "valid=$work/data/valid")
expect 0 "$lyceum" "${few_steps[@]}" "--run.dir=$work/dense" --moe.experts=0 --moe.shared_experts=0
expect 0 "$lyceum" routing report "$work/dense" --html "$work/dense.html"
says out "^The model is dense: it has no router, so there is nothing to route"
grep -q "<h2>Loss</h2>" "$work/dense.html" || fail "the page of a dense run has no loss"
grep -q "The model is dense" "$work/dense.html" || fail "the page does not explain why it has no routing"
expect 2 "$lyceum" routing dump "$work/dense"
says err "routing.h5: The model is dense"
wrong 2 "this model has no experts to route to" domains "--checkpoint=$work/dense" --data "valid=$work/data/valid"
wrong 2 "the name valid occurs twice" domains "${on[@]}" --data "valid=$work/data/code"
wrong 2 "--data code: give a name and a prefix" domains "${on[@]}" --data code
wrong 2 "--data code=: give a name and a prefix" domains "${on[@]}" --data code=
wrong 2 "domains needs --data NAME=PREFIX" domains "--checkpoint=$work/run"
wrong 2 "flow needs one --data PREFIX" flow "--checkpoint=$work/run"
wrong 2 "--batches = -1" flow "--checkpoint=$work/run" --data "$work/data/valid" --batches=-1
wrong 2 "did you mean --data\?" domains "${on[@]}" --dta x
wrong 3 "$work/data/absent" domains "${on[@]}" --data "none=$work/data/absent"
wrong 3 "encoded with a different tokenizer" domains "${on[@]}" --data "other=$work/data/other"
wrong 3 "encoded with a different tokenizer" flow "--checkpoint=$work/run" --data "$work/data/other"
wrong 3 "$work/absent" flow "--checkpoint=$work/absent" --data "$work/data/valid"
# An existing file is replaced, as report and dump do; a folder is not.
echo old >"$work/replaced.html"
expect 0 "${domains[@]}" --h5 "$work/domains.h5" --html "$work/replaced.html"
cmp "$work/replaced.html" "$work/domains.html" || fail "domains does not replace the page"
expect 2 "${domains[@]}" --h5 "$work/fresh.h5" --html "$work"
says err "--html $work: is a folder"
expect 2 "${flow[@]}" --h5 "$work/absent/flow.h5"
says err "no such folder: $work/absent"
expect 2 "${flow[@]}" --h5 "$work/same" --html "$work/same"
[[ ! -e $work/fresh.h5 && ! -e $work/same ]] || fail "something was written"
