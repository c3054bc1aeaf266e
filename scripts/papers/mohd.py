"""MoHD (Chen et al. 2024, arXiv:2412.05644): each token uses only some sub-dimensions of the hidden width."""
import math
import statistics

import h5py
import numpy as np

from compare import Claim, Spread, minus
from losses import about_items, curves, millions, percent
from lab import Lab, Model
from page import Page, subplots, table

# The proportions of LLaMA 2 in the paper's 355M model: an FFN of 2.5 times the hidden width, heads of width 32.
_llama = {"model.hidden": 192, "model.heads": 6, "model.head_dim": 32, "model.ffn_hidden": 480, "optim.schedule": "cosine", "optim.min_lr": 2e-4}
_sub_dimensions = {"sub_dimensions.attention": 8, "sub_dimensions.ffn": 8, "sub_dimensions.active": 4, "sub_dimensions.shared": 3,
                   "sub_dimensions.fusion_width": 8, "balance.sub_dimension": 0.01}
_twice = _llama | _sub_dimensions | {"model.hidden": 384}

llama = Model("llama", _llama)
half = Model("mohd-50", _llama | _sub_dimensions)
three_quarters = Model("mohd-75", _llama | _sub_dimensions | {"sub_dimensions.active": 6})
double = Model("mohd-x2", _twice)
ablations = {
    "mixed activated sub-dimensions": Model("mohd-x2-no-shared", _twice | {"sub_dimensions.shared": 0}),
    "balance loss": Model("mohd-x2-no-balance", _twice | {"balance.sub_dimension": 0}),
    "group fusion": Model("mohd-x2-no-fusion", _twice | {"sub_dimensions.fusion_width": 0}),
    "sub-dimension scaling": Model("mohd-x2-no-scaling", _twice | {"sub_dimensions.scaling": "none"}),
}
models = [llama, half, three_quarters, double, *ablations.values()]
perplexity = {"llama": 11.61, "mohd-50": 12.05, "mohd-x2": 10.25, "mohd-x2-no-shared": 11.08, "mohd-x2-no-balance": 10.41,
              "mohd-x2-no-fusion": 10.47, "mohd-x2-no-scaling": 11.41}  # Tables 4 and 5


def gap(worse: Model, better: Model) -> str:
    return f"{math.log(perplexity[worse.name] / perplexity[better.name]):+.3f} (perplexity {perplexity[worse.name]} against {perplexity[better.name]})"


halves = {"attention": "layers/001/attention", "FFN": "layers/001"}  # routers of layer 1 in the files of `routing domains`


def domains(lab: Lab, model: Model, seed: int) -> dict:
    """Returns the choices of the two routers of layer 1 by half and domain (`lyceum routing domains`): the shares of the
    sub-dimensions in the held-out text of each domain, then in the training text of each, and the total-variation distances
    between all of these."""
    names = [f"{name}-{part}" for part in ("valid", "train") for name in lab.corpus.names]
    data = [word for name in names for word in ("--data", f"{name}={lab.corpus.folder / name}")]
    file = lab.output(model, seed, "domains.h5", "routing", "domains", "--checkpoint", str(lab.directory(model, seed)), *data,
                      "--batches", "64", "--json", "--h5")
    with h5py.File(file) as log:
        return {half: {"share": log[router]["share"][:], "distance": log[router]["total_variation"][:]} for half, router in halves.items()}


