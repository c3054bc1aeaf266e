"""MoHD (Chen et al. 2024, arXiv:2412.05644) beyond its ablations: sizes (Table 2), the scaling of sub-dimensions, halves with
different shares (Table 5), and how many sub-dimensions there are and are shared (Figure 12)."""
import math
import statistics

import flow
from compare import Claim, Spread, minus
from lab import Keys, Lab, Model
from losses import about_items, curves, millions, percent
from mohd import _llama, _sub_dimensions, _twice, ablations, activated_in_blocks, double, gap, half, llama, table_of_losses, three_quarters
from mohd import perplexity as perplexity_of_ablations
from page import Page, subplots, table


# --- sizes: Tables 2 and 3, Figures 8 and 9

triple = Model("mohd-x3", _llama | _sub_dimensions | {"model.hidden": 576, "sub_dimensions.attention": 12, "sub_dimensions.ffn": 12,
                                                      "sub_dimensions.fusion_width": 12})
quadruple = Model("mohd-x4", _llama | _sub_dimensions | {"model.hidden": 768, "sub_dimensions.attention": 16, "sub_dimensions.ffn": 16,
                                                         "sub_dimensions.fusion_width": 16})
size_models = [llama, half, three_quarters, double, triple, quadruple]
averages = {"llama": 42.7, "mohd-50": 42.3, "mohd-75": 43.2, "mohd-x2": 44.9, "mohd-x3": 44.5, "mohd-x4": 44.7}  # Table 2, 355M


def sizes(lab: Lab) -> Page:
    lab.train(size_models)
    losses, scores = lab.losses(size_models), lab.scores(size_models)
    page = Page("MoHD (arXiv:2412.05644), Tables 2 and 3, Figures 8 and 9",
                "MoHD with two, three and four times LLaMA's hidden dimension and as many activated parameters of blocks, but for those of fusion and "
                "routers, which are more at this size (4 of 8, 12 and 16 sub-dimensions, 3 of them shared; the table has the numbers), and with half and three quarters of them activated; three quarters are 6 of 8 here, where "
                "Table 3 of the paper has 4 of 12. The paper reports accuracies, of which the table "
                "shows the average: all expansions are better than LLaMA, ×3 and ×4 about as good as ×2. Embedding and head grow with the hidden "
                "dimension, which at this size is much of the model.")
    accuracy = lambda worse, better: f"accuracy {averages[worse.name]} against {averages[better.name]}"
    for worse, better in ((llama, three_quarters), (half, llama), (llama, double), (llama, triple), (llama, quadruple), (triple, double),
                          (quadruple, double)):
        page.claims.append(Claim.above(f"{worse.name} has a higher loss than {better.name}", accuracy(worse, better), losses[worse.name],
                                       losses[better.name]))
    figure, (left, right) = subplots(2)
    for axis, count, text in ((left, lambda model: activated_in_blocks(lab, model), "activated parameters of blocks, millions"),
                              (right, lambda model: lab.parameters(model)["total"], "all parameters, millions")):
        for model in size_models:
            axis.errorbar(count(model) / 1e6, statistics.fmean(scores[model.name]), yerr=[[statistics.fmean(scores[model.name]) - min(scores[model.name])],
                          [max(scores[model.name]) - statistics.fmean(scores[model.name])]], marker="o", label=model.name)
        axis.set_xlabel(text)
    left.set_ylabel("cloze items, % right")
    right.legend(frameon=False, fontsize=8)
    rows = [[model.name, millions(lab.parameters(model)["total"]), millions(activated_in_blocks(lab, model)), averages[model.name],
             percent(scores[model.name]), Spread.of(losses[model.name])] for model in size_models]
    page.section("Scores and losses (Table 2, Figures 8 and 9)",
                 table(["model", "parameters", "activated, of blocks", "paper: average accuracy", "here: cloze items", "here: loss, mean ± sd"], rows),
                 about_items, page.figure("mohd-sizes-scores.png", "Scores against activated and all parameters", figure),
                 curves(lab, page, size_models, "mohd-sizes.png"))
    page.results |= {"loss": losses, "score": scores}
    page.models = size_models
    return page


