"""Activation flow (MoHD, section 3): how the activations of a trained dense model spread over hidden dimensions, by `lyceum
routing flow`."""
import math
import statistics

import h5py
import numpy as np

from compare import Claim, Spread
from lab import Lab, Model
from mohd import llama
from page import Page, subplots, table

models = [llama]
sites = ("attention", "ffn")
high = 2  # index of 20 % in lists of high shares: 5, 10, 20, 50 %
part_of_1000 = 1000 / 4096  # the top 1,000 of LLaMA2-7B's 4,096 dimensions


def _file(lab: Lab, model: Model, seed: int):
    return lab.output(model, seed, "flow.h5", "routing", "flow", "--checkpoint", str(lab.directory(model, seed)), "--data",
                      lab.corpus.valid("all"), "--batches", "16", "--json", "--h5")


def values(lab: Lab, model: Model, seed: int) -> dict[tuple[str, str], list[dict]]:
    """Returns the datasets of each layer, by half ("attention" or "ffn") and vector ("input" or "output")."""
    with h5py.File(_file(lab, model, seed)) as log:
        layers = [log["layers"][name] for name in sorted(log["layers"])]
        read = lambda group: {name: group[name][:] for name in ("magnitude", "top_share", "common", "shared")} | {"median": float(group.attrs["median"])}
        return {(site, of): [read(layer[site][of]) for layer in layers] for site in sites for of in ("input", "output")}


def of_outputs(lab: Lab, model: Model, seed: int) -> dict[str, float]:
    """Returns the mean magnitude of the outputs of each half, over tokens, dimensions and layers."""
    known = values(lab, model, seed)
    return {site: statistics.fmean(float(layer["magnitude"].mean()) for layer in known[site, "output"]) for site in sites}


def share_of_normal(part: float, width: int) -> float:
    """Returns the expected share of the sum of squares of `width` independent standard normal numbers that the largest `part` of
    them hold, interpolated as top_share() does. A number x is among the largest k if less than k of the others are larger, so the
    share of k is ∫ x² φ(x) P(B < k) dx, with B ~ Binomial(width − 1, P(|y| > |x|))."""
    def of_largest(k: int) -> float:
        if k in (0, width):
            return float(k > 0)
        x = np.linspace(0, 12, 4001)
        larger = np.clip([math.erfc(at / math.sqrt(2)) for at in x], 1e-300, 1 - 1e-16)
        chosen = np.arange(k)
        ways = np.array([math.lgamma(width) - math.lgamma(j + 1) - math.lgamma(width - j) for j in chosen])
        fewer = np.exp(ways + np.log(larger)[:, None] * chosen + np.log1p(-larger)[:, None] * (width - 1 - chosen)).sum(axis=1)
        return float(np.sum(2 * x**2 * np.exp(-x**2 / 2) / math.sqrt(2 * math.pi) * fewer) * x[1])
    below = math.floor(part * width)
    share = of_largest(below)
    return share if below == width else share + (part * width - below) * (of_largest(below + 1) - share)


def top_share(layer: dict, part: float) -> float:
    """Returns the share of the magnitude that the top `part` of the dimensions hold, interpolated between whole dimensions."""
    shares = layer["top_share"]
    return float(np.interp(part * len(shares), np.arange(len(shares) + 1), np.concatenate([[0.0], shares])))


