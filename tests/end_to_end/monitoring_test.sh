#!/usr/bin/env bash
# Usage: monitoring_test.sh LYCEUM SOURCE_DIR. The readers of TensorBoard and Prometheus find the values of metrics.jsonl in a
# run's files, also for a resumed run that repeated steps.
. "$(dirname "$0")/lib.sh" "$@"
make_data
python=${LYCEUM_PYTHON:-python3}
watched=("${tiny[@]}" --run.tensorboard=true "--run.prometheus=$work/lyceum.prom" "--run.dir=$work/run" --checkpoint.every=4)

expect 0 "$lyceum" "${watched[@]}" --run.steps=4
expect 0 "$lyceum" "${watched[@]}" --run.steps=7
rm -r "$work/run/checkpoints/step-00000007"
expect 0 "$lyceum" "${watched[@]}" --run.steps=9
says out "resumed .*step-00000004"
"$python" - "$work/run" "$work/lyceum.prom" >"$work/out" 2>"$work/err" <<'END' || fail "the readers find other values"
import json, math, struct, sys
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run, prom = sys.argv[1:]
records = [json.loads(line) for line in open(run + "/metrics.jsonl")]
assert [record["step"] for record in records] == list(range(1, 10)), records
times = [record["time"] for record in records]
assert times == sorted(times) and times[0] > 1.7e9, times

events = EventAccumulator(run + "/tensorboard", size_guidance={"scalars": 0}).Reload()
found = {tag.split("/")[1]: events.Scalars(tag) for tag in events.Tags()["scalars"]}
wanted = {key for record in records for key in record if key not in ("step", "time")}
assert set(found) == wanted, set(found) ^ wanted
for key in wanted:
    f32 = [(r["step"], struct.unpack("f", struct.pack("f", r[key]))[0]) for r in records if key in r]
    assert [(event.step, event.value) for event in found[key]] == f32, (key, found[key], f32)
assert [event.wall_time for event in found["loss"]] == times

last = records[-1]
gauges = {family.name: family for family in text_string_to_metric_families(open(prom).read())}
assert set(gauges) == {"lyceum_" + key for key in last}, set(gauges)
for key, value in last.items():
    (sample,) = gauges["lyceum_" + key].samples
    assert sample.labels == {"run": run} and math.isclose(sample.value, value, rel_tol=1e-15), sample
END

# The norms of layers are in metrics.jsonl, in TensorBoard and on the page of the run.
expect 0 ranks 2 "${tiny[@]}" "--run.dir=$work/layers" --run.steps=4 --run.layer_metrics_every=2 --run.tensorboard=true
"$python" - "$work/layers" <<'END' || fail "other norms of layers"
import json, math, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

records = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
for record in records:
    keys = [key for key in record if key.startswith("layer_")]
    if record["step"] % 2:
        assert not keys and "largest_logit" not in record, record
        continue
    layers = ["embedding", "0", "1", "2", "head"]
    assert keys == [f"layer_{kind}_norm/{layer}" for kind in ("weight", "grad") for layer in layers] + \
        [f"layer_{kind}/{layer}" for kind in ("activation_norm", "attention_logit") for layer in layers[1:-1]], keys
    for kind in "weight", "grad":
        norm = math.sqrt(sum(record[f"layer_{kind}_norm/{layer}"] ** 2 for layer in layers))
        assert math.isclose(norm, record[kind + "_norm"], rel_tol=1e-12), (kind, norm, record)
    assert all(record[key] > 0 for key in keys) and math.isfinite(record["largest_logit"]), record
tags = EventAccumulator(sys.argv[1] + "/tensorboard").Reload().Tags()["scalars"]
assert "layers/layer_grad_norm/head" in tags and "layers/largest_logit" in tags, tags
END
expect 0 "$lyceum" routing report "$work/layers/routing.h5" --html "$work/layers.html"
grep -q "<h2>Norms by layer</h2>" "$work/layers.html" || fail "the page has no norms of layers"
expect 2 "$lyceum" "${tiny[@]}" "--run.dir=$work/layers" --run.layer_metrics_every=-1
says err "run.layer_metrics_every = -1 on the command line: must be >= 0"

# A failure to write is reported once, and training continues.
mkdir "$work/folder.prom"
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/other" --run.steps=5 "--run.prometheus=$work/folder.prom"
equal "warnings" "$(grep -c "^warning: .*folder.prom.*training continues" "$work/out")" 1
expect 2 "$lyceum" "${tiny[@]}" "--run.dir=$work/other" --run.prometheus=metrics.txt
says err "run.prometheus = metrics.txt: .*\.prom"

# --- run.metrics_every: events always have a line, and a resumed run misses none
thinned=("${tiny[@]}" "--run.dir=$work/thinned" --run.metrics_every=5 --eval.every=7 --checkpoint.every=8 --run.tensorboard=true)
lines() { python3 -c 'import json, sys; print(*[json.loads(line)["step"] for line in open(sys.argv[1])])' "$1/metrics.jsonl"; }
expect 0 "$lyceum" "${thinned[@]}" --run.steps=12
equal "steps with a line" "$(lines "$work/thinned")" "1 5 7 8 10 12"
rm -r "$work/thinned/checkpoints/step-00000012"
expect 0 "$lyceum" "${thinned[@]}" --run.steps=18
says out "metrics    2 lines removed"
if grep -q "metrics.jsonl lacks" "$work/out" "$work/err"; then fail "a warning of missing steps: $(cat "$work/out")"; fi
equal "steps with a line after resuming" "$(lines "$work/thinned")" "1 5 7 8 9 10 14 15 16 18"
whole=("${tiny[@]}" "--run.dir=$work/whole" --eval.every=7 --checkpoint.every=8)
expect 0 "$lyceum" "${whole[@]}" --run.steps=12
rm -r "$work/whole/checkpoints/step-00000012"
expect 0 "$lyceum" "${whole[@]}" --run.steps=18
"$python" - "$work/thinned" "$work/whole" <<'END' || fail "thinned metrics differ from those of every step"
import json, sys
thinned, whole = ({r["step"]: r for r in map(json.loads, open(run + "/metrics.jsonl"))} for run in sys.argv[1:])
assert set(whole) == set(range(1, 19)), whole
measured = "time", "tokens_per_second", "step_ms", "mfu", "memory_peak_bytes", "resident_peak_bytes"
extra = "interval_steps", "interval_ms"
for step, record in thinned.items():
    for key, value in record.items():
        assert key in measured + extra or whole[step][key] == value, (step, key)
assert [r["interval_steps"] for r in thinned.values()] == [1, 4, 2, 1, 1, 1, 4, 1, 1, 2], thinned
assert all("interval_steps" not in record for record in whole.values())
END
expect 0 "$lyceum" compare "$work/thinned" "$work/whole" --json
expect 2 "$lyceum" "${tiny[@]}" "--run.dir=$work/other" --run.metrics_every=0
says err "run.metrics_every"
