#!/usr/bin/env bash
# Usage: papers_test.sh LYCEUM SOURCE_DIR. Trains the models of the papers on two ranks, with smaller sizes and otherwise as
# configured. Each one learns, and has the losses and choices of its paper. Claims of a page in docs/papers have the direction
# of the paper.
. "$(dirname "$0")/lib.sh" "$@"
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
[[ -x $python ]] || fail "LYCEUM_PYTHON must name a Python with h5py and matplotlib: scripts/install-deps.sh"
make_data
sizes=(--model.layers=2 --model.hidden=32 --model.heads=2 --model.kv_heads=2 --model.head_dim=16 --model.ffn_hidden=48 --model.vocab=384
  --batch.global=8 --batch.micro=2 --batch.seq_len=32)
run_keys=(--run.device=cpu --run.precision=f32 --run.threads=1 --run.steps=12 --routing.every=12 --checkpoint.every=0
  --data.train="$work/data/train" --data.valid="$work/data/valid" --data.tokenizer="$work/data/tokenizer.model"
  --optim.schedule=constant --optim.warmup_steps=3 --optim.lr=3e-3 --eval.every=0)

folder=papers
# train PAPER KEY…: trains a model of configs/$folder, and fails unless its loss decreases from about ln 384. Sets $metrics and
# $routing.
train() {
  local paper=$1 run=$work/runs/$1
  shift
  expect 0 ranks 2 train --config "$source/configs/$folder/$paper.ini" "${sizes[@]}" "${run_keys[@]}" --run.dir="$run" "$@"
  metrics=$run/metrics.jsonl routing=$run/routing.h5
  python3 - "$metrics" <<'END' || fail "$paper does not learn"
import json, math, sys
loss = [json.loads(line)["loss"] for line in open(sys.argv[1])]
sys.exit(not (abs(loss[0] - math.log(384)) < 0.3 and loss[-1] < loss[0] - 0.3))
END
}
# chosen K EXPERTS [SITE]: fails unless every token chooses K of EXPERTS in both layers, in the FFN or in attention.
chosen() {
  expect 0 "$lyceum" routing dump "$routing" --csv "$work/routing.csv"
  python3 - "$work/routing.csv" "$@" <<'END' || fail "choices other than $1 of $2"
import csv, sys
site = sys.argv[4] if len(sys.argv) > 4 else "ffn"
rows = [row for row in csv.DictReader(open(sys.argv[1])) if row["site"] == site]
k, experts = int(sys.argv[2]), int(sys.argv[3])
assert {int(r["layer"]) for r in rows} == {0, 1}, rows[0]
assert {int(r["expert"]) for r in rows} == set(range(experts)), rows[0]
assert {int(r["choice"]) for r in rows} == set(range(k)), rows[0]
for layer in 0, 1:
    assert sum(int(r["tokens"]) for r in rows if int(r["layer"]) == layer) == 12 * 8 * 32 * k
END
}
# The small models in configs/, made even smaller.
for model in dense switch gshard hash deepseekmoe; do
  metrics=$work/$model-small/metrics.jsonl
  expect 0 ranks 2 train --config "$source/configs/$model-small.ini" "${sizes[@]}" "${run_keys[@]}" --data.valid_fraction=0 \
    --run.dir="$work/$model-small"
  python3 -c 'import json, sys; loss = [json.loads(line)["loss"] for line in open(sys.argv[1])]; sys.exit(loss[-1] > loss[0] - 0.3)' \
    "$metrics" || fail "$model-small does not learn"
done

balance() { metric "$metrics" 12 balance_loss; }

for paper in dense-0.2b llama2-355m; do
  train "$paper"
  equal "$paper's balance loss" "$(balance)" 0.0
done
train dense-x4 --moe.expert_hidden=24
train hash-2b --moe.expert_hidden=24
chosen 1 16
equal "a hash's balance loss" "$(balance)" 0.0
# With even loads the loss is 0.01 in each of two layers. It is larger if loads and probabilities favour the same experts.
for paper in switch-2b:1 gshard-2b:2; do
  train "${paper%:*}" --moe.expert_hidden=24
  chosen "${paper#*:}" 16
  python3 -c "import sys; sys.exit(not 0.019 < $(balance) < 0.04)" || fail "balance loss $(balance)"
