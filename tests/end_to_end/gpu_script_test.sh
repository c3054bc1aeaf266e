#!/usr/bin/env bash
# Usage: gpu_script_test.sh LYCEUM SOURCE_DIR. Tests scripts/gpu.sh without a GPU: the list of what it would run, its results,
# and their table. It compares meshes on the CPU as it would on a GPU.
. "$(dirname "$0")/lib.sh" "$@"
build=$(dirname "$(dirname "$lyceum")")
gpu=("$source/scripts/gpu.sh" --build "$build" --out "$work/results")

expect 0 "${gpu[@]}" --dry-run
for step in '1 tests' '2 mesh-8-all' '2 pytorch-bf16' '2 racecheck-step-bf16' '3 train-2b' '3 pytorch-speed'; do
  says out "^$step +[0-9]+ s at most: "
done
[[ ! -e $work/results ]] || fail "a dry run leaves files"
expect 0 "${gpu[@]}" --dry-run --part 3
[[ $(cut -c1 "$work/out" | sort -u) == 3 ]] || fail "--part 3 selects steps of other parts"
if ! nvidia-smi --list-gpus 2>/dev/null | grep -q .; then
  expect 1 "${gpu[@]}"
  says err 'nvidia-smi lists no GPU'
fi

expect 0 "${gpu[@]}" --device cpu --only '^(tokens|cpu|mesh-2-zero3|mesh-1)$'
says out '^   2 mesh-2-zero3 +[0-9]+  ok$'
says out '^total [0-9]+ s; logs and results in '
# A later call adds its results to those in the folder. meshes-agree alone has no runs to compare, and must fail. Steps that
# the budget does not reach are listed as skipped.
expect 1 "${gpu[@]}" --device cpu --only '^meshes-agree$'
says out '^   2 mesh-2-zero3 +[0-9]+  ok$'
says out '^   2 meshes-agree +[0-9]+  FAILED: exit code 1$'
expect 1 "${gpu[@]}" --device cpu --only '^cpu$' --budget 5
says out '^   2 cpu +0  skipped: the budget of 5 s is used up$'
diff <(sed -n '/^part /,/^total /p' "$work/out" | sed '$d') "$work/results/summary.txt" || fail "summary.txt is another table"
python3 - "$work/results/results.json" <<'END' || fail "results.json has other results"
import json, sys
results = json.load(open(sys.argv[1]))
assert results["date"] and results["commit"] and results["device"], results
steps = {step["name"]: step for step in results["steps"]}
assert list(steps) == ["tokens", "cpu", "mesh-1", "mesh-2-zero3", "meshes-agree"], steps
assert steps["mesh-1"]["result"] == "ok" and steps["cpu"]["result"].startswith("skipped"), steps
END
expect 2 "${gpu[@]}" --no-such-option
expect 2 "${gpu[@]}" --part 4
expect 1 "$source/scripts/gpu.sh" --bundle "$work"
says err 'is not a bundle with tests and benchmarks'

# Fake programs: both routings are measured, and results contain the benchmark's JSON, the clocks of the GPU, the tests, and
# the lines of grouped products.
fake=$work/fake
mkdir -p "$fake/apps" "$fake/benchmarks" "$fake/tests" "$work/bin"
ln -s "$lyceum" "$fake/apps/lyceum"
cat >"$fake/benchmarks/bench_train_step" <<'END'
#!/usr/bin/env bash
[[ $* == *"--routing both"* ]] || exit 3
[[ $OMP_NUM_THREADS == "$CORES" ]] || exit 4
while [[ $1 != --json ]]; do shift; done
sleep 1
echo '[{"routing": "real"}, {"routing": "even"}]' >"$2"
END
cat >"$fake/benchmarks/bench_grouped_gemm_cuda" <<'END'
#!/usr/bin/env bash
echo 'width 896, rows spread unevenly
  up    picked_wgrad automatic    2.415 ms   435.7 TFLOP/s   gather first    2.078 ms    86.0 %
  down  forward      mma.sync     2.399 ms   219.3 TFLOP/s   dense    0.668 ms   788.2 TFLOP/s    27.8 %'
