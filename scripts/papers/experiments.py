"""All experiments, and the small model that each of them varies."""
import heapq
from dataclasses import dataclass
from typing import Callable

import alignment
import balance
import deepseekmoe
import device_balance
import flow
import modse
import mohd
import mohd_more
import moduleformer
import moduleformer_more
import muon
import smoe_dropout
import smoe_modulize
import smoe_more
from lab import Keys, Lab, Model
from page import Page


@dataclass(frozen=True)
class Experiment:
    title: str
    run: Callable[[Lab], Page]
    models: list[Model]  # trained from scratch
    evaluations: int  # per seed, of all held-out text
    more: tuple[float, ...] = ()  # steps of each other run, above all of fine-tuning, as multiples of the pre-training of one model
    core_hours: float = 0  # of training per seed with full_steps on a CPU, estimated; for experiments whose page is missing, has fewer models or was made on a GPU
    seeds: int = 0  # that a claim needs; pages have at least three
    seeds_for: str = ""  # that claim
    timed: bool = False  # compares times of one core

    def evaluating(self) -> float:
        """Returns the estimated time of evaluations as a multiple of that of training."""
        return evaluation_steps / full_steps * self.evaluations / (len(self.models) + sum(self.more))


third = 1 / 3
full_steps = 2400
evaluation_steps = 120  # that take as long as an evaluation, which reads as many tokens as 360 steps, but without a backward pass


all_of_them = {
    "deepseekmoe-baselines": Experiment("DeepSeekMoE against its baselines", deepseekmoe.baselines, deepseekmoe.baseline_models, 12),
    "deepseekmoe-ablation": Experiment("A shared expert, finer experts", deepseekmoe.ablation, deepseekmoe.ablation_models, 10),
    "deepseekmoe-redundancy": Experiment("How redundant routed experts are", deepseekmoe.redundancy, deepseekmoe.redundancy_models,
                                         30),
    "deepseekmoe-larger": Experiment("DeepSeekMoE against larger models", deepseekmoe.larger, deepseekmoe.larger_models, 12, core_hours=1.1),
    "deepseekmoe-ratio": Experiment("How many experts are shared", deepseekmoe.ratio, deepseekmoe.ratio_models, 6),
    "balance": Experiment("Ways to balance experts", balance.run, balance.models, 3),
    "device-balance": Experiment("Balance of devices", device_balance.run, device_balance.models, 8),
    "alignment": Experiment("Fine-tuning on chats", alignment.run, alignment.models, 18, 2 * (third,)),
    "modse": Experiment("Experts of diverse sizes", modse.run, modse.models, 8, seeds=10,
                        seeds_for="the difficult tokens of Table 5", timed=True),
    "mohd": Experiment("Mixture of hidden dimensions", mohd.run, mohd.models, 18),
    "mohd-sizes": Experiment("MoHD of five sizes", mohd_more.sizes, mohd_more.size_models, 12, core_hours=0.85),
    "mohd-scaling": Experiment("Scaling and gates of sub-dimensions", mohd_more.scaling, mohd_more.scaling_models, 15),
    "mohd-updates": Experiment("Scaling of sub-dimensions with more updates", mohd_more.updates, mohd_more.update_models, 8, 2 * (mohd_more.longer,)),
    "mohd-decoupled": Experiment("Sub-dimensions of attention and of FFNs", mohd_more.decoupled, mohd_more.decoupled_models, 16, core_hours=1.2),
    "mohd-allocation": Experiment("How many sub-dimensions", mohd_more.allocation, mohd_more.allocation_models, 11, core_hours=4.3),
    "mohd-flow": Experiment("Activation flow", flow.run, flow.models, 2),
    "moduleformer": Experiment("ModuleFormer: modules that specialise", moduleformer.run, moduleformer.models, 46, 7 * (third,)),
    "moduleformer-continual": Experiment("ModuleFormer and dense models learn a new domain", moduleformer_more.continual, moduleformer_more.models, 66,
                                         14 * (third,), core_hours=1.9),
    "moduleformer-speed": Experiment("ModuleFormer against dense models of equal loss", moduleformer_more.speed, moduleformer_more.speed_models, 14,
                                     core_hours=1.2, timed=True),
    "muon": Experiment("AdamW and Muon", muon.run, muon.models, len(muon.models), timed=True),
    "smoe-dropout": Experiment("SMoE-Dropout: one model, any number of experts", smoe_dropout.run, smoe_dropout.models, smoe_dropout.evaluations),
    "smoe-dropout-modulize": Experiment("SMoE-Dropout from a dense model", smoe_modulize.run, smoe_modulize.models, 27,
                                        (1 + third, *3 * (third,))),
    "smoe-dropout-transfer": Experiment("SMoE-Dropout in fine-tuning", smoe_more.transfer, smoe_more.transfer_models, 29, 10 * (third,), core_hours=0.6),
    "smoe-dropout-capacity": Experiment("SMoE-Dropout in models of several depths", smoe_more.capacity, smoe_more.capacity_models, 16, core_hours=1.3),
    "smoe-dropout-design": Experiment("Routers and layers of SMoE-Dropout", smoe_more.design, smoe_more.design_models, 29),
}


def base(quick: bool, device: str = "cpu") -> Keys:
    """Returns the configuration that all models share. Proportions and schedule are those of DeepSeekMoE's 2B models; learning
    rate and initialisation are suitable for models of this size, and small batches give many updates. Nothing is tuned for a
    particular model. device: run.device."""
    keys = {
        "run.device": device, "run.precision": "f32", "run.threads": 1, "run.log_every": 100, "run.audit_every": 0, "run.replay_every": 0,
        "batch.global": 4, "batch.seq_len": 256,
        "model.vocab": 2048, "model.layers": 4, "model.hidden": 128, "model.heads": 4, "model.init_std": 0.02,
        "optim.lr": 2e-3, "optim.schedule": "step",
        "eval.batches": 4,  # per domain
    }
    if quick:
        keys |= {"batch.seq_len": 64, "model.vocab": 512, "model.layers": 2, "model.hidden": 64, "model.heads": 2}
    return keys


def makespan(jobs: list[float], cores: int) -> float:
    """Returns the time until all jobs are done, if each free core takes the next job."""
    free_at = [0.0] * cores
    for job in jobs:
        heapq.heapreplace(free_at, free_at[0] + job)
    return max(free_at)


def steps(lab: Lab, experiment: Experiment, quick: bool, minutes: float | None) -> int:
    """Returns the number of steps that fit into the minutes, not counting the time to prepare the text."""
    if quick:
        return 20
    if minutes is None:
        return full_steps
    seconds = [lab.seconds_a_step(model) for model in experiment.models]
    mean = sum(seconds) / len(seconds)
    each_seed = lambda jobs: makespan([job for job in jobs for _ in lab.seeds], lab.cores)
    evaluating = each_seed([evaluation_steps * mean] * experiment.evaluations)
    training = each_seed(seconds) + each_seed([mean * share for share in experiment.more])
    fitting = int((0.95 * 60 * minutes - evaluating) / training)
    return max(20, fitting // 10 * 10)
