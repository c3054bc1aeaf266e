#!/usr/bin/env bash
# Usage: convert_test.sh LYCEUM SOURCE_DIR. A checkpoint that `lyceum convert` makes is complete, has the loss that the
# transform promises, and trains on any mesh, twice with the same bits. A conversion that fails writes nothing.
. "$(dirname "$0")/lib.sh" "$@"
make_data
trap '' XFSZ # so that a write beyond the limit is an error, as on a full disk

# loss RUN [option …]: prints the loss, in full precision, on 8 sequences that no run has trained on.
loss() {
  expect 0 "$lyceum" eval "--checkpoint=$1" --batches=1 --json "${@:2}"
  python3 -c 'import json, sys; print(repr(json.load(open(sys.argv[1]))["loss"]))' "$work/out"
}

# convert TRANSFORM SOURCE RUN [option …]: makes $work/RUN of $work/SOURCE, which must verify.
convert() {
  expect 0 "$lyceum" convert "$1" "$work/$2" --out "$work/$3" "${@:4}"
  cp "$work/out" "$work/printed"
  expect 0 "$lyceum" checkpoint verify "$work/$3"
  equal "newest of $3" "$(cat "$work/$3/checkpoints/LATEST")" step-00000000
}

# trains RUN [option …]: two steps in another folder and in the run's own give the same bits, and on another mesh the same
# losses.
trains() {
  local again=("--checkpoint.resume=$work/$1/checkpoints/step-00000000" --run.steps=2 --eval.batches=1)
  expect 0 "$lyceum" train --config "$work/$1/config.ini" "--run.dir=$work/$1-again" "${again[@]}"
  says out "^optimizer  new: the checkpoint contains only weights"
  expect 0 ranks 2 train --config "$work/$1/config.ini" "--run.dir=$work/$1-mesh" "${again[@]}" "${@:2}"
  expect 0 "$lyceum" train --config "$work/$1/config.ini" --run.steps=2 --eval.batches=1
  same_weights "$work/$1"{,-again}/checkpoints/step-00000002
  for step in 1 2; do
    close "step $step of $1 on another mesh" "$(metric "$work/$1-mesh/metrics.jsonl" $step loss)" \
      "$(metric "$work/$1/metrics.jsonl" $step loss)" 1e-4
  done
}

# --- conversions of a dense model, which two ranks trained with tensor parallelism
expect 0 ranks 2 "${tiny[@]}" "--run.dir=$work/dense" --moe.experts=0 --moe.shared_experts=0 --model.ffn_hidden=96 \
  --parallel.tensor=2 --parallel.zero=1
dense=$(loss "$work/dense")

convert reset dense reset --optim.lr=1e-4
equal "loss of the same weights" "$(loss "$work/reset")" "$dense"
grep -q '^lr *= *1e-04\|^lr *= *0.0001' "$work/reset/config.ini" || fail "config.ini lacks the learning rate"
trains reset --parallel.pipeline=2

convert upcycle dense copies --moe.experts=4 --moe.top_k=2
close "loss of copies" "$(loss "$work/copies")" "$dense" 1e-5
trains copies --parallel.expert=2

convert upcycle dense slices --slices=4 --moe.experts=3 --moe.top_k=2 --balance.expert=0
grep -q "times 4" "$work/printed" || fail "the table does not show the scale"
close "loss of slices" "$(loss "$work/slices")" "$dense" 1e-5
trains slices --parallel.expert=2 --parallel.zero=3

convert modulize dense modules --experts=6
close "loss of modules" "$(loss "$work/modules")" "$dense" 1e-6
convert modulize dense together --experts=6 --by coactivation --data "$work/data/valid" --batches=1
close "loss of modules by co-activation" "$(loss "$work/together")" "$dense" 1e-6
trains modules --parallel.tensor=2 --parallel.expert=2
half=$(loss "$work/modules" --moe.top_k=3)
[[ $half != "$dense" ]] || fail "half of the modules have the loss of all"

