"""Compares three ways to balance experts: a balance loss (DeepSeekMoE, Switch), a bias of the router that moves against the
load (loss-free balancing, Wang et al. 2024, arXiv:2408.15664; DeepSeek-V3), and no balancing."""
import numpy as np
from matplotlib.ticker import LogLocator

from compare import Claim, Spread
from deepseekmoe import deepseekmoe
from lab import Lab, Model
from losses import plot_losses
from page import Page, counted, subplots, table

# All models have sigmoid scores that are normalised over the chosen experts, as in DeepSeek-V3.
_common = {key: value for key, value in deepseekmoe.keys.items() if not key.startswith("balance.")}
_common |= {"moe.router": "sigmoid", "moe.gates": "renormalized"}
none = Model("balance-none", _common)
by_loss = Model("balance-loss", _common | {"balance.expert": 0.01})
by_bias = Model("balance-bias", _common | {"balance.bias_rate": 0.001})
models = [none, by_loss, by_bias]


def max_violation(lab: Lab, model: Model, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the steps of the routing records, and at each MaxVio: the load of the busiest expert over the mean, minus 1,
    averaged over the layers."""
    steps, counts = lab.routing(model, seed, "counts")
    loads = [layer.sum(axis=1).astype(float) for layer in counts]  # [records, experts]
    return steps, np.mean([load.max(axis=1) / load.mean(axis=1) - 1 for load in loads], axis=0)


def run(lab: Lab) -> Page:
    lab.train(models)
    losses = lab.losses(models)
    violation = {model.name: [max_violation(lab, model, seed) for seed in lab.seeds] for model in models}
    quarter = lambda model: [float(values[-max(1, len(values) // 4):].mean()) for _, values in violation[model.name]]
    page = Page("Auxiliary-loss-free load balancing (arXiv:2408.15664), Table 2 and Figure 3; DeepSeekMoE (arXiv:2401.06066), section 3.3",
                "DeepSeekMoE's balance loss pulls the router away from the optimum of the language loss. A bias that affects only the choice of "
                "experts, and is adjusted against their load after each step, balances without a gradient (scores as in DeepSeek-V3: sigmoid, "
                "normalised over the chosen experts). The paper reports a lower loss and a more "
                "even load than with the balance loss. MaxVio is the load of the busiest expert over the mean, minus 1; here it is computed over "
                f"{counted(lab.routing_every, 'step')} and averaged over the layers and the last quarter of training.")
    page.claims += [
        Claim.above("balance loss: a higher loss than balancing by bias", "perplexity 9.56 against 9.50 (1B model)", losses[by_loss.name],
                    losses[by_bias.name]),
        Claim.above("balance loss: a higher MaxVio than balancing by bias", "0.72 against 0.04", quarter(by_loss), quarter(by_bias), unit=""),
        Claim.above("no balancing: a higher MaxVio than with the balance loss", "Figure 3", quarter(none), quarter(by_loss), unit=""),
        Claim.above("no balancing: a higher MaxVio than by bias", "Figure 3", quarter(none), quarter(by_bias), unit=""),
    ]
    figure, (left, right) = subplots(2)
    for model in models:
        steps = violation[model.name][0][0]
        left.plot(steps, np.mean([values for _, values in violation[model.name]], axis=0), label=model.name, linewidth=1.4)
    left.set_yscale("log")
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("")
    left.set_ylabel("MaxVio, mean of layers")
    left.set_xlabel("step")
    plot_losses(lab, right, models)
    left.legend(frameon=False)
    page.section("Loss and load", page.figure("balance.png", "MaxVio and held-out loss over training", figure),
                 table(["model", "loss, mean ± sd", "MaxVio, mean ± sd"],
                       [[model.name, Spread.of(losses[model.name]), Spread.of(quarter(model))] for model in models]),
                 "The bias changes by 0.001 per step, as published for runs of many thousand steps; in these runs it has changed by at most "
                 f"{0.001 * lab.steps:g}.")
    page.results |= {"loss": losses, "max_violation": {model.name: quarter(model) for model in models}}
    page.models = models
    return page
