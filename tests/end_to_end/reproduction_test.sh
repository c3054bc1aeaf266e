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
"$python" - "$pages" <<'END' || fail "the pages differ from the results of the runs"
import json, math, pathlib, sys
pages = pathlib.Path(sys.argv[1])
for name, claims in (("moduleformer", 7), ("smoe-dropout", 5)):
    text, kept = (pages / f"{name}.md").read_text(), json.loads((pages / f"{name}.json").read_text())
    assert len(kept["claims"]) == claims and kept["made"]["seeds"] == 2 and kept["made"]["steps"] == 20
    for claim in kept["claims"]:
        assert claim["text"] in text.replace("\\|", "|") and claim["verdict"] in ("reproduced", "not seen", "opposite"), claim
    assert str(pages.parent) not in text, "a path of this machine"
    assert (pages / f"{name}.png").stat().st_size > 10_000
results = json.loads((pages / "smoe-dropout.json").read_text())["results"]
# The loss starts at ln 512 and decreases, with any number of experts.
losses = [loss for by_k in results["top_k"].values() for seeds in by_k.values() for loss in seeds] + results["dense"]
assert len(losses) == 2 * (2 * 8 + 1) and all(4 < loss < math.log(512) for loss in losses), losses
summary = (pages / "README.md").read_text()
assert summary.count("not run") == 7 and "[SMoE-Dropout" in summary, summary
unseen = [claim for name in ("moduleformer", "smoe-dropout") for claim in json.loads((pages / f"{name}.json").read_text())["claims"] if claim["verdict"] == "not seen"]
needed = summary.split("## What claims that are not seen would need")[1]
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
assert summary.count("(seeds 3 to 4)") == len(first["claims"]) == 5 and "of 5 verdicts changed" in summary, summary
END