# --- conversions of a model with experts, saved by two ranks. Few tokens do not choose all of the sixteen experts. As gates
# are 1, pruning the experts that are not chosen changes no loss.
expect 0 ranks 2 "${tiny[@]}" "--run.dir=$work/sparse" --moe.experts=16 --moe.gates=ones --model.init_std=0.1 --run.steps=6 \
  --balance.expert=0 --parallel.expert=2
loss "$work/sparse" --batch.global=1 --routing "$work/few.h5" >"$work/before"
expect 0 "$lyceum" convert prune "$work/sparse" --out "$work/pruned" --routing "$work/few.h5" --threshold=1e-6 --dry-run
says out "^layer 1: [1-9][0-9]* of 16 experts removed: "
says out "^left over  model/layers/#/mlp/experts/#/up_proj/weight \([0-9]+ tensors\)"
[[ ! -e $work/pruned ]] || fail "--dry-run wrote"
convert prune sparse pruned --routing "$work/few.h5" --threshold=1e-6
equal "loss without idle experts" "$(loss "$work/pruned" --batch.global=1)" "$(cat "$work/before")"
of_all=$(loss "$work/sparse") of_rest=$(loss "$work/pruned")
[[ $of_rest != "$of_all" ]] || fail "nothing was pruned"
trains pruned --parallel.expert=2 --parallel.zero=1

# The same with tokens that the conversion routes itself.
convert prune sparse counted --data "$work/data/valid" --batches=1 --batch.global=1 --threshold=1e-6
equal "loss before pruning" "$(sed -n 's/^before *\([0-9.]*\) nats.*/\1/p' "$work/printed")" \
  "$(printf %.6f "$(cat "$work/before")")"
equal "loss after pruning" "$(sed -n 's/^after *\([0-9.]*\) nats.*/\1/p' "$work/printed")" \
  "$(printf %.6f "$(cat "$work/before")")"
convert prune sparse half --data "$work/data/valid" --threshold=0.5 --scope=model
equal "layers reported" "$(grep -c '^layer [12]: .* removed' "$work/printed")" 2
grep -q '^layer [12]: [1-9][0-9]* of 16 experts removed' "$work/printed" || fail "no expert is removed with --scope model"

# Layers have different numbers of experts: all commands that read a run accept them.
convert insert counted grown --experts=17 --layers=2 --batch.global=8
expect 0 "$lyceum" checkpoint show "$work/grown"
! grep -q "pp pipeline stages" "$work/out" || fail "a converted checkpoint has a mesh"
[[ $(sed -n 's/^experts_of_layers *= *//p' "$work/grown/config.ini") =~ ^([0-9]+),([0-9]+)$ ]] || fail "no list of experts"
((BASH_REMATCH[1] <= 16 && BASH_REMATCH[2] > 17)) || fail "layers have ${BASH_REMATCH[0]} experts"
trains grown --parallel.pipeline=2
expect 0 ranks 2 train --config "$work/grown/config.ini" --run.steps=3 --parallel.expert=2 --routing.every=1
expect 0 "$lyceum" routing report "$work/grown" --html "$work/page.html"
expect 0 "$lyceum" routing dump "$work/grown" --csv "$work/counts.csv"
expect 0 "$lyceum" plan --config "$work/grown/config.ini" --ranks=2 --parallel.expert=2
expect 0 "$lyceum" generate --checkpoint "$work/grown" --prompt "the " --tokens 4
expect 0 ranks 2 eval --checkpoint "$work/grown" --parallel.expert=2 --batches=1 --token-log "$work/tokens.h5"

# Attention experts: pruned and inserted like those of FFNs; afterwards layers have different numbers of them.
expect 0 ranks 2 "${tiny[@]}" "--run.dir=$work/heads" --model.attention=moa --attention_experts.count=16 --attention_experts.top_k=2 \
  --attention_experts.gates=ones --model.init_std=0.1 --run.steps=6 --balance.expert=0
