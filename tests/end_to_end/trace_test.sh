#!/usr/bin/env bash
# Usage: trace_test.sh LYCEUM SOURCE_DIR. run.trace_steps: the files are valid, spans nest, messages have two ends, and a traced run
# computes the same as any other.
. "$(dirname "$0")/lib.sh" "$@"
make_data
cat >"$work/check.py" <<'END'
"""check.py FILE RANKS FIRST LAST PASSES: checks a trace of the steps FIRST to LAST with PASSES forward passes of each rank and step."""
import collections, json, sys
file = sys.argv[1]
ranks, first, last, passes = map(int, sys.argv[2:])
trace = json.load(open(file))
events = trace["traceEvents"]
assert {e["pid"] for e in events} == set(range(ranks)), {e["pid"] for e in events}
assert set(trace["otherData"]) == {"program", "mesh", "steps"}, trace["otherData"]
ns = lambda us: round(us * 1000)
names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
tracks = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X":
        assert e["dur"] >= 0, e
        tracks[e["pid"], e["tid"]].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e))
assert set(tracks) <= set(names), "a track has no name"

documented = {"step", "pass", "operation", "recomputation", "kernel", "wait", "reduction", "exchange", "optimizer", "data", "transfer"}
found = collections.Counter(e["cat"] for e in events if e["ph"] == "X")
assert set(found) <= documented, set(found) - documented
for needed in ["step", "pass", "operation", "kernel", "optimizer", "data"] + (["transfer", "wait"] if ranks > 1 else []):
    assert found[needed], (needed, found)

for track, spans in tracks.items():
    nests = names[track].startswith("computation")
    stack = []
    for begin, end, e in sorted(spans, key=lambda s: (s[0], -s[1])):
        while stack and stack[-1][1] <= begin:
            stack.pop()
        if stack:
            assert nests, (names[track], "overlap", stack[-1], e)
            assert end <= stack[-1][1], (names[track], "not nested", stack[-1], e)
        stack.append((begin, end, e))

for rank in range(ranks):
    steps = [(b, e, x["name"]) for b, e, x in tracks[rank, 0]]
    assert [name for *_, name in steps] == [f"step {s}" for s in range(first, last + 1)], steps
    computed = sorted(tracks[rank, 1], key=lambda s: (s[0], -s[1]))
    assert all(any(begin <= s[0] < end for begin, end, _ in steps) for s in computed), "a span between the steps"
    for begin, end, name in steps:
        inside = [s for s in computed if begin <= s[0] < end]
        assert all(s[1] <= end for s in inside), (name, "a span outlasts its step")
        outermost, until = 0, begin
        for b, e, _ in inside:
            if b >= until:
                outermost += e - b
                until = e
        assert 0 < outermost <= end - begin, (name, outermost, end - begin)
        for kind in "FB":
            some = {x["name"] for *_, x in inside if x["cat"] == "pass" and kind in x["name"]}
            assert len(some) == passes, (rank, name, kind, some)

arrows = collections.defaultdict(dict)
for e in events:
    if e["ph"] in "sf":
        assert e["ph"] not in arrows[e["id"]], ("a message has two ends of one kind", e)
        arrows[e["id"]][e["ph"]] = e
        assert any(b <= ns(e["ts"]) <= x for b, x, _ in tracks[e["pid"], e["tid"]]), ("an arrow begins at no span", e)
for name, ends in arrows.items():
    assert set(ends) == {"s", "f"}, (name, "has one end")
    assert ends["s"]["pid"] != ends["f"]["pid"]
    assert ends["s"]["ts"] <= ends["f"]["ts"], (name, "arrives before it is sent")
sends = [e for e in events if e["ph"] == "X" and e["cat"] == "transfer" and e["name"].startswith("send ")]
receives = [e for e in events if e["ph"] == "X" and e["cat"] == "transfer" and e["name"].startswith("receive ")]
key = lambda e: tuple(e["args"][k] for k in ("from", "to", "index", "bytes"))
assert sorted(map(key, sends)) == sorted(map(key, receives)) and len(arrows) == len(sends)
print(dict(found), len(arrows), "messages")
END
check() { expect 0 python3 "$work/check.py" "$@"; cat "$work/out"; }