def run(lab: Lab) -> Page:
    lab.train(models)
    lab.losses(models)
    known = [values(lab, llama, seed) for seed in lab.seeds]
    mean = lambda run, where, figure: statistics.fmean(figure(layer) for layer in run[where])
    over_seeds = lambda where, figure: [mean(run, where, figure) for run in known]
    held = lambda part: lambda layer: top_share(layer, part)
    hidden = len(known[0]["attention", "input"][0]["magnitude"])
    in_row = lambda tokens: lambda layer: float(layer["common"][high, tokens - 1]) / hidden
    of_five = lambda tokens: lambda layer: float(layer["shared"][high, tokens]) / hidden
    chance = math.ceil(0.2 * hidden) / hidden  # share of the dimensions of a token that are high
    magnitude = lambda layer: float(layer["magnitude"].mean())
    relative = {site: [mean(run, (site, "output"), magnitude) / mean(run, (site, "input"), magnitude) for run in known] for site in sites}
    spread = {site: [statistics.pstdev(top_share(layer, 0.1) for layer in run[site, "output"]) for run in known] for site in sites}
    each = len(lab.seeds)

    page = Page("MoHD (arXiv:2412.05644), section 3, Figures 3 to 5",
                "The paper's observations on LLaMA2-7B, from which it derives sub-dimensions, on the miniature of LLaMA. The magnitude of a dimension is "
                "x². A quarter of the dimensions hold most of it; attention and FFN reduce it; neighbouring tokens have the same dimensions high, "
                "some in all of them and others in one. The table has what independent normal numbers would give, which the paper does not: their largest "
                f"1,000 of 4,096 hold {100 * share_of_normal(part_of_1000, 4096):.2f} %, and half of them {100 * share_of_normal(0.5, 4096):.2f} %; the table is for "
                f"{hidden} numbers. "
                "Definitions: [routing.md](../routing.md#activation-flow).")
    normal = share_of_normal(part_of_1000, hidden)
    page.claims += [
        Claim.above("the top 24 % of dimensions hold more of the inputs of attention than those of normal numbers", "71.96 %",
                    over_seeds(("attention", "input"), held(part_of_1000)), [normal] * each, unit="of the magnitude"),
        Claim.above("outputs of attention are smaller than its inputs", "6.7 % of the input", [1.0] * each, relative["attention"], unit="of the input"),
        Claim.above("outputs of FFNs are smaller than their inputs", "Figure 4", [1.0] * each, relative["ffn"], unit="of the input"),
        Claim.above("the sparsity of outputs varies more over layers in attention than in FFNs", "Figure 3, middle", spread["attention"], spread["ffn"],
                    unit="of the magnitude, standard deviation of the top 10 %"),
        Claim.above("more dimensions are high in 2 tokens in a row than by chance", "2,672 of 4,096", over_seeds(("attention", "input"), in_row(2)),
                    [chance**2] * each, unit="of the dimensions"),
        Claim.above("more dimensions are high in 9 tokens in a row than by chance", "673 of 4,096", over_seeds(("attention", "input"), in_row(9)),
                    [chance**9] * each, unit="of the dimensions"),
        Claim.above("more dimensions are high in all of 5 tokens than by chance", "about 400 of 4,096",
                    over_seeds(("attention", "input"), of_five(5)), [chance**5] * each, unit="of the dimensions"),
    ]
    rows = [[f"{site}, {of}", *[Spread.of(over_seeds((site, of), figure)) for figure in
             (magnitude, lambda layer: layer["median"], held(part_of_1000), held(0.5), in_row(2), in_row(9), of_five(1))]]
            for site in sites for of in ("input", "output")]
    rows.append(["independent normal numbers", "1", "0.4549", f"{normal:.4f}", f"{share_of_normal(0.5, hidden):.4f}", f"{chance**2:.4f}", f"{chance**9:.1e}",
                 f"{5 * chance * (1 - chance) ** 4:.4f}"])
    figure, (left, right) = subplots(2)
    for site in sites:
        for of, style in (("input", "-"), ("output", "--")):
            left.plot(np.arange(1, hidden + 1) / hidden, np.mean([layer["top_share"] for run in known for layer in run[site, of]], axis=0), style,
                      label=f"{site}, {of}")
        right.plot(range(len(known[0][site, "output"])), [statistics.fmean(top_share(run[site, "output"][i], 0.1) for run in known)
                                                         for i in range(len(known[0][site, "output"]))], marker="o", label=f"{site}, output")
    parts = np.linspace(0, 1, 33)[1:]
    left.plot(parts, [share_of_normal(part, hidden) for part in parts], "k:", label="independent normal numbers")
    left.set_xlabel("largest dimensions, of all")
    left.set_ylabel("share of the magnitude")
    left.legend(frameon=False, fontsize=8)
    right.set_xticks(range(len(known[0]["ffn", "output"])))
    right.set_xlabel("layer")
    right.set_ylabel("share of the top 10 %")
    right.legend(frameon=False, fontsize=8)
    page.section("Figures 3 to 5", page.figure("mohd-flow.png", "Shares of the largest dimensions, and of the top 10 % by layer", figure),
                 table(["vector", "magnitude", "median", "top 24 %", "top 50 %", "high in 2", "high in 9", "high in 1 of 5"], rows),
                 f"Means over layers, of {hidden} dimensions; *high* is one of the top 20 % of a token. The paper's 2,672 dimensions that are high in two "
                 "tokens are more than the 819 of one token, so its threshold is another one, which it does not give. Inputs are those after the norm, whose "
                 "weights begin at 1 and change little in so few updates; so their magnitude is near 1, and that of outputs, relative to it, is large.")
    page.results |= {"output_of_input": relative, "top_24_percent": over_seeds(("attention", "input"), held(part_of_1000)),
                     "top_50_percent": over_seeds(("attention", "input"), held(0.5))}
    page.models = models
    return page