# --- the scaling of sub-dimensions, and the input gates of equations 15 and 16

no_scaling = ablations["sub-dimension scaling"]
printed = Model("mohd-x2-printed", _twice | {"sub_dimensions.scaling": "printed"})
input_gates = Model("mohd-x2-input-gates", _twice | {"sub_dimensions.input_gates": "true"})
input_gates_only = Model("mohd-x2-input-gates-no-scaling", _twice | {"sub_dimensions.input_gates": "true", "sub_dimensions.scaling": "none"})
slow_double, slow_none = (Model(f"{model.name}-slow", model.keys | {"optim.lr": 5e-4, "optim.min_lr": 5e-5}) for model in (double, no_scaling))
scaling_models = [double, printed, no_scaling, input_gates, input_gates_only, slow_double, slow_none]


def scaling(lab: Lab) -> Page:
    models = scaling_models
    lab.train(models)
    losses, scores = lab.losses(models), lab.scores(models)
    magnitudes = {model.name: [flow.of_outputs(lab, model, seed) for seed in lab.seeds] for model in models}
    page = Page("MoHD (arXiv:2412.05644), section 4.2, equations 15 and 16, Table 4",
                "Outputs of a half are multiplied by the probabilities of their sub-dimensions. `restore` scales these to a sum of N, as the text of the "
                "paper says; `printed` is its formula, α = N · Σ g, which at the start is 8 · 4/8 = 4 instead of 8 / (4/8) = 16; without scaling they are "
                "about 1/8. Equations 15 and 16 have gates in the inputs of q, k, v, gate and up, too. The paper's ablation loses 0.107 nats "
                "without scaling. At this size it may gain instead, for one of these reasons. AdamW's updates do not depend on the scale of "
                "gradients, so with factors that are 16 times as large, a half's output changes 16 times as much per update, and the learning rate may "
                "be too high: then a quarter of it lowers the loss more with scaling than without. Or it matters how large the outputs are at the start, "
                "beside the embedding, since residual networks train well whose branches begin small (De and Smith 2020, arXiv:2002.10444): their "
                "factor is 1/8 without scaling, 1/2 with `printed`, 2 with `restore`, and more than that with input gates; then the losses have this "
                "order. Both are tested. The last table has the mean square of a half's outputs after training, over tokens, dimensions and layers.")
    for worse, better, paper in ((no_scaling, double, gap(no_scaling, double)), (no_scaling, printed, "Table 4, by the printed formula"),
                                 (input_gates_only, input_gates, "equations 15 and 16"), (input_gates, double, "not compared"),
                                 (printed, double, "not compared")):
        page.claims.append(Claim.above(f"{worse.name} has a higher loss than {better.name}", paper, losses[worse.name], losses[better.name]))
    page.claims.append(Claim.above("a quarter of the learning rate lowers the loss more with scaling than without", "not compared",
                                   minus(losses[double.name], losses[slow_double.name]), minus(losses[no_scaling.name], losses[slow_none.name])))
    page.section("Losses", table_of_losses(lab, models, losses, scores, perplexity_of_ablations), about_items,
                 "Names with *slow* have a quarter of the learning rate.", curves(lab, page, models, "mohd-scaling.png"))
    page.section("Magnitude of outputs", table(["model", "attention", "FFN"],
                                              [[name, *[Spread.of(run[site] for run in of) for site in flow.sites]] for name, of in magnitudes.items()]))
    page.results |= {"loss": losses, "score": scores, "magnitude_of_outputs": magnitudes}
    page.models = models
    return page


# --- the scaling of sub-dimensions with more updates

longer = 3  # times the updates
update_models = [double, no_scaling]


