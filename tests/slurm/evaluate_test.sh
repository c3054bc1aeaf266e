#!/usr/bin/env bash
# Usage: evaluate_test.sh LYCEUM SOURCE_DIR. Tests the batch scripts that read a checkpoint.
. "$(dirname "$0")/lib.sh" "$@"
make_data
start_lab
job=(--nodes=2 --ntasks-per-node=1)
submit "${job[@]}" "$scripts/train.sbatch" "$config" --parallel.expert=2
complete 120 "$id"
checkpoint=$work/run/checkpoints/step-00000012

submit "${job[@]}" "$scripts/evaluate.sbatch" "$checkpoint" --batches=2 --json
complete 60 "$id"
close "loss against training's own" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["loss"])' "$work/$id.log")" \
  "$(metric "$work/run/metrics.jsonl" 12 valid_loss)" 1e-6

submit "${job[@]}" "$scripts/routing.sbatch" "$work/run/checkpoints" "$work/routing" "--data.valid=$work/data/train" --batches=3
complete 60 "$id"
expect_log "$id" "^layer1 top0 +[0-9]"
[[ -s $work/routing.h5 && -s $work/routing.html ]] || fail "routing.h5 or routing.html is missing"
python3 - "$work/routing.csv" $((3 * 8 * 32)) <<'END' || fail "routing.csv does not count every token of the corpus once per choice"
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
tokens, chances = {}, {}
for r in rows:
    key = r["step"], r["layer"], r["choice"]
    tokens[key] = tokens.get(key, 0) + int(r["tokens"])
    chances[key] = chances.get(key, 0) + float(r["mean_probability"])
layers, choices = {k[1] for k in tokens}, {k[2] for k in tokens}
good = layers == {"1", "2"} and choices == {"0", "1"} and {k[0] for k in tokens} == {"12"}
good = good and all(n == int(sys.argv[2]) for n in tokens.values()) and all(abs(p - 1) < 1e-4 for p in chances.values())
sys.exit(not good)
END

for script in evaluate routing; do
  submit "$scripts/$script.sbatch" "$work/nowhere"
  ends_as FAILED 60 "$id"
  expect_log "$id" "no checkpoint '$work/nowhere'"
done
submit "$scripts/train.sbatch" "$work/nowhere.ini"
ends_as FAILED 60 "$id"
expect_log "$id" "no configuration '$work/nowhere.ini': sbatch train.sbatch CONFIG"
LYCEUM=$work/nothing submit "$scripts/train.sbatch" "$config"
ends_as FAILED 60 "$id"
expect_log "$id" "no program at $work/nothing"
