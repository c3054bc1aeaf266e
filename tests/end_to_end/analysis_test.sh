#!/usr/bin/env bash
# Usage: analysis_test.sh LYCEUM SOURCE_DIR. What a run leaves for its reader: console text fit for a file, the routing
# log as tables, page and CSV, and the drawings of scripts/analysis. LYCEUM_PYTHON names a Python with h5py.
. "$(dirname "$0")/lib.sh" "$@"
make_data
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
[[ -x $python ]] || fail "LYCEUM_PYTHON must name a Python with h5py: scripts/install-deps.sh"

expect 0 ranks 2 "${tiny[@]}" --parallel.expert=2 --moe.expert_sizes=16,16,16,16,24,24,32,48
# Output that goes to a file has no escape codes and no line that is written over.
if LC_ALL=C grep -q $'[\r\033]' "$work/out"; then fail "console output in a file has terminal codes"; fi
equal "lines of steps" "$(grep -Ec '^ *[0-9]+/12 ' "$work/out")" 12
says out "validation loss [0-9.]+ nats a token · unigram entropy of all [0-9]+ validation tokens [0-9.]+"
[[ ! -s $work/err ]] || fail "a good run speaks on stderr"

# Two layers with experts, top-2, 8 experts; 12 steps of 256 tokens in records of 4 steps.
expect 0 "$lyceum" routing dump "$work/run" --csv -
"$python" - "$work/out" "$work/run/routing.h5" <<'END' || fail "the CSV is not what routing.h5 holds"
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

expect 0 "$lyceum" routing report "$work/run"
says out "top0"
expect 0 "$lyceum" routing report "$work/run/routing.h5" --html "$work/page.html" --title "A run <of> ours"
"$python" - "$work/page.html" <<'END' || fail "the page is not whole"
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
END

expect 0 "$python" "$source/scripts/analysis/routing.py" "$work/run/routing.h5" --out "$work/routing.png"
[[ $(head -c 8 "$work/routing.png" | od -An -tx1) == " 89 50 4e 47 0d 0a 1a 0a" ]] || fail "no PNG was drawn"
