#!/usr/bin/env bash
# Usage: plan_test.sh LYCEUM SOURCE_DIR. Tests `lyceum plan`: the models of all papers and the published models without a cluster, the search for a
# mesh, the drawing, and refusals.
. "$(dirname "$0")/lib.sh" "$@"
papers=$source/configs/papers
clusters=$source/configs/clusters

for file in "$papers"/*.ini "$source"/configs/models/*.ini; do
  expect 0 "$lyceum" plan --config "$file"
  says out "^all +[0-9.]+ [MG]"
done

# Finds the best mesh, and gives the reasons against others. Keys on the command line are not changed.
expect 0 "$lyceum" plan --config "$papers/deepseekmoe-2b.ini" --world 16 --parallel.pipeline=2 --svg "$work/pipeline.svg"
says out "^best meshes of 16 ranks"
says out "^2 .* \+[0-9.]+ %: .* pp2 dp[0-9]"
says out "^best: [0-9]+ % of the step is compute"
says out "^row 1 \|"
grep -q "</svg>" "$work/pipeline.svg" || fail "no drawing was written"
grep -q "makespan [0-9.e+-]* ms" "$work/pipeline.svg" || fail "a drawing of times without their unit"
expect 0 "$lyceum" plan --config "$papers/deepseekmoe-2b.ini" --parallel.pipeline=2 --svg "$work/pipeline.svg"
grep -Eq "makespan [0-9.,e+-]+ TFLOP" "$work/pipeline.svg" || fail "a drawing without rates and without a unit"

expect 0 "$lyceum" plan --config "$papers/deepseekmoe-16b.ini" --json --ranks=8 --parallel.expert=8 --parallel.zero=1
for key in '"total": 16' '"flops_per_sequence"' '"memory_bytes_per_rank"' '"communication_bytes_per_step"' '"bubble"'; do
  says out "$key"
done

# The load of the experts.
moe=(plan --config "$papers/deepseekmoe-16b.ini" --ranks=8 --parallel.expert=8 --parallel.zero=1)
expect 0 "$lyceum" "${moe[@]}" --load zipf:0.8
says out "^load of experts: Zipf, exponent 0.8"
says out "^contiguous +1\.[0-9]{3} .* as planned above"
expect 0 "$lyceum" "${moe[@]}" --load zipf:0.8 --json --cluster "$clusters/h100-8x.ini"
for key in '"busiest_over_mean"' '"step_seconds"' '"planned": true'; do says out "$key"; done
expect 2 "$lyceum" "${moe[@]}" --load zipf:x
says err "^lyceum plan: --load zipf:x: the exponent after zipf: must be a number from 0 to 8"
expect 3 "$lyceum" "${moe[@]}" --load "$work/absent.h5"
says err "absent.h5: no such file"
expect 2 "$lyceum" plan --config "$papers/deepseekmoe-16b.ini" --load zipf:1
says err "set parallel.expert above 1, or search with --world N"

expect 0 "$lyceum" plan --config "$source/configs/quickstart.ini" --ranks=2 --cluster "$clusters/cpu-2-cores.ini" --measure
says out "^step on 2 cores, one rank per core, products as measured here"
says out "^step +[0-9.]+ +100.0 %"
expect 2 "$lyceum" plan --measure
says err "needs --cluster FILE or --world N"

# A plan that does not fit is printed, then refused with advice.
expect 2 "$lyceum" plan --config "$papers/deepseekmoe-16b.ini" --cluster "$clusters/h100-8x.ini" --batch.micro=1
says out "^peak memory per rank"
says err "^lyceum plan: rank 0 needs [0-9.]+ GB .* has only 76.0 GB: no change .*: use more ranks or a smaller model$"
expect 2 "$lyceum" plan --config "$papers/deepseekmoe-145b.ini" --world 8
says err "^lyceum plan: none of [0-9]+ meshes .* in the closest, pp[0-9]+ .*, rank [0-9]+ needs .*: use more ranks"
says err "^row +rank +blocks"
expect 2 "$lyceum" plan --config "$papers/deepseekmoe-16b.ini" --ranks=8 --parallel.tensor=3
says err "do not split"
expect 2 "$lyceum" plan --config "$source/configs/quickstart.ini" --optim.rule=muon "--optim.adamw_only=*/no_such/weight"
says err "^lyceum plan: optim.adamw_only: no tensor of the model has this name: "
expect 2 "$lyceum" plan --world 8 --ranks=8
says err "give only one of them"
expect 2 "$lyceum" plan --world 0 --parallel.tenser=2
says err "--world = 0: must be at least 1"
says err "parallel.tenser.*did you mean parallel.tensor"
for ranks in 2147483647 1073741824 1000001; do
  expect 2 "$lyceum" plan --world "$ranks"
  says err "must be at most 1000000"
done
# All mistakes are reported together: misspelt keys and sizes that do not divide.
expect 2 "$lyceum" plan --config "$papers/deepseekmoe-16b.ini" --model.hiden=3 --parallel.tensor=3 --ranks=8
says err "3 mistakes"
for word in model.hidden "do not split" "parallel.tensor = 3 does not divide model.heads"; do says err "$word"; done
# A search reports why given keys are impossible, and chooses values for the other keys.
expect 2 "$lyceum" plan --config "$papers/deepseekmoe-16b.ini" --world 16 --parallel.pipeline=99
says err "no valid mesh of 16 ranks: parallel.pipeline = 99 .* more than model.layers = 28"
expect 2 "$lyceum" plan --config "$papers/deepseekmoe-2b.ini" --world 16 --parallel.placement=pairs
says err "63 experts do not form pairs"
expect 0 "$lyceum" plan --config "$papers/deepseekmoe-2b.ini" --world 16 --parallel.schedule=interleaved --batch.micro=0
says out "interleaved x2"
expect 2 "$lyceum" plan --config "$papers/deepseekmoe-2b.ini" --svg "$work/absent/pipeline.svg"
says err "^lyceum plan: --svg .*cannot write this file"
equal "bytes of a report before a refusal" "$(wc -c <"$work/out")" 0
expect 3 "$lyceum" plan --cluster "$work/absent.ini"
says err "cannot read the file '$work/absent.ini'"
printf '[rank]\nmemory_gb = many\nspeed = 1\n' >"$work/bad.ini"
expect 3 "$lyceum" plan --cluster "$work/bad.ini"
says err "rank.memory_gb = many.*rank.speed"
