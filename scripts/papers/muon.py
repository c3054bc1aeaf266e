"""Compares AdamW with Muon (Jordan 2024; Liu et al. 2025, arXiv:2502.16982) after equal steps and after equal time, each with its
best learning rate of several."""
import statistics

from compare import Claim, Spread
from deepseekmoe import deepseekmoe
from lab import Lab, Model
from losses import plot_losses
from page import Page, subplots, table

rates = {"AdamW": ["5e-4", "1e-3", "2e-3", "4e-3"], "Muon": ["2e-3", "4e-3", "8e-3"]}
by_rule = {name: [Model(f"{name.lower()}-{rate}", deepseekmoe.keys | {"optim.rule": name.lower(), "optim.lr": rate}) for rate in of_rule]
           for name, of_rule in rates.items()}
models = [model for group in by_rule.values() for model in group]


def loss_at(lab: Lab, model: Model, seed: int, seconds: float) -> float:
    """Returns the last validation loss within the first `seconds` of training, or the first one if it is later."""
    steps, loss = round(seconds / lab.step_seconds(model)), None
    for line in lab.metrics(model, seed):
        if line["step"] > steps and loss is not None:
            break
        loss = line["valid_loss"] if line.get("valid_loss") is not None else loss
    return loss


def run(lab: Lab) -> Page:
    lab.train(models)
    losses = lab.losses(models)
    mean = lambda model: statistics.fmean(losses[model.name])
    best = {name: min(group, key=mean) for name, group in by_rule.items()}
    adamw, muon = best["AdamW"], best["Muon"]
    seconds = {model.name: lab.seconds([model]) / len(lab.seeds) for model in models}
    in_time = {model.name: [loss_at(lab, model, seed, seconds[adamw.name]) for seed in lab.seeds] for model in (adamw, muon)}
    page = Page("Muon is Scalable for LLM Training (arXiv:2502.16982), sections 2.2 and 3.2",
                "Muon orthogonalises the momentum of every matrix of the blocks; the paper reports that it needs about half of AdamW's FLOPs for "
                "the same loss, at a batch of millions of tokens. The model is the DeepSeekMoE of the other pages. Both rules have the weight decay of AdamW, and "
                "Muon's updates are scaled to the size of AdamW's. Its products with matrices do not depend on the batch, which "
                f"here has {int(lab.base['batch.global']) * int(lab.base['batch.seq_len']):,} tokens: the smaller the batch, the larger their share of the time.")
    page.claims += [
        Claim.above("after equal steps, AdamW with its best rate has a higher loss than Muon with its best rate", "Figure 3", losses[adamw.name],
                    losses[muon.name]),
        Claim.above("after equal time on one core, AdamW with its best rate has a higher validation loss than Muon", "not compared", in_time[adamw.name],
                    in_time[muon.name]),
    ]
    figure, (left, right) = subplots(2)
    for name, group in by_rule.items():
        left.plot([float(rate) for rate in rates[name]], [mean(model) for model in group], marker="o", label=name)
    left.set_xscale("log")
    left.set_xlabel("learning rate")
    left.set_ylabel("held-out loss, nats per token")
    left.legend(frameon=False)
    plot_losses(lab, right, [adamw, muon])
    right.legend(frameon=False)
    edges = [name for name, model in best.items() if model in (by_rule[name][0], by_rule[name][-1])]
    page.section("Losses", page.figure("muon.png", "Loss by learning rate, and over training with the best rates", figure),
                 table(["model", "loss, mean ± sd", "seconds per step"],
                       [[model.name + (" (best)" if model in best.values() else ""), Spread.of(losses[model.name]),
                         f"{seconds[model.name] / lab.steps:.3f}"] for model in models]),
                 f"In the time of AdamW's {lab.steps:,} steps, Muon makes {lab.steps * seconds[adamw.name] / seconds[muon.name]:,.0f}."
                 + ("".join(f" The best rate of {name} is at the edge of those tried." for name in edges)))
    page.results |= {"loss": losses, "seconds": seconds, "validation_loss_in_equal_time": in_time}
    page.models = models
    return page
