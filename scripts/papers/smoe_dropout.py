"""SMoE-Dropout (Chen et al. 2023, arXiv:2303.01610): with a random router that is never trained and a number of experts that
grows during training, one model can be used with any number of experts. Its baselines are dense models with three kinds of
dropout, a learned router, and THOR (Zuo et al. 2022)."""
import math
import statistics

from compare import Claim, Difference, Spread, minus
from lab import Lab, Model
from page import Page, subplots, table

experts, rate = 16, 0.1
half = experts // 2
_cut = {"moe.experts": experts, "moe.expert_hidden": 44}  # the dense FFN of width 704 in 16 parts
dense = Model("dense-704", {"model.ffn_hidden": experts * 44})
_dropping = lambda name, kind: Model(name, dense.keys | {"model.dropout": rate, "model.dropout_kind": kind})
plain, concrete, block = _dropping("dense-dropout", "plain"), _dropping("dense-concrete", "concrete"), _dropping("dense-dropblock", "block")
no_dropout = Model("smoe-dropout", _cut | {"moe.router": "random", "moe.gates": "renormalized", "moe.top_k": experts, "moe.top_k_start": 2})
# The authors' scripts of Table 1 have a dropout of 0.1 both for the dense model and for SMoE-Dropout.
dropout = Model(f"smoe-dropout-{rate}", no_dropout.keys | {"model.dropout": rate})
learned = Model(f"smoe-learned-{rate}", _cut | {"moe.gates": "renormalized", "moe.top_k": half, "balance.expert": 0.01, "balance.scope": "batch",
                                                "model.dropout": rate})
# Each of 4 samples is in a batch twice. A validation has no copies, so half as many batches have as many tokens.
thor = Model(f"thor-{rate}", _cut | {"moe.router": "uniform", "moe.top_k": half, "model.consistency": 5, "batch.global": 8, "eval.batches": 2,
                                     "model.dropout": rate})
as_trained = [dense, plain, concrete, block, no_dropout]  # evaluated without changes
with_experts = [dropout, learned, thor]  # evaluated with each number of experts
models = as_trained + with_experts
ks = [2, 4, 6, 8, 10, 12, 14, 16]
evaluations = len(as_trained) + len(with_experts) * len(ks)


def final_rates(lab: Lab) -> dict[str, list[float]]:
    """Returns the learnt rates of concrete dropout by site: one per seed."""
    sites = {"embeddings": "model/embed_dropout/logit"}
    for layer in range(lab.base["model.layers"]):
        sites |= {f"attention of layer {layer}": f"model/layers/{layer}/attention_dropout/logit",
                  f"FFN of layer {layer}": f"model/layers/{layer}/ffn_dropout/logit"}
    logits = [lab.tensors(concrete, seed, list(sites.values())) for seed in lab.seeds]
    return {site: [1 / (1 + math.exp(-of_seed[name].item())) for of_seed in logits] for site, name in sites.items()}