def updates(lab: Lab) -> Page:
    steps = longer * lab.steps
    long_double, long_none = long = [Model(f"{model.name}-long", model.keys | {"run.steps": steps, "optim.warmup_steps": steps // 10})
                                     for model in update_models]
    models = [*update_models, *long]
    lab.train(models)
    losses, scores = lab.losses(models), lab.scores(models)
    page = Page("MoHD (arXiv:2412.05644), section 4.2, Table 4",
                "The paper's ablation loses 0.107 nats without the scaling of sub-dimensions. At this size it gains. If few updates are the reason, it gains "
                f"less with {longer} times as many.")
    page.claims.append(Claim.above(f"{long_none.name} has a higher loss than {long_double.name}", gap(no_scaling, double), losses[long_none.name],
                                   losses[long_double.name]))
    page.claims.append(Claim.above(f"with {longer} times the updates, the model without scaling gains less", "not compared",
                                   minus(losses[double.name], losses[no_scaling.name]), minus(losses[long_double.name], losses[long_none.name])))
    page.section("Losses", table_of_losses(lab, models, losses, scores, perplexity_of_ablations), about_items,
                 f"Names with *long* have {longer} times the updates, on {longer} times the tokens.", curves(lab, page, models, "mohd-updates.png"))
    page.results |= {"loss": losses, "score": scores}
    page.models = models
    return page


# --- attention and FFN with different shares: Table 5, Figure 10


def shares(attention: int, ffn: int) -> Model:
    """Returns LLaMA with MoHD in which a token uses these percentages of the hidden dimension in attention and FFN: 4 of 4, 8 or
    16 sub-dimensions."""
    parts = {100: 4, 50: 8, 25: 16}
    return Model(f"mohd-{attention}-{ffn}", _llama | _sub_dimensions | {"sub_dimensions.attention": parts[attention], "sub_dimensions.ffn": parts[ffn],
                                                                         "sub_dimensions.fusion_width": -1})


table_5 = {(100, 100): 11.43, (100, 50): 11.31, (50, 100): 12.25, (50, 50): 12.05, (100, 25): 12.24, (25, 100): 14.31, (25, 25): 13.20}
by_shares = {each: half if each == (50, 50) else shares(*each) for each in table_5}
decoupled_models = [llama, *by_shares.values()]


def decoupled(lab: Lab) -> Page:
    lab.train(decoupled_models)
    losses, scores = lab.losses(decoupled_models), lab.scores(decoupled_models)
    perplexity = {"llama": 11.61} | {by_shares[each].name: value for each, value in table_5.items()}
    page = Page("MoHD (arXiv:2412.05644), Table 5, Figure 10",
                "A token uses 100, 50 or 25 % of the hidden dimension in attention and in the FFN, 4 of 4, 8 or 16 sub-dimensions, 3 of them shared; "
                "all models have LLaMA's hidden dimension. The paper finds that FFNs are more redundant than attention, that with 100 % MoHD is better "
                "than LLaMA, and that both halves with 25 % are better than attention alone with it.")
    for worse, better in ((llama, (100, 100)), ((100, 100), (100, 50)), ((50, 100), (100, 50)), ((50, 100), (50, 50)), ((100, 25), (50, 50)),
                          ((25, 100), (100, 25)), ((25, 100), (25, 25))):
        first, second = (each if isinstance(each, Model) else by_shares[each] for each in (worse, better))
        of_first, of_second = perplexity[first.name], perplexity[second.name]
        paper = f"{math.log(of_first / of_second):+.3f} (perplexity {of_first:.2f} against {of_second:.2f})"
        page.claims.append(Claim.above(f"{first.name} has a higher loss than {second.name}", paper, losses[first.name], losses[second.name]))
    page.section("Losses (Table 5, Figure 10)", "Names give the percentages of attention and FFN; mohd-50 has 50 % in both.",
                 table_of_losses(lab, decoupled_models, losses, scores, perplexity), about_items, curves(lab, page, decoupled_models, "mohd-decoupled.png"))
    page.results |= {"loss": losses, "score": scores}
    page.models = decoupled_models
    return page


# --- how many sub-dimensions are shared, and how many there are: Figure 12

_wide: Keys = _twice | {"model.hidden": 512, "model.heads": 8, "model.ffn_hidden": 640}  # twice the hidden dimension of 256


def of_shared(shared: int) -> Model:
    changes = {"sub_dimensions.shared": shared} | ({"balance.sub_dimension": 0} if shared == 4 else {})  # with 4, none is left to balance
    return Model(f"mohd-x2-{shared}-shared", _twice | changes)


def of_number(number: int) -> Model:
    return Model(f"mohd-x2-of-{number}", _wide | {"sub_dimensions.attention": number, "sub_dimensions.ffn": number, "sub_dimensions.active": number // 2,
                                                  "sub_dimensions.shared": number * 3 // 8, "sub_dimensions.fusion_width": -1})


by_shared = {0: ablations["mixed activated sub-dimensions"], 1: of_shared(1), 2: of_shared(2), 3: double, 4: of_shared(4)}
by_number = {number: of_number(number) for number in (8, 16, 64, 128, 256)}
allocation_models = [llama, *by_shared.values(), *by_number.values()]


def allocation(lab: Lab) -> Page:
    lab.train(allocation_models)
    losses = lab.losses(allocation_models)
    page = Page("MoHD (arXiv:2412.05644), Figure 12",
                "Of the 4 sub-dimensions that a token uses, 0 to 4 are shared (Figure 12(a)), and the hidden dimension of 512 is divided into 8 to 256, "
                "of which half are active, three quarters of these shared, with fusion matrices of as many rows (Figure 12(b)). In the paper, 3 of 4 are "
                "best, 4 of 4 much worse, and 0 of 4 better than LLaMA; more than 16 sub-dimensions gain little and cost time.")
    for shared in (0, 1, 2, 4):
        page.claims.append(Claim.above(f"{shared} of 4 shared have a higher loss than 3 of 4", "Figure 12(a)", losses[by_shared[shared].name],
                                       losses[double.name]))
    timed = by_number if lab.device == "cpu" else {}  # on a GPU, a step waits for the other runs
    seconds = {number: [lab.median_step_seconds(model, seed) for seed in lab.seeds] for number, model in timed.items()}
    page.claims += [
        Claim.above("LLaMA has a higher loss than 0 of 4 shared", "Figure 12(a)", losses[llama.name], losses[by_shared[0].name]),
        Claim.above("8 sub-dimensions have a higher loss than 16", "Figure 12(b)", losses[by_number[8].name], losses[by_number[16].name]),
    ]
    if seconds:
        page.claims.append(Claim.above("256 sub-dimensions take more time than 16", "section 5.5", seconds[256], seconds[16], unit="s per step"))
    figure, (left, right) = subplots(2)
    left.plot(list(by_shared), [statistics.fmean(losses[model.name]) for model in by_shared.values()], marker="o")
    left.axhline(statistics.fmean(losses[llama.name]), color="C3", linestyle="--", label="LLaMA")
    left.set_xlabel("shared sub-dimensions, of 4")
    left.set_ylabel("held-out loss, nats per token")
    left.legend(frameon=False)
    right.plot(list(by_number), [statistics.fmean(losses[model.name]) for model in by_number.values()], marker="o", color="C1")
    right.set_xscale("log", base=2)
    right.set_xlabel("sub-dimensions, half of them active")
    page.section("Shared sub-dimensions and their number", page.figure("mohd-allocation.png", "Loss against shared sub-dimensions and their number", figure),
                 table(["shared, of 4", *map(str, by_shared)], [["loss, mean ± sd", *[Spread.of(losses[model.name]) for model in by_shared.values()]]]),
                 table(["sub-dimensions", *map(str, by_number)],
                       [["loss, mean ± sd", *[Spread.of(losses[model.name]) for model in by_number.values()]],
                        ["parameters", *[millions(lab.parameters(model)["total"]) for model in by_number.values()]],
                        *([["seconds per step", *[f"{statistics.fmean(each):.3f}" for each in seconds.values()]]] if seconds else [])]),
                 f"LLaMA: {Spread.of(losses[llama.name])}.")
    page.results |= {"loss": losses, "seconds_per_step": {str(number): each for number, each in seconds.items()}}
    page.models = allocation_models
    return page