loss "$work/heads" --batch.global=1 --routing "$work/heads.h5" >"$work/before"
convert prune heads fewer --site=attention --routing "$work/heads.h5" --threshold=1e-6
grep -q "^layer 0 attention: [1-9][0-9]* of 16 experts removed: " "$work/printed" || fail "no attention expert is removed"
equal "loss without idle attention experts" "$(loss "$work/fewer" --batch.global=1)" "$(cat "$work/before")"
convert prune heads heads-counted --site=attention --data "$work/data/valid" --batches=1 --batch.global=1 --threshold=1e-6
equal "loss after pruning attention" "$(sed -n 's/^after *\([0-9.]*\) nats.*/\1/p' "$work/printed")" \
  "$(printf %.6f "$(cat "$work/before")")"
convert insert heads grown-heads --site=attention --experts=4
grep -q '^To keep the new rows .*: optim.router_penalty = 0.25, optim.router_penalty_from = 8, optim.router_penalty_from_attention = 16$' \
  "$work/printed" || fail "insert does not print the penalty of both halves"
sed -i "s/^router_penalty = .*/router_penalty = 0.25/; s/^\(router_penalty_from\) = .*/\1 = 8/; s/^\(router_penalty_from_attention\) = .*/\1 = 16/" \
  "$work/grown-heads/config.ini"
trains grown-heads
convert insert fewer more --site=attention --experts=3 --layers=1
expect 0 "$lyceum" plan --config "$work/more/config.ini" --ranks=2 --parallel.tensor=2
trains more --parallel.tensor=2 --parallel.zero=1

# With the line that insert prints, only new tensors and rows are trained; all others keep their bits.
convert insert sparse larger --experts=2
only=$(sed -n 's/^To train only the new tensors and rows: optim.train_only = //p' "$work/printed")
[[ $only == *"experts/17/"* ]] || fail "insert suggests '$only'"
expect 0 ranks 2 train --config "$work/larger/config.ini" --run.steps=2 --parallel.expert=2 "--optim.train_only=$only" \
  $(sed -n 's/^To keep the new rows of routers small, also: //p' "$work/printed" | sed 's/, / /g; s/ = /=/g; s/optim/--optim/g')
says out "^trained "
expect 1 "$lyceum" checkpoint diff "$work/larger/checkpoints/step-0000000"{0,2}
equal "tensors that moved" "$(sed -n 's/^\(model[^ ]*\).*/\1/p' "$work/out" | grep -cv 'experts/1[67]/\|mlp/gate/weight')" 0
grep -q '^model/layers/1/mlp/gate/weight .*512 of 576 equal' "$work/out" || fail "old rows of the router moved"

# --- ranks share the work
expect 0 ranks 2 convert reset "$work/sparse" --out "$work/shared"
[[ -s $work/shared/checkpoints/step-00000000/rank-00001.h5 ]] || fail "the second rank wrote nothing"
convert reset sparse alone
same_weights "$work"/{shared,alone}/checkpoints/step-00000000