plain=("${tiny[@]}" --run.steps=6 --checkpoint.every=0 --eval.every=0)
expect 0 "$lyceum" "${plain[@]}" "--run.dir=$work/plain"
expect 0 "$lyceum" "${plain[@]}" "--run.dir=$work/one" --run.trace_steps=3-4 --batch.micro=4
says out "^trace +2 steps of 1 rank in $work/one/trace/steps-3-4.json; open it at https://ui.perfetto.dev$"
check "$work/one/trace/steps-3-4.json" 1 3 4 2
expect 0 "$lyceum" "${plain[@]}" "--run.dir=$work/whole" --run.trace_steps=2-3
equal "metrics of a traced run" "$(steps "$work/whole/metrics.jsonl")" "$(steps "$work/plain/metrics.jsonl")"
[[ ! -e $work/plain/trace ]] || fail "a run without run.trace_steps has a trace"

# --- meshes: pipeline stages, experts on other ranks with ZeRO 3, recomputation, two micro-batches by turns
expect 0 ranks 2 "${plain[@]}" "--run.dir=$work/pipe" --run.trace_steps=5 --parallel.pipeline=2 --batch.micro=2
check "$work/pipe/trace/steps-5-5.json" 2 5 5 4
grep -q ' messages' "$work/out" && ! grep -q ' 0 messages' "$work/out" || fail "a pipeline sends no messages"
expect 0 ranks 4 "${plain[@]}" "--run.dir=$work/mesh" --run.trace_steps=2-3 --parallel.expert=2 --parallel.tensor=2 \
  --parallel.zero=3 --batch.micro=2 --model.recompute=full
check "$work/mesh/trace/steps-2-3.json" 4 2 3 2
grep -q recomputation "$work/out" || fail "recomputation is not traced"
grep -q exchange "$work/out" || fail "exchanges of tokens are not traced"
expect 0 ranks 2 "${plain[@]}" "--run.dir=$work/turns" --run.trace_steps=2-3 --parallel.expert=2 --batch.micro=1 --parallel.overlap=batches
check "$work/turns/trace/steps-2-3.json" 2 2 3 4

# --- a run that ends, or is stopped, within the traced steps writes what it has
expect 0 "$lyceum" "${plain[@]}" "--run.dir=$work/short" --run.trace_steps=5-9 --batch.micro=4
check "$work/short/trace/steps-5-6.json" 1 5 6 2

# Validations and saves between the steps are not recorded; a run that continues after the steps says so.
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/between" --run.steps=4 --checkpoint.every=1 --eval.every=1 --run.trace_steps=2-3 --batch.micro=4
check "$work/between/trace/steps-2-3.json" 1 2 3 2
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/between" --run.steps=5 --run.trace_steps=2-3
says out "^trace +none: the run continues at step 5, after run.trace_steps = 2-3$"

# --- files of an earlier trace of more ranks, and a trace that cannot be written
mkdir -p "$work/stale/trace/steps-2-3"
touch "$work/stale/trace/steps-2-3/rank-00007.json"
expect 0 "$lyceum" "${plain[@]}" "--run.dir=$work/stale" --run.trace_steps=2-3
equal "files of the trace" "$(ls "$work/stale/trace")" steps-2-3.json
mkdir "$work/blocked"
touch "$work/blocked/trace"
expect 0 ranks 2 "${plain[@]}" "--run.dir=$work/blocked" --run.trace_steps=2-3 --parallel.expert=2
says out '^warning: the trace of steps-2-3 could not be written.*training continues$'
equal "metrics" "$(tail -n 1 "$work/blocked/metrics.jsonl" | cut -c1-9)" '{"step":6'

# --- wrong values
for wrong in 3-2 0 x 1-500 7-8; do
  expect 2 "$lyceum" "${plain[@]}" --run.trace_steps=$wrong
  says err "run.trace_steps = $wrong"
done
