"""All experiments, and the small model that each of them varies."""
from dataclasses import dataclass
from typing import Callable

import balance
import deepseekmoe
import modse
import mohd
import moduleformer
import smoe_dropout
from lab import Keys, Lab, Model
from page import Page


@dataclass(frozen=True)
class Experiment:
    title: str
    run: Callable[[Lab], Page]
    models: list[Model]  # that it trains from scratch, to foresee how long it takes


all_of_them = {
    "deepseekmoe-baselines": Experiment("DeepSeekMoE against its baselines", deepseekmoe.baselines,
                                        [deepseekmoe.dense, deepseekmoe.hashed, deepseekmoe.switch, deepseekmoe.gshard, deepseekmoe.deepseekmoe]),
    "deepseekmoe-ablation": Experiment("A shared expert, finer experts", deepseekmoe.ablation,
                                       [deepseekmoe.gshard, deepseekmoe.shared_expert, deepseekmoe.halves, deepseekmoe.deepseekmoe]),
    "deepseekmoe-redundancy": Experiment("How redundant routed experts are", deepseekmoe.redundancy,
                                         [deepseekmoe.gshard, deepseekmoe.gshard_wide, deepseekmoe.deepseekmoe, deepseekmoe.fewer]),
    "balance": Experiment("Ways to balance experts", balance.run, balance.models),
    "modse": Experiment("Experts of diverse sizes", modse.run, modse.models),
    "mohd": Experiment("Mixture of hidden dimensions", mohd.run, mohd.models),
    "moduleformer": Experiment("ModuleFormer: modules that specialise", moduleformer.run, moduleformer.models),
    "smoe-dropout": Experiment("SMoE-Dropout: one model, any number of experts", smoe_dropout.run, smoe_dropout.models),
}

full_steps = 600


def base(quick: bool) -> Keys:
    """What all models share: of DeepSeekMoE's 2B models the proportions and the schedule, with the learning rate and the
    initialisation of models this small. Nothing of it is tuned for one of the models."""
    keys = {
        "run.device": "cpu", "run.precision": "f32", "run.threads": 1, "run.log_every": 100, "run.audit_every": 0, "run.replay_every": 0,
        "batch.global": 16, "batch.seq_len": 256,
        "model.vocab": 2048, "model.layers": 4, "model.hidden": 128, "model.heads": 4, "model.init_std": 0.02,
        "optim.lr": 2e-3, "optim.schedule": "step",
        "eval.batches": 1,  # of each domain
    }
    if quick:
        keys |= {"batch.global": 4, "batch.seq_len": 64, "model.vocab": 512, "model.layers": 2, "model.hidden": 64, "model.heads": 2}
    return keys


def steps(lab: Lab, experiment: Experiment, quick: bool, minutes: float | None) -> int:
    """As many as fit into the minutes; a tenth of the time is left for evaluations."""
    if quick:
        return 20
    if minutes is None:
        return full_steps
    seconds = sum(lab.seconds_a_step(model) for model in experiment.models) * len(lab.seeds) / lab.cores
    fitting = int(0.9 * 60 * minutes / seconds)
    return max(20, fitting // 10 * 10 if fitting < 200 else fitting // 50 * 50)
