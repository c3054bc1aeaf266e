"""MoDSE (Sun et al. 2024): experts of diverse sizes, in pairs whose mean is the size of the experts of the baseline."""
import json
import re
import statistics

import h5py
import numpy as np

from compare import Claim, Difference, Spread, minus
from losses import about_items, curves, loss_table
from files import write_whole
from lab import Lab, Model
from page import Page, table

width = 320
sizes = [576, 64, 512, 128, 384, 256, 320, 320]  # a twelfth of the paper's sizes, 6912 … 3840
_common = {"moe.experts": 8, "moe.top_k": 2, "moe.router": "noisy", "moe.gates": "renormalized", "balance.expert": 0.01,
           "balance.scope": "batch", "optim.schedule": "cosine", "optim.min_lr": 2e-4, "optim.warmup_from": 2e-7}
uniform = Model("moe-uniform", _common | {"moe.expert_hidden": width})
wider = Model("moe-uniform-105", _common | {"moe.expert_hidden": width * 105 // 100})
diverse = Model("modse", _common | {"moe.expert_sizes": ",".join(map(str, sizes))})
models = [uniform, wider, diverse]
thresholds = [1.0, 1.14, 1.33, 1.52, 1.71, 1.90]  # multiples of the baseline's mean: the paper's 1.05 … 2.0 over its mean, 1.05


def loads(lab: Lab, model: Model, seed: int, late: bool) -> list[list[np.ndarray]]:
    """Returns the tokens of each expert, by layer and choice, over the first or the last tenth of training."""
    _, counts = lab.routing(model, seed, "counts")
    few = max(1, len(counts[0]) // 10)
    return [list((layer[-few:] if late else layer[:few]).sum(axis=0)) for layer in counts]


def log_of(lab: Lab, model: Model, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the loss [tokens] and the width of the chosen experts [layers, tokens, top_k] on all held-out text."""
    file = lab.output(model, seed, "tokens.h5", "eval", "--checkpoint", str(lab.directory(model, seed)), "--batches", "0",
                      f"--data.valid={lab.corpus.valid('all')}", "--token-log")
    with h5py.File(file) as log:
        layers = [log["layers"][name] for name in sorted(log["layers"])]
        return log["loss"][:], np.stack([layer.attrs["expert_sizes"][layer["chosen"][:]] for layer in layers])


def unevenness(lab: Lab, model: Model, seed: int, late: bool) -> float:
    """Returns the standard deviation of the tokens of the experts over their mean, averaged over layers and choices."""
    return statistics.fmean(float(load.std() / load.mean()) for layer in loads(lab, model, seed, late) for load in layer)


def share_of_narrow(lab: Lab, seed: int, late: bool) -> float:
    """Returns the share of MoDSE's choices that go to experts narrower than the mean, of those that do not go to experts of the
    mean width."""
    total = sum(load for layer in loads(lab, diverse, seed, late) for load in layer)
    narrow, wide = (sum(int(total[i]) for i, size in enumerate(sizes) if condition(size)) for condition in (lambda s: s < width, lambda s: s > width))
    return narrow / (narrow + wide)


def decoding(lab: Lab, seed: int, rounds: int) -> dict[str, float]:
    """Returns the time of a decoded token in milliseconds by model: the median of `rounds` medians, measured in turn, with nothing
    else trained or evaluated. It is measured once for each seed."""
    file = lab.directory(diverse, seed) / "decoding.json"
    if not file.exists():
        measured = {model.name: [] for model in (uniform, diverse)}
        for _ in range(rounds):
            for model in (uniform, diverse):
                text = lab.program.messages("generate", "--checkpoint", str(lab.directory(model, seed)), "--prompt", "The file is", "--tokens", "48",
                                            "--temperature", "0", "--timing")
                measured[model.name].append(float(re.search(r"([0-9.]+) ms per token", text)[1]))
        write_whole(file, json.dumps({name: statistics.median(times) for name, times in measured.items()}) + "\n")
    return json.loads(file.read_text())


def ratio(load: np.ndarray) -> str:
    return f"{load.max() / load.min():.2f}" if load.min() else "inf"


def run(lab: Lab) -> Page:
    lab.train(models)
    losses = lab.losses(models)
    evaluations = lab.evaluate([(diverse, seed, ()) for seed in lab.seeds])
    chosen = [evaluations[diverse.name, seed, ()]["chosen_width"] / width for seed in lab.seeds]
    logs = {(model.name, seed): log_of(lab, model, seed) for model in (uniform, diverse) for seed in lab.seeds}
    page = Page("Mixture of Diverse Size Experts (arXiv:2409.12210), Figures 2 and 3, Tables 4, 5, 6, 8, section 4.2",
                "Half of the experts are wider than the baseline's, half narrower, in pairs whose mean is the same, so both models have the same "
                "number of parameters. The paper claims a lower loss throughout training, most of all on tokens that the baseline finds "
                "difficult, which choose wider experts; a mean width of the chosen experts of 1.05 times the baseline's, which is not the "
                "reason (a baseline of that width is no better than the baseline); and loads that become even by the end.")

    # Table 5. Tokens that are selected for a high loss in one run have a lower loss in any other run. So the models are also
    # compared in another seed than the one that selected the tokens.
    other = {seed: lab.seeds[(i + 1) % len(lab.seeds)] for i, seed in enumerate(lab.seeds)}
    means = {seed: float(logs[uniform.name, seed][0].mean()) for seed in lab.seeds}
    shown = [t for t in thresholds if all((logs[uniform.name, seed][0] > t * means[seed]).sum() >= 20 for seed in lab.seeds)]
    hardest = shown[-1]
    reduction, fair, share = {}, {}, {}
    for seed in lab.seeds:
        base_loss, _ = logs[uniform.name, seed]
        for threshold in shown:
            hard = base_loss > threshold * means[seed]
            reduction.setdefault(threshold, []).append(float((base_loss - logs[diverse.name, seed][0])[hard].mean()))
            fair.setdefault(threshold, []).append(float((logs[uniform.name, other[seed]][0] - logs[diverse.name, other[seed]][0])[hard].mean()))
            share.setdefault(threshold, []).append(float(hard.mean()))

    # Table 6: widths that the tokens above the highest threshold choose.
    wide = {"all": [], "difficult": [], "all, first choice": [], "difficult, first choice": []}
    for seed in lab.seeds:
        base_loss, _ = logs[uniform.name, seed]
        hard = base_loss > hardest * means[seed]
        widths = logs[diverse.name, seed][1]
        for name, part in (("", widths), (", first choice", widths[:, :, :1])):
            wide["all" + name].append(float((part > width).mean()))
            wide["difficult" + name].append(float((part[:, hard] > width).mean()))

    page.claims += [
        Claim.above("the uniform model has a higher loss than MoDSE", "Figure 2", losses[uniform.name], losses[diverse.name]),
        Claim.above("uniform experts of 1.05 times the width have a higher loss than MoDSE", "Figure 2", losses[wider.name], losses[diverse.name]),
        Claim.above("difficult tokens choose wider experts more often than all tokens", "67 % of the first choices that are not of the mean width",
                    wide["difficult, first choice"], wide["all, first choice"], unit="of the first choices"),
        Claim.above("the chosen experts are wider than the mean", "1.053", chosen, [1.0] * len(chosen), unit="of the mean"),
    ]
    if len(lab.seeds) > 1:
        page.claims.append(Claim.above("on the tokens that one seed of the uniform model finds most difficult, its other seeds have a higher loss than "
                                       "MoDSE", "0.58 nats, of the seed that chose", fair[hardest], [0.0] * len(lab.seeds)))
    paper_reduction = dict(zip(thresholds, ["0.18", "0.22", "0.32", "0.36", "0.46", "0.58"]))
    # The paper's models without and with 105 % of the width have the same curve, above MoDSE's.
    page.claims.append(Claim.above("uniform experts of 1.05 times the width are closer to the uniform model than MoDSE is", "Figure 2",
                                   minus(losses[uniform.name], losses[diverse.name]),
                                   [abs(difference) for difference in minus(losses[uniform.name], losses[wider.name])]))
    uneven = {(model.name, late): [unevenness(lab, model, seed, late) for seed in lab.seeds] for model in (uniform, diverse) for late in (False, True)}
    narrow = {late: [share_of_narrow(lab, seed, late) for seed in lab.seeds] for late in (False, True)}
    times = [decoding(lab, seed, 7) for seed in lab.seeds]
    slower = [each[diverse.name] / each[uniform.name] - 1 for each in times]
    page.claims += [
        Claim.above("MoDSE's loads are less even in the first tenth of training than in the last", "appendix A", uneven[diverse.name, False],
                    uneven[diverse.name, True], unit="of the mean load"),
        Claim.above("in the first tenth of training, narrow experts get more tokens than wide ones", "Figure 3(c)", narrow[False], [0.5] * len(lab.seeds),
                    unit="of the choices"),
        Claim.above("decoding with MoDSE takes less than 5 % longer than with the uniform model", "Table 4: 1 % over all benchmarks", [0.05] * len(lab.seeds),
                    slower, unit="of the time"),
    ]
    scores = lab.scores(models)
    paper_scores = ("PIQA", {uniform.name: "53.1", diverse.name: "57.6"})
    page.section("Loss", loss_table(lab, models, losses, diverse, scores=scores, paper_scores=paper_scores), about_items, curves(lab, page, models, "modse.png"),
                 f"Mean width of the experts that MoDSE's tokens choose, over the baseline's: {Spread.of(chosen)} (paper: 1.053).")
    page.section("Difficult tokens (Table 5)",
                 "Tokens on which the baseline's loss is above a threshold, relative to its mean loss, and by how much MoDSE's is lower. The paper "
                 "compares the models on the tokens that the baseline itself chose. Tokens chosen for a high loss have a lower one in any other "
                 "model, so the last column compares both models with another seed than the one that selected the tokens.",
                 table(["threshold / mean", "tokens", "paper", "same seed", "another seed"],
                       [[f"{threshold:.2f}", f"{100 * statistics.fmean(share[threshold]):.1f} %", paper_reduction[threshold],
                         Spread.of(reduction[threshold]), Spread.of(fair[threshold])] for threshold in reversed(shown)]))
    page.section("Choices of difficult tokens (Table 6)", table(["share of choices that are wider than the mean", "all tokens", "difficult tokens"],
                 [["any choice", Spread.of(wide["all"]), Spread.of(wide["difficult"])],
                  ["first choice", Spread.of(wide["all, first choice"]), Spread.of(wide["difficult, first choice"])]]))
    early, late = (loads(lab, diverse, lab.seeds[0], part) for part in (False, True))
    base_late = loads(lab, uniform, lab.seeds[0], True)
    becomes_even = [late[layer][k].max() / max(1, late[layer][k].min()) < early[layer][k].max() / max(1, early[layer][k].min())
                    for layer in range(len(early)) for k in range(2)]
    page.section("Loads (appendix A)", f"Tokens of the most used expert over those of the least used one, seed {lab.seeds[0]}.",
                 table(["layer, choice", "MoDSE, first tenth", "MoDSE, last tenth", "uniform, last tenth"],
                       [[f"{layer}, top {k + 1}", ratio(early[layer][k]), ratio(late[layer][k]), ratio(base_late[layer][k])]
                        for layer in range(len(early)) for k in range(2)]),
                 f"{sum(becomes_even)} of {len(becomes_even)} rows become more even during training; in the paper, the load evens out. Over all seeds, layers "
                 "and choices, the standard deviation of the tokens over their mean, and the share of narrow experts of the choices that are not of "
                 "the mean width:",
                 table(["", "first tenth", "last tenth"],
                       [*[[f"{model.name}: deviation of the load", *[Spread.of(uneven[model.name, late]) for late in (False, True)]]
                          for model in (uniform, diverse)],
                        ["modse: share of narrow experts", *[Spread.of(narrow[late]) for late in (False, True)]]]))
    page.section("Decoding time (Table 4)", table(["model", "ms per token, mean ± sd over seeds"],
                                                 [[model.name, Spread.of([each[model.name] for each in times])] for model in (uniform, diverse)]),
                 f"One sequence on one core, the median of 7 runs in turn. The time of MoDSE over that of the uniform model, minus 1: "
                 f"{Difference.of(slower, [0.0] * len(lab.seeds))}. The paper's two models take 3 h 3 min and 3 h 4 min for its benchmarks together.")
    page.results |= {"loss": losses, "score": scores,
                     "unevenness": {f"{name}, {'last' if late else 'first'} tenth": v for (name, late), v in uneven.items()},
                     "share_of_narrow": {"first tenth": narrow[False], "last tenth": narrow[True]}, "decoding_ms": times, "chosen_width": chosen, "reduction": {str(k): v for k, v in reduction.items()},
                     "reduction_in_another_seed": {str(k): v for k, v in fair.items()}, "wider": wide}
    page.models = models
    return page