done
train deepseekmoe-2b --moe.expert_hidden=8
chosen 7 63
train modse-300mx8 --moe.expert_sizes=36,4,32,8,24,16,20,20 --parallel.expert=2 --parallel.placement=pairs
chosen 2 8
for paper in molm-4b-k2:2 molm-4b-k4:4 molm-8b-k2:2; do
  train "${paper%:*}" --moe.expert_hidden=24 --moe.router_hidden=16
  chosen "${paper#*:}" 32
  chosen "${paper#*:}" 16 attention
  python3 -c "import sys; sys.exit(not -0.1 < $(metric "$metrics" 12 mutual_information_loss) < 0)" || fail "$paper has no mutual information"
done

# The models that others have released.
folder=models
latent=(--model.first_dense_layers=0 --model.head_dim=0 --latent_attention.key_value_rank=12 --latent_attention.nope_dim=8
  --latent_attention.rope_dim=8 --latent_attention.value_dim=8)
for model in gpt-oss-20b qwen3-30b-a3b qwen3-235b-a22b olmoe-1b-7b mixtral-8x7b glm-4.5-air deepseek-v2-lite deepseek-v3 moonlight; do
  k=$(sed -n 's/^top_k = //p' "$source/configs/models/$model.ini")
  case $model in
    gpt-oss-20b) own=(--model.window=8 --moe.experts=8) ;;
    glm-4.5-air) own=(--moe.experts=16 --model.first_dense_layers=0) ;;
    deepseek-v3) own=("${latent[@]}" --latent_attention.query_rank=16 --moe.experts=16) ;;
    deepseek* | moonlight) own=("${latent[@]}" --moe.experts=16) ;;
    *) own=(--moe.experts=16) ;;
  esac
  train "$model" --moe.expert_hidden=24 --parallel.expert=2 "${own[@]}"
  experts=${own[*]}
  experts=${experts#*--moe.experts=}
  chosen "$k" "${experts%% *}"
done

# The page of SMoE-Dropout: with the losses of the paper's Table 1 all claims are reproduced, and with the negated ones their
# opposites. The program accepts the configuration of each model.
"$python" - "$source" >"$work/configurations" <<'END' || fail "the page of SMoE-Dropout is not that of the paper"
import sys
import numpy as np
sys.path.insert(0, sys.argv[1] + "/scripts/papers")
import experiments, smoe_dropout

bpc = {"dense-704": 1.2, "dense-dropout": 1.1623, "dense-concrete": 1.3335, "dense-dropblock": 1.2468, "thor": 1.3110, "smoe-learned": 1.1896,
       "smoe-dropout": 1.1486}

class Lab:
    seeds, base = [1, 2, 3], experiments.base(quick=False)

    def __init__(self, sign):
        self.sign, self.trained, self.evaluations = sign, [], 0

    def train(self, models):
        self.trained += models

    def evaluate(self, wanted):
        self.evaluations += len(wanted)
        return {(model.name, seed, arguments): {"loss": self.sign * self.loss(model, arguments)} for model, seed, arguments in wanted}

    def loss(self, model, arguments):  # SMoE-Dropout with half of the experts has 1.1776
        k = int(arguments[0].split("=")[1]) if arguments else model.keys.get("moe.top_k")
        return bpc[model.name] + ((16 - k) / 8 * (1.1776 - 1.1486) if model.name == "smoe-dropout" else 0)

    def tensors(self, model, seed, names):
        return {name: np.array([-np.log(3)]) for name in names}

for sign, verdict in ((1, "reproduced"), (-1, "opposite")):
    lab = Lab(sign)
    page = smoe_dropout.run(lab)
    others = [claim for claim in page.claims if claim.verdict != verdict]
    assert not others, others
    assert {model.name for model in lab.trained} == set(bpc), lab.trained
    assert lab.evaluations == len(lab.seeds) * experiments.all_of_them["smoe-dropout"].evaluations, lab.evaluations
    rates = page.results["concrete_rates"]
    assert len(rates) == 9 and all(abs(rate - 0.25) < 1e-12 for of_site in rates.values() for rate in of_site), rates
for model in smoe_dropout.models:
    print(*[f"--{key}={value}" for key, value in (lab.base | model.keys).items()])
END
while read -ra keys; do
  expect 0 "$lyceum" train --print-config "${keys[@]}" </dev/null
done <"$work/configurations"