def run(lab: Lab) -> Page:
    lab.train(models[::-1])  # THOR, which takes longest, first
    arguments = lambda model, k: () if model.keys["moe.top_k"] == k else (f"--moe.top_k={k}",)
    results = lab.evaluate([(model, seed, ()) for model in as_trained for seed in lab.seeds] +
                           [(model, seed, arguments(model, k)) for model in with_experts for k in ks for seed in lab.seeds])
    figures = lambda model, k, what: [results[model.name, seed, () if model in as_trained else arguments(model, k)][what] for seed in lab.seeds]
    loss = lambda model, k=experts: figures(model, k, "loss")
    page = Page("SMoE-Dropout (arXiv:2303.01610), Table 1 and Figure 3",
                "A dense FFN is divided into 16 experts. A random router that is not trained chooses k of them, and k grows evenly from 2 to all "
                "during training. The paper claims that the loss then falls with every expert that is added (\"self-slimmable\"), that all "
                "experts beat a learned router, THOR and dense models of the same size with three kinds of dropout, and that half of them come "
                "close to the best of these. Models are trained with the "
                f"dropout that the dense model and SMoE-Dropout have in the authors' scripts, {rate}; those two without dropout are added. Concrete "
                "dropout learns its rates, which begin there. DropBlock drops runs of 7 tokens at the same rate. THOR draws 8 experts for each token "
                "at random, without a router; it reads each sample twice, with other experts, so that a step takes about twice as long. No model reads a "
                "sample in more than one step, so there is little overfitting for dropout to prevent.")
    # The claim is about all steps, so it is tested for the step whose confidence interval has the lowest end.
    gain = lambda step: Difference.of(loss(dropout, step[0]), loss(dropout, step[1]))
    least = min(zip(ks, ks[1:]), key=lambda step: gain(step).mean - gain(step).half_width)
    of_plain, of_concrete, of_block, with_all, of_learned, of_thor = map(loss, (plain, concrete, block, dropout, learned, thor))
    with_half = loss(dropout, half)
    page.claims += [
        Claim.above(f"SMoE-Dropout with {ks[0]} experts has a higher loss than with all", "Figure 3", loss(dropout, ks[0]), loss(dropout, ks[-1])),
        Claim.above(f"every two experts more lower its loss (the least of {len(ks) - 1} steps, from {least[0]} to {least[1]})", "Figure 3",
                    loss(dropout, least[0]), loss(dropout, least[1])),
        Claim.above("without dropout, the dense model has a higher loss than SMoE-Dropout with all experts", "not compared", loss(dense), loss(no_dropout)),
        Claim.above("dense with dropout has a higher loss than SMoE-Dropout with all", "BPC 1.1623 against 1.1486", of_plain, with_all),
        Claim.above("dense with concrete dropout has a higher loss than SMoE-Dropout with all", "BPC 1.3335 against 1.1486", of_concrete, with_all),
        Claim.above("dense with DropBlock has a higher loss than SMoE-Dropout with all", "BPC 1.2468 against 1.1486", of_block, with_all),
        Claim.above("THOR, used with all experts, has a higher loss than SMoE-Dropout with all", "BPC 1.3110 against 1.1486", of_thor, with_all),
        Claim.above("a learned router, used with all experts, has a higher loss than SMoE-Dropout with all", "BPC 1.1896 against 1.1486",
                    of_learned, with_all),
        Claim.above("SMoE-Dropout with half of the experts has a higher loss than dense with dropout", "BPC 1.1776 against 1.1623", with_half, of_plain),
        Claim.above("a learned router, used with all experts, has a higher loss than SMoE-Dropout with half", "BPC 1.1896 against 1.1776",
                    of_learned, with_half),
        Claim.above("a learned router, used with all experts, has a higher loss than dense with dropout", "BPC 1.1896 against 1.1623", of_learned, of_plain),
        Claim.above("dense with DropBlock has a higher loss than a learned router, used with all experts", "BPC 1.2468 against 1.1896", of_block, of_learned),
        Claim.above("THOR, used with all experts, has a higher loss than dense with DropBlock", "BPC 1.3110 against 1.2468", of_thor, of_block),
        Claim.above("dense with concrete dropout has a higher loss than THOR, used with all experts", "BPC 1.3335 against 1.3110", of_concrete, of_thor),
        Claim.above("from half to all experts, SMoE-Dropout gains more than the learned router", "Figure 3",
                    minus(with_half, with_all), minus(loss(learned, half), of_learned)),
    ]
    figure, (axis,) = subplots()
    for model, text in ((dropout, "random router, k grows"), (learned, "learned router, k = 8"), (thor, "THOR, k = 8")):
        axis.plot(ks, [statistics.fmean(loss(model, k)) for k in ks], marker="o", label=text)
    for model, text, line in ((dense, "dense", "-"), (plain, "dense, dropout", "--"), (concrete, "dense, concrete dropout", "-."),
                              (block, "dense, DropBlock", ":")):
        axis.axhline(statistics.fmean(loss(model)), color="C3", linestyle=line, label=text)
    axis.set_xticks(ks)
    axis.set_xlabel("experts per token, of 16")
    axis.set_ylabel("held-out loss, nats per token")
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))  # beside the lines
    page.section("Loss against the number of experts", page.figure("smoe-dropout.png", "Loss against the number of experts", figure),
                 table(["experts per token", *[str(k) for k in ks]],
                       [[model.name, *[Spread.of(loss(model, k)) for k in ks]] for model in with_experts]),
                 f"Without dropout: {Spread.of(loss(dense))} ({dense.name}), {Spread.of(loss(no_dropout))} ({no_dropout.name}).")
    bits = {}
    rows = []
    for model, k, paper in ((concrete, experts, "1.3335"), (thor, experts, "1.3110"), (block, experts, "1.2468"), (learned, experts, "1.1896"),
                            (dropout, half, "1.1776"), (plain, experts, "1.1623"), (dropout, experts, "1.1486"), (dense, experts, ""), (no_dropout, experts, "")):
        name = model.name if k == experts else f"{model.name}, half of the experts"
        bits[name] = figures(model, k, "bits_per_byte")
        rows.append([name, paper, Spread.of(bits[name]), Spread.of(loss(model, k)),
                     "" if (model, k) == (dropout, experts) else Difference.of(loss(model, k), with_all)])
    page.section("Table 1", "All experts are used, except in one row. The paper gives bits per character of enwik8. Models without a figure of the paper have no "
                 "dropout.",
                 table(["model", "paper: BPC", "here: bits per byte, mean ± sd", "here: nats per token", f"nats above {dropout.name}"], rows))
    rates = final_rates(lab)
    page.section("Rates of concrete dropout", f"All begin at {rate}. At the end of training:",
                 table(["site", "rate, mean ± sd"], [[site, Spread.of(of_site)] for site, of_site in rates.items()]))
    page.results |= {"as_trained": {model.name: loss(model) for model in as_trained}, "bits_per_byte": bits,
                     "top_k": {model.name: {k: loss(model, k) for k in ks} for model in with_experts}, "concrete_rates": rates}
    page.models = models
    return page
