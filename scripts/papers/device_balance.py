"""DeepSeekMoE's device-level balance loss (arXiv:2401.06066, section 3.3): evens the load of groups of experts, as they would be
on devices, and leaves the experts of a group free."""
import numpy as np

from balance import max_violation
from compare import Claim, Spread
from deepseekmoe import deepseekmoe
from lab import Lab, Model
from losses import about_items, curves, percent
from page import Page, counted, table

devices = 9  # 7 of the 63 routed experts each
_common = {**deepseekmoe.keys, "balance.device_groups": devices}
# The factors of the paper's 145B model, 0.003 and 0.05, beside those of a strict and of no expert-level loss.
weak = Model("expert-0.003", _common | {"balance.expert": 0.003})
both = Model("expert-0.003-device-0.05", _common | {"balance.expert": 0.003, "balance.device": 0.05})
strict = Model("expert-0.05", _common | {"balance.expert": 0.05})
device_only = Model("device-0.05", _common | {"balance.expert": 0, "balance.device": 0.05})
models = [weak, both, strict, device_only]


def device_violation(lab: Lab, model: Model, seed: int) -> float:
    """Returns the load of the busiest group over the mean, minus 1, averaged over the layers and the last quarter of training.
    Groups are consecutive experts, as with parallel.placement = contiguous."""
    _, counts = lab.routing(model, seed, "counts")
    last = max(1, len(counts[0]) // 4)
    loads = [layer[-last:].sum(axis=1).reshape(last, devices, -1).sum(axis=2).astype(float) for layer in counts]  # [records, groups]
    return float(np.mean([load.max(axis=1) / load.mean(axis=1) - 1 for load in loads]))


def run(lab: Lab) -> Page:
    lab.train(models)
    losses, scores = lab.losses(models), lab.scores(models)
    of_devices = {model.name: [device_violation(lab, model, seed) for seed in lab.seeds] for model in models}

    def expert_violation(model: Model, seed: int) -> float:
        values = max_violation(lab, model, seed)[1]
        return float(values[-max(1, len(values) // 4):].mean())

    of_experts = {model.name: [expert_violation(model, seed) for seed in lab.seeds] for model in models}
    page = Page("DeepSeekMoE (arXiv:2401.06066), section 3.3; factors of section 7.1",
                f"The routed experts of DeepSeekMoE are divided into {devices} groups of {63 // devices}. A small expert-level factor prevents that few "
                "experts get all tokens, and a larger device-level one evens the load of the groups. The paper says that strict balance of experts "
                "compromises the model, and that only the load of devices must be even; it prints no figures for this. (Its 145B model has "
                "4 groups.) MaxVio is the load of the "
                f"busiest expert or group over the mean, minus 1, over {counted(lab.routing_every, 'step')}, averaged over layers and the last quarter "
                "of training.")
    page.claims += [
        Claim.above("without the device-level loss, groups have a higher MaxVio", "section 3.3", of_devices[weak.name], of_devices[both.name], unit=""),
        Claim.above("the strict expert-level loss has a higher loss than both losses with the factors of the 145B model", "section 3.3",
                    losses[strict.name], losses[both.name]),
        Claim.above("with the device-level loss, experts have a higher MaxVio than with the strict expert-level loss", "section 3.3",
                    of_experts[both.name], of_experts[strict.name], unit=""),
        Claim.above("the device-level loss alone leaves experts with a higher MaxVio than both losses", "not compared", of_experts[device_only.name],
                    of_experts[both.name], unit=""),
    ]
    page.section("Balance and its cost",
                 table(["model", "MaxVio of groups", "MaxVio of experts", "loss, mean ± sd", "cloze items"],
                       [[model.name, Spread.of(of_devices[model.name]), Spread.of(of_experts[model.name]), Spread.of(losses[model.name]),
                         percent(scores[model.name])] for model in models]), about_items, curves(lab, page, models, "device-balance.png"))
    page.results |= {"loss": losses, "score": scores, "max_violation_of_groups": of_devices, "max_violation_of_experts": of_experts}
    page.models = models
    return page