# --- impossible conversions
# refused CODE PATTERN argument …: expects one line, and that $work/none does not exist.
refused() {
  expect "$1" "$lyceum" convert "${@:3}" --out "$work/none"
  says err "^lyceum convert: .*$2"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
  [[ ! -e $work/none ]] || fail "something was written: $(find "$work/none")"
}
prune=(--routing "$work/few.h5" --threshold)
refused 2 "no such transform 'prun': did you mean prune" prun "$work/sparse"
refused 2 "reset needs one checkpoint or run" reset
refused 2 "slices does not apply to insert" insert "$work/sparse" --slices=2
refused 2 "threshold = 2" prune "$work/sparse" "${prune[@]}" 2
refused 2 "moe.top_k = 17 is more than moe.experts = 16" prune "$work/sparse" "${prune[@]}" 1 --moe.top_k=17
refused 2 "_proj/weight would be \[9, 32\] but is created from .* \[24, 32\]" reset "$work/sparse" --moe.expert_hidden=9
refused 2 "data: modulize needs it with --by = coactivation" modulize "$work/dense" --experts=6 --by=coactivation
refused 2 "a divisor of its width 96" modulize "$work/dense" --experts=7
refused 2 "moe.experts cannot be set: modulize determines it" modulize "$work/dense" --experts=6 --moe.experts=3
refused 2 "give either --routing" prune "$work/sparse" --threshold=0.5
refused 2 "site = head: must be ffn or attention" insert "$work/sparse" --experts=1 --site=head
refused 2 "no architecture in transformers can represent this model; .*except for model.attention = moa" export-hf "$work/heads"
refused 2 "no routed experts in its attention" insert "$work/sparse" --experts=1 --site=attention
refused 2 "batches needs --data" prune "$work/sparse" "${prune[@]}" 0.5 --batches=3
refused 2 "did you mean|unrecognised" modulize "$work/dense" --expertz=7
refused 3 "has no layer 1|has [0-9]+ experts in layer" prune "$work/pruned" "${prune[@]}" 0.1
refused 3 "neither a checkpoint|no such" reset "$work/data"
refused 2 "checkpoint.resume = none cannot be set here" reset "$work/dense" --checkpoint.resume=none
refused 2 "stage.2.from_step cannot be set here: a converted run has one stage" reset "$work/dense" --stage.2.from_step=3
expect 0 "$lyceum" tokenize --input "$source/docs/stages.md" --vocab 360 --model "$work/other/tokenizer.model" --output "$work/other/valid"
refused 3 "$work/other/valid.bin was encoded with a different tokenizer" modulize "$work/dense" --experts=6 --by=coactivation \
  --data="$work/other/valid"
expect 2 "$lyceum" convert reset "$work/dense" --out "$work/sparse"
says err "contains checkpoints: name another folder"
# Of two conversions into one folder, one is refused, and the other's run stays whole.
"$lyceum" convert reset "$work/dense" --out "$work/both" >"$work/first" 2>&1 &
second=0
"$lyceum" convert reset "$work/sparse" --out "$work/both" >"$work/second" 2>&1 || second=$?
first=0
wait $! || first=$?
equal "exit codes of two conversions" "$((first + second))" 2
grep -Eq "both/.*(contains checkpoints|already exists)|both is in use" "$work/first" "$work/second" || fail "no conversion names the other"
expect 0 "$lyceum" checkpoint verify "$work/both"
# A converted run that was moved continues only if the command names its folder.
mv "$work/both" "$work/moved"
expect 2 "$lyceum" train --config "$work/moved/config.ini"
says err "config.ini continues a run in $work/both, but is in another folder"
expect 2 "$lyceum" eval --config "$work/moved/config.ini"
[[ ! -e $work/both ]] || fail "a run was begun at the old place"
for folder in checkpoints checkpoints/ checkpoints/new checkpoints/step-00000012; do
  expect 2 "$lyceum" convert reset "$work/sparse" --out "$work/dense/$folder"
  says err "would be in $work/dense/checkpoints[^ ]*, which has the checkpoints of a run: name a folder elsewhere"
done
(ulimit -f 24 && exec "$lyceum" convert reset "$work/dense" --out "$work/none") >"$work/out" 2>"$work/err" && fail "the error does not report the full disk"
says err "not saved: "
[[ ! -e $work/none ]] || fail "files are left after a conversion on a full disk: $(find "$work/none")"
printf x | dd of="$work/reset/checkpoints/step-00000000/rank-00000.h5" bs=1 seek=9000 conv=notrunc status=none
refused 3 "damaged: its SHA-256" reset "$work/reset/checkpoints/step-00000000"
