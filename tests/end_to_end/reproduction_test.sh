#!/usr/bin/env bash
# Usage: reproduction_test.sh LYCEUM SOURCE_DIR. Tests scripts/papers/run.sh: two experiments in their quick form make their
# pages, an interrupted one resumes, a finished one is not repeated, and other seeds are listed next to the first.
# LYCEUM_PYTHON names a Python with h5py and matplotlib.
. "$(dirname "$0")/lib.sh" "$@"
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
reproduce=("$source/scripts/papers/run.sh" --lyceum "$lyceum" --work "$work/papers" --cores 2 --quick)
pages=$work/papers/pages

expect 2 "${reproduce[@]}" no-such-name
says err "invalid choice: 'no-such-name' .*smoe-dropout"
expect 2 "${reproduce[@]}" balance --minutes 0
says err "^scripts/papers/run.sh: error: --minutes 0: must be above 0"
expect 2 "$source/scripts/papers/run.sh" balance --quick --lyceum "$work/no-program"
says err "^run.sh: the program $work/no-program does not exist"

# Ctrl-C while models are trained: their checkpoints are saved, and no incomplete page is written.
"${reproduce[@]}" moduleformer >"$work/out" 2>"$work/err" &
job=$!
for ((i = 0; i < 600; i++)); do
  ! compgen -G "$work/papers/models/*/metrics.jsonl" >/dev/null || break
  kill -0 "$job" 2>/dev/null || break
  sleep 0.1
done
kill -INT "$job"
finish
equal "exit code after Ctrl-C" "$code" 75
says err "^stopped; run the same command to resume$"
[[ ! -e $pages ]] || fail "an interrupted experiment left a page"

for name in moduleformer smoe-dropout; do
  expect 0 "${reproduce[@]}" "$name"
  says out "^$name: $pages/$name.md$"
done
"$python" - "$pages" "$source/scripts/papers" <<'END' || fail "the pages differ from the results of the runs"
import json, math, pathlib, sys
sys.path.insert(0, sys.argv[2])
import experiments
pages = pathlib.Path(sys.argv[1])
for name, claims in (("moduleformer", 8), ("smoe-dropout", 15)):
    text, kept = (pages / f"{name}.md").read_text(), json.loads((pages / f"{name}.json").read_text())
    assert len(kept["claims"]) == claims and kept["made"]["seeds"] == 2 and kept["made"]["steps"] == 20
    for claim in kept["claims"]:
        assert claim["text"] in text.replace("\\|", "|") and claim["verdict"] in ("reproduced", "not seen", "opposite"), claim
    assert str(pages.parent) not in text, "a path of this machine"
    assert (pages / f"{name}.png").stat().st_size > 10_000
    bits = kept["results"]["bits_per_byte"]
    assert "## Bits per byte" in text and bits and all(0 < each < 8 for seeds in bits.values() for each in seeds), bits
scores = json.loads((pages / "moduleformer.json").read_text())["results"]["tuned_score"]
assert len(scores) == 16 and all(len(seeds) == 2 and 0 <= each <= 100 for seeds in scores.values() for each in seeds), scores
results = json.loads((pages / "smoe-dropout.json").read_text())["results"]
# The loss starts at ln 512 and decreases, with any number of experts.
losses = [loss for by_model in (*results["top_k"].values(), results["dense"]) for seeds in by_model.values() for loss in seeds]
assert len(losses) == 2 * (3 * 8 + 4) and all(4 < loss < math.log(512) for loss in losses), losses
summary = (pages / "README.md").read_text()
assert summary.count("defined, not run yet") == len(list(experiments.all_of_them)) - 2 and "[SMoE-Dropout" in summary, summary
unseen = [claim for name in ("moduleformer", "smoe-dropout") for claim in json.loads((pages / f"{name}.json").read_text())["claims"] if claim["verdict"] == "not seen"]
needed = summary.split("## What claims that are not seen would need")[1].split("## To run")[0]
assert all(claim["text"] in needed.replace("\\|", "|") for claim in unseen) and needed.count("\n| [") == len(unseen), summary
END
cp "$pages/smoe-dropout.json" "$work/first.json"
cp "$pages/README.md" "$work/README.md"
expect 0 "${reproduce[@]}" summary
cmp "$pages/README.md" "$work/README.md" || fail "the table of all claims differs if it is made again"
expect 2 "${reproduce[@]}" summary --out "$work/no-pages"
says err "^run.sh: the folder $work/no-pages has no pages"
expect 0 "${reproduce[@]}" smoe-dropout
! grep -q '^training' "$work/out" || fail "finished models were trained again"
"$python" -c 'import json, sys; a, b = (json.load(open(path))["results"] for path in sys.argv[1:]); sys.exit(a != b)' \
  "$pages/smoe-dropout.json" "$work/first.json" || fail "the same command gave other figures"

# The configurations of all models that are trained from scratch are valid.
"$python" - "$lyceum" "$source/scripts/papers" "$work/plans" <<'END' || fail "a model has no valid configuration"
import pathlib, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, sys.argv[2])
import experiments
from lab import _write_config
def message(model):
    keys = experiments.base(quick=False) | {"optim.warmup_steps": 240, "data.train": "1 x", "data.tokenizer": "x.model", "run.steps": 2400} | model.keys
    config = _write_config(pathlib.Path(sys.argv[3], model.name), keys)
    return subprocess.run([sys.argv[1], "plan", "--config", config, "--ranks", "1"], capture_output=True, text=True).stderr
models = {model.name: model for experiment in experiments.all_of_them.values() for model in experiment.models}
with ThreadPoolExecutor(2) as pool:
    messages = {name: text for name, text in zip(models, pool.map(message, models.values())) if text}
assert len(models) > 60 and not messages, messages
END

# Other seeds do not change the page, and are listed next to the first one in the table of all claims.
cp "$pages/smoe-dropout.md" "$work/first.md"
expect 0 "${reproduce[@]}" smoe-dropout --first-seed 3
says out "^smoe-dropout: $pages/smoe-dropout-seeds-3-4.json$"
cmp "$pages/smoe-dropout.md" "$work/first.md" || fail "other seeds changed the page"
"$python" - "$pages" <<'END' || fail "other seeds are not in the table of all claims"
import json, pathlib, sys
pages = pathlib.Path(sys.argv[1])
first, other = (json.loads((pages / f"smoe-dropout{name}.json").read_text()) for name in ("", "-seeds-3-4"))
assert first["results"]["dense"] != other["results"]["dense"]
summary = (pages / "README.md").read_text()
assert summary.count("(seeds 3 to 4)") == len(first["claims"]) == 15 and "of 15 verdicts changed" in summary, summary
END
