"""DeepSeekMoE (Dai et al. 2024, arXiv:2401.06066) and its baselines, with the proportions of its models of 2B parameters:
16 experts as wide as the dense FFN, or 64 of a quarter of the width."""
import itertools
import statistics

from compare import Claim, Difference, Spread, minus, smallest_visible
from lab import Lab, Model
from losses import about_items, curves, loss_table
from page import Page, subplots, table

ffn = 352  # width of the dense FFN; 2.75 times hidden
learned = {"balance.expert": 0.01}

dense = Model("dense", {"model.ffn_hidden": ffn})
hashed = Model("hash", {"moe.experts": 16, "moe.top_k": 1, "moe.expert_hidden": ffn, "moe.router": "hash"})
switch = Model("switch", learned | {"moe.experts": 16, "moe.top_k": 1, "moe.expert_hidden": ffn, "balance.scope": "batch"})
# Equations 3 to 5 of the paper give its baselines the router's probabilities as gates. GShard itself divides the two gates of a
# token by their sum [Lepikhin et al. 2021]; that variant is a row of its own, without claims.
gshard = Model("gshard", learned | {"moe.experts": 16, "moe.top_k": 2, "moe.expert_hidden": ffn})
gshard_renormalized = Model("gshard-renormalized", gshard.keys | {"moe.gates": "renormalized"})
shared_expert = Model("shared-expert", learned | {"moe.experts": 15, "moe.shared_experts": 1, "moe.top_k": 1, "moe.expert_hidden": ffn})
halves = Model("halves", learned | {"moe.experts": 31, "moe.shared_experts": 1, "moe.top_k": 3, "moe.expert_hidden": ffn // 2})
deepseekmoe = Model("deepseekmoe", learned | {"moe.experts": 63, "moe.shared_experts": 1, "moe.top_k": 7, "moe.expert_hidden": ffn // 4})
gshard_wide = Model("gshard-x1.5", gshard.keys | {"moe.expert_hidden": ffn * 3 // 2})
gshard_wide_renormalized = Model("gshard-x1.5-renormalized", gshard_wide.keys | {"moe.gates": "renormalized"})
fewer = Model("deepseekmoe-half-activated", {**deepseekmoe.keys, "moe.top_k": 3})
gshard_slightly_wide = Model("gshard-x1.2", gshard.keys | {"moe.expert_hidden": ffn * 6 // 5})
# The paper's larger dense models have 4 or 16 experts of the width of an FFN, all of them shared.
dense_4 = Model("dense-x4", {"moe.shared_experts": 4, "moe.expert_hidden": ffn})
dense_16 = Model("dense-x16", {"moe.shared_experts": 16, "moe.expert_hidden": ffn})
two_shared, four_shared = (Model(f"deepseekmoe-{n}-shared", deepseekmoe.keys | {"moe.experts": 64 - n, "moe.shared_experts": n, "moe.top_k": 8 - n})
                           for n in (2, 4))


baseline_models = [dense, hashed, switch, gshard, gshard_renormalized, deepseekmoe]
ablation_models = [gshard, gshard_renormalized, shared_expert, halves, deepseekmoe]
redundancy_models = [gshard, gshard_wide, gshard_wide_renormalized, deepseekmoe, fewer]
larger_models = [gshard, gshard_slightly_wide, gshard_wide, dense_4, dense_16, deepseekmoe]
ratio_models = [deepseekmoe, two_shared, four_shared]


def as_in_paper(models: list[Model]) -> list[Model]:
    """Returns the models that the paper compares: those without renormalized gates."""
    return [model for model in models if model not in (gshard_renormalized, gshard_wide_renormalized)]


pile_loss = {"dense": "2.060", "hash": "1.932", "switch": "1.881", "gshard": "1.867", "gshard-x1.2": "1.824", "gshard-x1.5": "1.808",
             "dense-x4": "1.908", "dense-x16": "1.806", "deepseekmoe": "1.808", "deepseekmoe-2-shared": "1.806", "deepseekmoe-4-shared": "1.811"}
hellaswag = ("HellaSwag", {"dense": "38.8", "hash": "46.2", "switch": "49.1", "gshard": "50.5", "gshard-x1.2": "53.7", "gshard-x1.5": "54.4",
                           "dense-x4": "47.6", "dense-x16": "55.1", "deepseekmoe": "54.8"})  # Tables 1, 2, 8, 9


def difference_in_paper(worse: Model, better: Model, otherwise: str) -> str:
    known = worse.name in pile_loss and better.name in pile_loss
    return f"{float(pile_loss[worse.name]) - float(pile_loss[better.name]):+.3f}" if known else otherwise


def compared(lab: Lab, page: Page, name: str, models: list[Model], pairs: list[tuple[Model, Model]], figure: str) -> dict[str, list[float]]:
    """Trains the models, and adds the claims that the first model of each pair has a higher loss than the second. Returns the
    losses of all models."""
    lab.train(models)
    losses = lab.losses(models)
    for worse, better in pairs:
        page.claims.append(Claim.above(f"{worse.name} has a higher loss than {better.name}", difference_in_paper(worse, better, figure),
                                       losses[worse.name], losses[better.name]))
    scores = lab.scores(models)
    page.section("Losses", loss_table(lab, models, losses, deepseekmoe, pile_loss, scores, hellaswag), about_items,
                 curves(lab, page, models, f"{name}.png"))
    page.results |= {"loss": losses, "score": scores}
    page.models = models
    return losses


def baselines(lab: Lab) -> Page:
    page = Page("DeepSeekMoE (arXiv:2401.06066), Table 1",
                "The paper's Table 1: with equal total parameters (dense: equal FFN), each model has a lower loss than all before it: "
                "Dense, Hash, Switch, GShard, DeepSeekMoE. Switch multiplies an expert's output by its one gate, which is small as long as "
                "the router is undecided; Hash has no gate; the gates of GShard and DeepSeekMoE are the router's probabilities, too (equations "
                "3 to 5), but DeepSeekMoE's shared expert has none. gshard-renormalized has GShard's own gates, which add up to 1. Switch's "
                "balance loss counts over the batch, as in its paper, those of GShard and DeepSeekMoE over each sequence.")
    pairs = list(itertools.combinations(as_in_paper(baseline_models), 2))
    losses = compared(lab, page, "deepseekmoe-baselines", baseline_models, pairs, "")
    visible = smallest_visible(losses["dense"])
    small = [pair for pair in pairs if abs(float(difference_in_paper(*pair, "nan"))) < visible]
    page.sections.append(
        f"The smallest difference that {len(lab.seeds)} seeds of the dense model would show, were they not paired, is {visible:.4f} nats. The paper's own "
        f"difference is smaller for {len(small)} of the {len(pairs)} pairs"
        + (": " + ", ".join(f"{worse.name} and {better.name}" for worse, better in small) if small else "") + ".")
    return page


def ablation(lab: Lab) -> Page:
    page = Page("DeepSeekMoE (arXiv:2401.06066), Figure 3",
                "The paper's Figure 3: starting from GShard (0 shared + 2 of 16 routed experts), a shared expert helps (1 + 1 of 15), and "
                "finer experts help further (1 + 3 of 31 of half the width, 1 + 7 of 63 of a quarter). Parameters and activated parameters "
                "are the same in all. The paper shows accuracies of six benchmarks, normalised; here it is the loss. The gates of all models "
                "are the router's probabilities (equations 3 to 5); gshard-renormalized has GShard's own gates, which add up to 1.")
    compared(lab, page, "deepseekmoe-ablation", ablation_models, list(itertools.pairwise(as_in_paper(ablation_models))), "Figure 3")
    return page


def larger(lab: Lab) -> Page:
    page = Page("DeepSeekMoE (arXiv:2401.06066), Tables 2, 8 and 9",
                "The paper compares DeepSeekMoE with GShard of 1.2 and 1.5 times the expert width, and with dense models of 4 and 16 times the FFN. "
                "DeepSeekMoE is as good as GShard ×1.5, and nearly as good as Dense ×16, which has its total parameters and activates all of them: "
                "an upper bound for mixtures. The gates of all models are the router's probabilities (equations 3 to 5); experts of the dense models "
                "are all shared, without gates.")
    pairs = [(gshard, gshard_slightly_wide), (gshard_slightly_wide, gshard_wide), (gshard_slightly_wide, deepseekmoe), (dense_4, dense_16),
             (dense_4, deepseekmoe), (deepseekmoe, dense_16)]
    losses = compared(lab, page, "deepseekmoe-larger", larger_models, pairs, "")
    page.sections.append(f"GShard's loss is {Difference.of(losses['gshard'], losses['gshard-x1.5'])} nats above that of GShard ×1.5, and "
                         f"{Difference.of(losses['gshard'], losses['deepseekmoe'])} above that of DeepSeekMoE; in the paper, both differences are 0.059.")
    return page


def ratio(lab: Lab) -> Page:
    page = Page("DeepSeekMoE (arXiv:2401.06066), section 4.4",
                "With 64 experts of a quarter of the width, 8 of them activated, 1, 2 or 4 are shared. The paper finds that the number hardly "
                "matters, with 2 slightly best, and then keeps a ratio of 1 to 3 between shared and activated routed experts.")
    losses = compared(lab, page, "deepseekmoe-ratio", ratio_models, [(deepseekmoe, two_shared), (four_shared, two_shared)], "")
    spread = [max(seed) - min(seed) for seed in zip(*losses.values())]
    page.sections.append(f"Between the best and the worst number, the loss differs by {Spread.of(spread)} nats (paper: 0.005).")
    page.results["range"] = spread
    return page


def redundancy(lab: Lab) -> Page:
    models = redundancy_models
    lab.train(models)
    page = Page("DeepSeekMoE (arXiv:2401.06066), section 4.5, Figures 4 to 6",
                "The paper disables the routed experts that each token ranks highest (Figure 4), activates fewer of them (Figure 5, and from "
                "scratch Figure 6), and replaces the shared expert by a routed one. The gates of all models are the router's probabilities (equations 3 "
                "to 5). gshard-x1.5-renormalized has gates that add up to 1: with its best experts disabled, it gives full weight to the two next "
                "ones, where the others keep the small gates that they have.")
    sixteenths = [0, 1, 2, 3, 4]
    of_16 = {n: (f"--skip-top={n}",) if n else () for n in sixteenths}
    skips = {gshard_wide.name: of_16, gshard_wide_renormalized.name: of_16,
             "deepseekmoe": {n: (f"--skip-top={round(n * 63 / 16)}",) if n else () for n in sixteenths}}
    ks = [1, 2, 3, 4, 5, 6, 7]
    active = {k: (f"--moe.top_k={k}",) if k != 7 else () for k in ks}
    no_shared, best_skipped = ("--moe.shared_experts=0", "--moe.top_k=8"), ("--skip-top=1",)
    wanted = [(model, seed, arguments) for seed in lab.seeds for model, changes in
              ((gshard, [()]), (fewer, [()]), (gshard_wide, of_16.values()), (gshard_wide_renormalized, of_16.values()),
               (deepseekmoe, [*skips["deepseekmoe"].values(), *active.values(), no_shared, best_skipped])) for arguments in changes]
    results = lab.evaluate(wanted)
    loss = lambda model, arguments: [results[model.name, seed, arguments]["loss"] for seed in lab.seeds]

    trained = {model.name: loss(model, ()) for model in models}
    rise = {model.name: minus(loss(model, skips[model.name][4]), trained[model.name]) for model in (gshard_wide, deepseekmoe)}
    shared_off = loss(deepseekmoe, no_shared)
    best_off = loss(deepseekmoe, best_skipped)
    page.claims += [
        Claim.above("with the top 4/16 disabled, the loss of deepseekmoe rises more than that of gshard-x1.5", "Figure 4", rise["deepseekmoe"],
                    rise["gshard-x1.5"]),
        Claim.above("gshard has a higher loss than a model trained with 1 + 3 of 63 (half activated)", "Figure 6", trained["gshard"], trained[fewer.name]),
        Claim.above("without its shared expert and with an eighth routed one, the loss of deepseekmoe rises", "+0.606", shared_off,
                    trained["deepseekmoe"]),
        Claim.above("the loss rises more without the shared expert than without each token's best routed expert, the next one in its place",
                    "not compared", shared_off, best_off),
    ]
    figure, (left, right) = subplots(2)
    disabled = (gshard_wide, gshard_wide_renormalized, deepseekmoe)
    for model in disabled:
        left.plot([n / 16 for n in sixteenths], [statistics.fmean(loss(model, skips[model.name][n])) for n in sixteenths], marker="o",
                  label=model.name)
    left.set_xlabel("ratio of disabled top routed experts")
    left.set_ylabel("held-out loss")
    left.legend(frameon=False)
    right.plot(ks, [statistics.fmean(loss(deepseekmoe, active[k])) for k in ks], marker="o", color="C2", label="deepseekmoe")
    right.axhline(statistics.fmean(trained["gshard"]), color="C3", linestyle="--", label="gshard")
    right.axhline(statistics.fmean(trained[fewer.name]), color="C4", linestyle=":", label="trained with 1 + 3 of 63")
    right.set_xlabel("routed experts per token, trained with 7")
    right.legend(frameon=False)
    page.section("Figures 4 and 5", page.figure("deepseekmoe-redundancy.png", "Loss with experts disabled, and with fewer", figure),
                 table(["disabled top experts", *[f"{n}/16" for n in sixteenths]],
                       [[model.name, *[Spread.of(loss(model, skips[model.name][n])) for n in sixteenths]] for model in disabled]),
                 table(["routed experts per token", *[str(k) for k in ks]],
                       [["deepseekmoe", *[Spread.of(loss(deepseekmoe, active[k])) for k in ks]]]),
                 "In the paper, DeepSeekMoE with 4 of its 7 routed experts is about as good as GShard; here its loss differs from GShard's by "
                 f"{Difference.of(loss(deepseekmoe, active[4]), trained['gshard'])} nats.")
    scores = lab.scores(models)
    page.section("Trained from scratch", loss_table(lab, models, trained, deepseekmoe, pile_loss, scores, hellaswag), about_items)
    page.section("Without the shared expert", table(["deepseekmoe", "paper: Pile loss", "here: loss"],
                 [["as trained", "1.808", Spread.of(trained["deepseekmoe"])], ["0 shared + 8 routed", "2.414", Spread.of(shared_off)],
                  ["1 shared + 7 routed, the best one skipped", "", Spread.of(best_off)]]))
    page.results |= {"loss": trained, "score": scores, "skip_top": {m.name: {f"{n}/16": loss(m, skips[m.name][n]) for n in sixteenths} for m in disabled},
                     "top_k": {k: loss(deepseekmoe, active[k]) for k in ks}, "no_shared": shared_off}
    page.models = models
    return page