END
cat >"$fake/tests/nccl_carrier_test" <<'END'
#!/usr/bin/env bash
echo '[  FAILED  ] Lanes.Split (3 ms)'
printf '\033[0;32m[  PASSED  ] \033[m4 tests.\n'
echo '[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] Lanes.Send
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Lanes.Split

 1 FAILED TEST'
exit 1
END
# The fake GPU is idle at first, then busy; its last line is invalid.
cat >"$work/bin/nvidia-smi" <<'END'
#!/usr/bin/env bash
[[ $* != *--list-gpus* ]] || { echo "GPU 0: a fake"; exit 0; }
[[ $* == *-lms* ]] || { echo "A fake, 580.1"; exit 0; }
echo "now, 345, 2619, 70.10, 31, 0"
for clock in 1980 1755 1830; do echo "now, $clock, 2619, 6${clock:1:2}.50, 6${clock:3:1}, 99"; done
echo "now, [N/A], 2619, 5.0, 6, 99"
echo $$ >>"$NVIDIA_SMI_PIDS"
exec sleep 60
END
chmod +x "$fake"/*/* "$work/bin/nvidia-smi"
CORES=$(env -u OMP_NUM_THREADS nproc)
export CORES NVIDIA_SMI_PIDS=$work/nvidia-smi.pids
PATH=$work/bin:$PATH expect 1 "$source/scripts/gpu.sh" --build "$fake" --out "$work/bench" --only '^(train-2b|grouped|tests-nccl)$'
says out '^   3 train-2b +[0-9]+  ok; SM 1755/1830/1980 MHz, 676/684/698 W, 60/60/65 C'
says out '^   1 tests-nccl +[0-9]+  FAILED: exit code 1; 4 passed, 2 skipped, 1 failed'
while read -r pid; do ! kill -0 "$pid" 2>/dev/null || fail "nvidia-smi still runs after the benchmark"; done <"$NVIDIA_SMI_PIDS"
python3 - "$work/bench/results.json" <<'END' || fail "results.json has other results of the fake programs"
import json, sys
results = json.load(open(sys.argv[1]))
assert (results["device"], results["driver"]) == ("A fake", "580.1"), results
tests, train, grouped = results["steps"]
assert tests["tests"] == {"passed": 4, "skipped": 2, "failed": ["Lanes.Split"]}, tests
assert [one["routing"] for one in train["results"]] == ["real", "even"], train
assert train["clocks"]["samples"] == 4 and train["clocks"]["busy_samples"] == 3, train
assert train["clocks"]["sm_mhz"] == {"min": 1755, "median": 1830, "max": 1980}, train
first, second = grouped["results"]
assert first == {"width": 896, "rows": "unevenly", "product": "up picked_wgrad", "kernel": "automatic", "ms": 2.415,
                 "tflops": 435.7, "compared_to": "gather first", "compared_to_ms": 2.078, "percent": 86.0}, first
assert (second["kernel"], second["compared_to"], second["percent"]) == ("mma.sync", "dense", 27.8), second
END

# A signal ends the step that runs. The results of earlier steps are written.
cat >"$fake/tests/nccl_carrier_test" <<'END'
#!/usr/bin/env bash
echo $$ >"$STEP_PID"
exec sleep 60
END
export STEP_PID=$work/step.pid
PATH=$work/bin:$PATH "$source/scripts/gpu.sh" --build "$fake" --out "$work/bench" --only '^tests-nccl$' >"$work/out" 2>&1 &
job=$!
wait_for 30 test -s "$STEP_PID" || fail "the step does not start"
kill -TERM $job
finish
[[ $code == 143 ]] || fail "exit code $code, not 143, after SIGTERM"
says out '^   3 train-2b +[0-9]+  ok'
has_ended() { ! kill -0 "$(cat "$STEP_PID")" 2>/dev/null; }
wait_for 10 has_ended || fail "the step still runs after SIGTERM"