def run(lab: Lab) -> Page:
    lab.train(models)
    losses = lab.losses(models)
    page = Page("MoHD (arXiv:2412.05644), Tables 4 and 5, Figure 11",
                "The hidden dimension is divided into 8 sub-dimensions, of which every token uses 3 and chooses one more, in attention and in FFNs. With twice "
                "the hidden dimension, the model activates as many parameters of blocks as LLaMA; with the same one, half of them, or three "
                "quarters (here 6 of 8 sub-dimensions: the paper's 4 of 12 would be a third). Embedding and output head are as wide as the hidden "
                "dimension, so those of MoHD ×2 have twice as many parameters, which at this size is much of the model. The paper claims a "
                "lower perplexity for MoHD ×2, that every part of the method is needed for it (Table 4), that three quarters are better than "
                "LLaMA and half cost little, and that domains choose different sub-dimensions (Figure 11). At the start, a half's output enters the "
                "residual stream times 2 with sub-dimension scaling, and times about 1/8 without it.")
    page.claims.append(Claim.above("LLaMA has a higher loss than MoHD ×2", gap(llama, double), losses[llama.name], losses[double.name]))
    for part, model in ablations.items():
        page.claims.append(Claim.above(f"MoHD ×2 without {part} has a higher loss", gap(model, double), losses[model.name], losses[double.name]))
    page.claims += [
        Claim.above("LLaMA has a higher loss than MoHD with three quarters of the dimensions", "accuracy 42.7 against 43.2", losses[llama.name],
                    losses[three_quarters.name]),
        Claim.above("MoHD with half of the dimensions loses less than MoHD ×2 gains, both against LLaMA", f"{gap(half, llama)}; {gap(llama, double)}",
                    minus(losses[llama.name], losses[double.name]), minus(losses[half.name], losses[llama.name])),
    ]
    vocab = int(lab.base["model.vocab"])
    counts = {model.name: lab.parameters(model) for model in models}
    blocks = lambda model: counts[model.name]["activated"] - 2 * vocab * int(model.keys["model.hidden"])
    scores = lab.scores(models)
    rows = [[model.name, *(millions(count) for count in (counts[model.name]["total"], counts[model.name]["activated"], blocks(model))),
             perplexity.get(model.name, ""), Spread.of(losses[model.name]), f"{math.exp(statistics.fmean(losses[model.name])):.2f}",
             percent(scores[model.name])] for model in models]
    page.section("Losses", table(["model", "parameters", "activated", "of blocks", "paper: perplexity", "here: loss, mean ± sd", "here: perplexity",
                                  "here: cloze items"], rows), about_items,
                 curves(lab, page, [llama, half, three_quarters, double, ablations["sub-dimension scaling"]], "mohd.png"))
    routed = [domains(lab, double, seed) for seed in lab.seeds]
    names = lab.corpus.names
    figure, axes = subplots(2)
    chosen = np.arange(3, 8)
    for axis, site in zip(axes, halves):
        for i, name in enumerate(names):
            axis.bar(chosen + (i - len(names) / 2 + 0.5) * 0.16, routed[0][site]["share"][i, 3:8], width=0.15, label=name)
        axis.set_title(site, fontsize=10)
        axis.set_xticks(chosen)
        axis.set_xlabel("sub-dimension; 0 to 2 are used by every token")
    axes[0].set_ylabel("share of the choices")
    axes[0].legend(frameon=False, fontsize=8)
    pairs = [(i, j) for i in range(len(names)) for j in range(i)]
    tables = []
    for site in halves:
        between = [statistics.fmean(float(r[site]["distance"][i, j]) for i, j in pairs) for r in routed]
        within = [statistics.fmean(float(r[site]["distance"][i, i + len(names)]) for i in range(len(names))) for r in routed]
        where = "" if site == "attention" else " in FFNs"
        page.claims.append(Claim.above(f"two domains differ more in their choices{where} than held-out and training text of one", "Figure 11",
                                       between, within, unit="of total variation"))
        mean = lambda i, j: f"{statistics.fmean(float(r[site]['distance'][i, j]) for r in routed):.3f}"
        tables.append(table([site, "its training text", *names[:-1]],
                            [[names[i], mean(i, i + len(names)), *[mean(i, j) if j < i else "" for j in range(len(names) - 1)]]
                             for i in range(len(names))]))
    page.section("Domains (Figure 11)", "Sub-dimensions that tokens of five domains choose in the attention and in the FFN of layer 1 of "
                 f"{double.name}, seed {lab.seeds[0]}:",
                 page.figure("mohd-domains.png", "Shares of sub-dimensions by domain", figure),
                 "Total-variation distance of two texts, mean over seeds (0: equal, 1: disjoint); the first column, of a domain's held-out "
                 "and training text, shows how much of it is due to chance:", *tables)
    by_site = lambda values: {site: values(site) for site in halves}
    page.results |= {"loss": losses, "score": scores,
                     "total_variation": by_site(lambda site: {f"{names[i]}, {names[j]}": [float(r[site]["distance"][i, j]) for r in routed]
                                                              for i, j in pairs}),
                     "total_variation_of_training_text": by_site(lambda site: {names[i]: [float(r[site]["distance"][i, i + len(names)]) for r in routed]
                                                                               for i in range(len(names))})}
    page.models = models
    return page
