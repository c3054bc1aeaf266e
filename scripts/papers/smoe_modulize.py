"""SMoE-Dropout (Chen et al. 2023, arXiv:2303.01610) from a trained dense model: `lyceum convert modulize` groups the units of
each FFN into experts, as MoEfication does, and training with a growing number of experts continues from there."""
import statistics

from compare import Claim, Spread
from lab import Lab, Model
from page import Page, subplots, table
from smoe_dropout import dense, experts, no_dropout

models = [dense]
ks = [2, 4, 8, 12, 16]
counted_on = "documentation"  # whose text for training shows which units are active for the same tokens: `convert` reads one data set


def run(lab: Lab) -> Page:
    split = ("modulize", "--experts", str(experts))
    by = {"weights": split, "coactivation": (*split, "--by", "coactivation", "--data", str(lab.corpus.folder / f"{counted_on}-train"), "--batches", "32")}
    # Gates of 1, the default of modulize, keep the function of the dense model with all experts.
    modulized = {name: Model(f"modulized-{name}", {"run.steps": 0}, dense, words) for name, words in by.items()}
    tuning = max(10, lab.steps // 3)
    steps = {"run.steps": tuning}
    from_scratch = Model("smoe-dropout-longer", no_dropout.keys | {"run.steps": lab.steps + tuning})
    tuned = {name: Model(f"modulized-{name}-dropout", steps, dense, (*words, "--moe.top_k_start=2")) for name, words in by.items()}
    longer = Model("dense-704-longer", steps, dense, ("reset",))
    of_experts = [*modulized.values(), *tuned.values(), from_scratch]
    everything = [dense, from_scratch, longer, *modulized.values(), *tuned.values()]
    lab.train(everything)
    arguments = lambda k: () if k == experts else (f"--moe.top_k={k}",)
    results = lab.evaluate([(model, seed, arguments(k)) for model in of_experts for k in ks for seed in lab.seeds] +
                           [(model, seed, ()) for model in (dense, longer) for seed in lab.seeds])
    loss = lambda model, k=experts: [results[model.name, seed, arguments(k)]["loss"] for seed in lab.seeds]
    page = Page("SMoE-Dropout (arXiv:2303.01610), modulization; MoEfication (arXiv:2110.01786)",
                f"A trained dense FFN, {dense.keys['model.ffn_hidden']} wide, is divided into {experts} experts, by similar weights or by units that are active for the same tokens "
                f"of {counted_on}, and trained for a third of the steps more, while a random router chooses 2 to all experts. The gates are 1, so that the divided model with "
                "all experts is the dense one. The paper divides dense models before training; this page compares it with a start from scratch "
                f"({from_scratch.name}, with as many updates in all, whose gates add up to 1), and with as many more steps of the dense model. Steps after "
                "dense training begin again at the highest rate and read the first text again, whereas a start from scratch only reads new text. No model has "
                "dropout. MoEfication selects experts by their inputs; here a fixed random router draws them.")
    half = experts // 2
    page.claims += [
        Claim.above("without training, half of the experts have a higher loss if they are divided by weights than by coactivation", "not compared",
                    loss(modulized["weights"], half), loss(modulized["coactivation"], half)),
        Claim.above("training with a growing number of experts lowers the loss with half of them", "not compared", loss(modulized["weights"], half),
                    loss(tuned["weights"], half)),
        Claim.above("SMoE-Dropout from scratch, whose gates add up to 1, has a higher loss with half of the experts than from the dense model, with gates of 1 "
                    "and as many updates in all", "not compared", loss(from_scratch, half), loss(tuned["weights"], half)),
        Claim.above("the dense model, trained longer, has a higher loss than SMoE-Dropout from it with all experts", "not compared", loss(longer),
                    loss(tuned["weights"])),
    ]
    figure, (axis,) = subplots()
    for model in of_experts:
        axis.plot(ks, [statistics.fmean(loss(model, k)) for k in ks], marker="o", linestyle="--" if "coactivation" in model.name else "-", label=model.name)
    axis.axhline(statistics.fmean(loss(longer)), color="C7", linestyle="--", label=longer.name)
    axis.set_xlabel(f"experts per token, of {experts}")
    axis.set_ylabel("held-out loss, nats per token")
    axis.legend(frameon=False, fontsize=8)
    page.section("Loss against the number of experts", page.figure("smoe-dropout-modulize.png", "Loss against the number of experts", figure),
                 table(["experts per token", *map(str, ks)], [[model.name, *[Spread.of(loss(model, k)) for k in ks]] for model in of_experts]),
                 f"The dense model: {Spread.of(loss(dense))}, trained longer: {Spread.of(loss(longer))}.")
    page.results |= {"dense": loss(dense), "dense_longer": loss(longer), "top_k": {model.name: {k: loss(model, k) for k in ks} for model in of_experts}}
    page.models = [dense, from_scratch, longer, *tuned.values()]
    return page
