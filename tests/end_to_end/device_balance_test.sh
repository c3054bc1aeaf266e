#!/usr/bin/env bash
# Usage: device_balance_test.sh LYCEUM SOURCE_DIR. From a skewed start, the device-level balance loss evens out the load of
# four expert groups; the other losses do not do so in the same time.
. "$(dirname "$0")/lib.sh" "$@"
bench=$(dirname "$lyceum")/../benchmarks/bench_device_balance
expect 0 timeout 240 mpirun -n 4 "$bench" --steps 40 --csv "$work/curves.csv"
python3 - "$work/curves.csv" <<'END' || fail "the device-level balance loss does not even out the load"
import csv, sys
rows = [{k: float(v) for k, v in r.items()} for r in csv.DictReader(open(sys.argv[1]))]
mean = lambda key: sum(r[key] for r in rows[-10:]) / 10
without, with_loss = mean("imbalance_without"), mean("imbalance_with")
print(f"at first {rows[0]['imbalance_with']:.2f}, after 40 steps {without:.2f} without and {with_loss:.2f} with the loss")
sys.exit(not (rows[0]["imbalance_with"] == rows[0]["imbalance_without"] > 2.5 and with_loss - 1 < 0.5 * (without - 1)))
END
