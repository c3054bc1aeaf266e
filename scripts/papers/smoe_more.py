"""SMoE-Dropout (Chen et al. 2023, arXiv:2303.01610) in fine-tuning (Table 2), in models of several depths (Q1), and with other
routers and in later layers only (Q2)."""
import statistics
from dataclasses import dataclass

import chats
import excerpts
from compare import Claim, Difference, Spread, minus
from lab import Keys, Lab, Model
from losses import parameters, percent
from page import Page, subplots, table
from smoe_dropout import dense, dropout, experts, half, learned, plain, rate, thor


def using(model: Model, k: int) -> tuple[str, ...]:
    """Returns the arguments of an evaluation with k experts; the model may be dense."""
    return () if model.keys.get("moe.top_k", k) == k else (f"--moe.top_k={k}",)


# --- fine-tuning on downstream tasks: Table 2


@dataclass(frozen=True)
class Tuning:
    """A row of the table. experts: how many are used; 0 if the model is dense. paper: accuracies on SST-2 and CSQA."""

    name: str
    source: Model
    experts: int
    paper: tuple[float, float]


rows_of_table_2 = [Tuning("dense", plain, 0, (81.94, 30.44)), Tuning("THOR with all experts", thor, experts, (81.13, 20.79)),
                   Tuning("a learned router with all experts", learned, experts, (79.98, 29.27)),
                   Tuning("SMoE-Dropout with half of the experts", dropout, half, (81.60, 30.32)),
                   Tuning("SMoE-Dropout with all experts", dropout, experts, (82.41, 30.51))]
transfer_models = [plain, thor, learned, dropout]
benchmarks = ("SST-2", "CSQA")
growing = f"In the pre-training of SMoE-Dropout, the number of experts grows from 2 to {experts}; in the authors' scripts, from {half} to {experts}."
# In the authors' scripts, the rate of fine-tuning is 0.4 times that of pre-training, without warm-up.
_tuning: Keys = {"data.samples": "packed", "data.document_mask": "true", "optim.lr": 8e-4, "optim.schedule": "cosine", "optim.min_lr": 0,
                 "optim.warmup_steps": 0}


def tuned(lab: Lab, row: Tuning, task: str, made: chats.Chats) -> Model:
    """Returns the model of a row, fine-tuned on a task: without copies of samples or a balance loss, and with a constant number of experts."""
    used = (f"--moe.top_k={row.experts}", "--moe.top_k_start=0", "--balance.expert=0", "--model.consistency=0") if row.experts else ()
    name = f"{row.source.name}-{row.experts}" if row.experts else row.source.name
    keys = {"run.steps": max(10, lab.steps // 3), "data.train": f"1 {made.train}", "data.valid": made.valid} | {
        key: lab.base[key] for key in ("batch.global", "eval.batches")}
    return Model(f"{name}-{task}", _tuning | keys, row.source, ("reset", *used))


def transfer(lab: Lab) -> Page:
    tasks = {"excerpts": excerpts.prepare(lab), "chats": chats.prepare(lab)}  # first: a machine may have too little text for them
    lab.train(transfer_models)
    scored = {"excerpts": "acc", "chats": "acc_norm"}  # descriptions differ in length
    models = {task: [tuned(lab, row, task, made) for row in rows_of_table_2] for task, made in tasks.items()}
    lab.train([model for of_task in models.values() for model in of_task])
    before_loss = lab.losses(transfer_models)
    files = ("--tasks", *[str(made.questions) for made in tasks.values()])
    # With as many experts as after fine-tuning.
    before = {row.name: lab.tasks([row.source], (*files, *using(row.source, row.experts)))[row.source.name] for row in rows_of_table_2}
    answer_loss, accuracy, accuracy_before = {}, {}, {}
    for i, (task, made) in enumerate(tasks.items()):
        answer_loss[task] = lab.losses(models[task], f"--data.valid={made.valid}", "--data.samples=packed", "--data.document_mask=true")
        results = lab.tasks(models[task], ("--tasks", str(made.questions)))
        accuracy[task] = {name: [100 * run[0][scored[task]] for run in of] for name, of in results.items()}
        accuracy_before[task] = {name: [100 * run[i][scored[task]] for run in of] for name, of in before.items()}
    steps = max(10, lab.steps // 3)
    passes = {task: made.passes(lab, steps) for task, made in tasks.items()}
    page = Page("SMoE-Dropout (arXiv:2303.01610), Table 2",
                "Pre-trained models are fine-tuned on a downstream task: SMoE-Dropout with half and with all of its experts, the others with all. The paper's "
                f"tasks need models of another size. Instead, models name the domain of {excerpts.words} words from held-out files, one of five, in place of "
                "sentiment (SST-2), and choose the description of a command from four, in place of common sense (CSQA): "
                f"{tasks['excerpts'].count:,} excerpts (equally many of each domain) and {tasks['chats'].count:,} names for training, {steps} steps, which read the "
                f"excerpts {passes['excerpts']:.1f} and the names {passes['chats']:.1f} times; only answers are trained. Questions are about "
                f"{tasks['excerpts'].asked} and {tasks['chats'].asked} held-out ones. The rate is 0.4 times that of "
                f"pre-training, as in the authors' scripts, and the dropout is kept. {growing} The paper claims that SMoE-Dropout with all experts is best, and "
                "that with half of them it is close to the dense model.")
    of = lambda task, row: accuracy[task][models[task][row].name]
    *others, with_half, best = range(len(rows_of_table_2))
    for i, (task, described) in enumerate((("excerpts", "domains of excerpts"), ("chats", "descriptions of commands"))):
        for above, below in [(best, other) for other in (*others, with_half)] + [(with_half, others[-1]), (others[0], with_half)]:
            first, second = rows_of_table_2[above], rows_of_table_2[below]
            page.claims.append(Claim.above(f"{described}: {first.name} has a higher accuracy than {second.name}",
                                           f"{benchmarks[i]}: {first.paper[i]:.2f} against {second.paper[i]:.2f} %", of(task, above), of(task, below),
                                           unit="points"))
    none = [0.0] * len(lab.seeds)
    for i, (task, heading) in enumerate((("excerpts", "Domains of excerpts (SST-2)"), ("chats", "Descriptions of commands (CSQA)"))):
        page.section(heading, table(["model", f"paper: {benchmarks[i]}", "before fine-tuning", "accuracy", "gain, points", "loss of answers"],
                                    [[row.name, f"{row.paper[i]:.2f} %", percent(accuracy_before[task][row.name]), percent(of(task, number)),
                                      Difference.of(minus(of(task, number), accuracy_before[task][row.name]), none),
                                      Spread.of(answer_loss[task][models[task][number].name])] for number, row in enumerate(rows_of_table_2)]))
    page.section("Before fine-tuning", "*Before fine-tuning*, pre-trained models are used with the number of experts of their row. A random choice is right in "
                 "20 % of the excerpts and 25 % of the descriptions; accuracies of descriptions are per byte. Losses are those of pre-trained models: THOR "
                 f"and the learned router with {half} experts, SMoE-Dropout with all.",
                 table(["model", "held-out loss, mean ± sd"], [[name, Spread.of(values)] for name, values in before_loss.items()]))
    page.results |= {"loss_before": before_loss, "loss_of_answers": answer_loss, "accuracy": accuracy, "accuracy_before": accuracy_before}
    page.models = [*transfer_models, *[model for of_task in models.values() for model in of_task]]
    return page


# --- depth of the model: Q1, Figure 5

depths = (2, 4, 8, 12)


def of_depth(model: Model, layers: int) -> Model:
    # 4 layers: the lab's own model, which has 2 with --quick.
    return model if layers == 4 else Model(f"{model.name}-{layers}-layers", model.keys | {"model.layers": layers})


by_depth = {layers: {"dense": of_depth(plain, layers), "learned": of_depth(learned, layers), "dropout": of_depth(dropout, layers)} for layers in depths}
capacity_models = [model for of_layers in by_depth.values() for model in of_layers.values()]


def capacity(lab: Lab) -> Page:
    lab.train(capacity_models[::-1])  # deep ones first
    wanted = [(model, k) for of_layers in by_depth.values() for model, k in
              ((of_layers["dense"], experts), (of_layers["learned"], experts), (of_layers["dropout"], experts), (of_layers["dropout"], half))]
    results = lab.evaluate([(model, seed, using(model, k)) for model, k in wanted for seed in lab.seeds])
    loss = lambda layers, kind, k=experts: [results[by_depth[layers][kind].name, seed, using(by_depth[layers][kind], k)]["loss"] for seed in lab.seeds]
    page = Page("SMoE-Dropout (arXiv:2303.01610), section 4, Q1, Figure 5",
                "When is SMoE-Dropout better than the baselines? The paper's answer is: with a sufficient capacity of the model. The authors' scripts of Figure 5 "
                "train models of 8 and 12 layers beside the 4 of Table 1, but only the first four layers have experts; those above have small dense FFNs. Here, "
                f"the dense model, the learned router and SMoE-Dropout have {depths[0]} to {depths[-1]} equal layers, with the same width and the same updates, "
                f"and a dropout of {rate}. {growing} No text is read twice, so a larger model does not overfit as in the paper, where this is a reason for "
                "SMoE-Dropout. Claims have the direction of the paper's answer; points of its plots are not compared. Those about 4 layers are on the page of "
                "Table 1.")
    shown = {"dense": "dense with dropout", "learned": "a learned router, used with all experts,"}
    for layers in depths[2:]:
        for kind in shown:
            page.claims.append(Claim.above(f"{layers} layers: {shown[kind]} has a higher loss than SMoE-Dropout with all", "Figure 5", loss(layers, kind),
                                           loss(layers, "dropout")))
    advantage = lambda layers, kind: minus(loss(layers, kind), loss(layers, "dropout"))
    for kind, text in (("dense", "the dense model"), ("learned", "a learned router")):
        page.claims.append(Claim.above(f"against {text}, SMoE-Dropout gains more with {depths[-1]} layers than with {depths[0]}", "Q1",
                                       advantage(depths[-1], kind), advantage(depths[0], kind)))
    figure, (left, right) = subplots(2)
    for kind, text in (("dense", "dense"), ("learned", "learned router"), ("dropout", "SMoE-Dropout")):
        left.plot(depths, [statistics.fmean(loss(layers, kind)) for layers in depths], marker="o", label=text)
    left.plot(depths, [statistics.fmean(loss(layers, "dropout", half)) for layers in depths], marker="o", linestyle="--", color="C2",
              label="SMoE-Dropout, half of the experts")
    left.set_ylabel("held-out loss, nats per token")
    for kind, text in (("dense", "dense"), ("learned", "learned router")):
        right.plot(depths, [statistics.fmean(advantage(layers, kind)) for layers in depths], marker="o", label=f"{text}, above SMoE-Dropout")
    right.axhline(0, color="C7", linewidth=0.8)
    for axis in (left, right):
        axis.set_xlabel("layers")
        axis.legend(frameon=False, fontsize=8)
    page.section("Loss against depth (Q1)", page.figure("smoe-dropout-capacity.png", "Loss against the number of layers", figure),
                 table(["layers", "parameters", "dense", "learned router", "SMoE-Dropout", "with half of the experts", "dense above it", "learned router above it"],
                       [[layers, parameters(lab, by_depth[layers]["dense"])[0], Spread.of(loss(layers, "dense")), Spread.of(loss(layers, "learned")),
                         Spread.of(loss(layers, "dropout")), Spread.of(loss(layers, "dropout", half)), Difference.of(loss(layers, "dense"), loss(layers, "dropout")),
                         Difference.of(loss(layers, "learned"), loss(layers, "dropout"))] for layers in depths]),
                 "All experts are used, except in one column. *Above it*: above SMoE-Dropout with all experts.")
    page.results |= {"loss": {kind: {layers: loss(layers, kind) for layers in depths} for kind in ("dense", "learned", "dropout")},
                     "loss_with_half": {layers: loss(layers, "dropout", half) for layers in depths}}
    page.models = capacity_models
    return page


# --- routers, and layers that are mixtures: Q2

_without = lambda keys, *names: {key: value for key, value in keys.items() if key not in names}
constant = Model("smoe-random-8", _without(dropout.keys, "moe.top_k_start") | {"moe.top_k": half})
uniform = Model("smoe-uniform-8", _without(constant.keys, "moe.router") | {"moe.router": "uniform"})
learned_growing = Model("smoe-learned-growing", learned.keys | {"moe.top_k": experts, "moe.top_k_start": 2})


def in_last(layers: int) -> Model:
    """Returns SMoE-Dropout in the last of 4 layers; the FFNs of the others are dense."""
    return Model(f"smoe-dropout-last-{layers}", dropout.keys | dense.keys | {"model.layers": 4, "model.first_dense_layers": 4 - layers})


last_two, last_one = in_last(2), in_last(1)
design_models = [plain, dropout, last_two, last_one, learned_growing, constant, learned, uniform]
design_ks = (2, 4, 8, 16)
with_experts = design_models[1:]


def design(lab: Lab) -> Page:
    lab.train(design_models)
    results = lab.evaluate([(model, seed, using(model, k)) for model in with_experts for k in design_ks for seed in lab.seeds] +
                           [(plain, seed, ()) for seed in lab.seeds])
    loss = lambda model, k=experts: [results[model.name, seed, using(model, k)]["loss"] for seed in lab.seeds]
    page = Page("SMoE-Dropout (arXiv:2303.01610), section 4, Q2",
                "What is a better design? The paper's answer is \"Random Weight Router; Later-layer SMoE\", beside plots whose points are not compared here. It does "
                "not say against which other routers. Here a router is random, is learned with a balance loss of "
                f"{learned.keys['balance.expert']}, or draws experts anew for each token (uniform, as THOR does, without its consistency loss), with the same number "
                f"of experts in training: {half}, or growing from 2 to all, which a uniform router cannot do. The comparison with a uniform router is not "
                f"the paper's. {growing} SMoE-Dropout is in all of 4 layers, in the last two or in the last one, with dense FFNs in the others. The paper's "
                "comparison, of mixtures in later with those in earlier layers, is not made: layers without experts must be the first ones "
                "(`model.first_dense_layers`). Later layers are compared with all layers instead, and the fewer layers have experts, the more the model is the "
                f"dense one. All models have a dropout of {rate}.")
    page.claims += [
        Claim.above("growing k: a learned router with a balance loss has a higher loss with all experts than a random one", "\"Random Weight Router\"",
                    loss(learned_growing), loss(dropout)),
        Claim.above(f"k = {half}: a uniform router has a higher loss than a random one", "not compared", loss(uniform, half), loss(constant, half)),
        Claim.above("a random router with a constant k has a higher loss with all experts than with a growing k", "section 3", loss(constant), loss(dropout)),
        Claim.above("with all experts, SMoE-Dropout in all layers has a higher loss than in the last two", "not compared", loss(dropout), loss(last_two)),
        Claim.above("with half of the experts, SMoE-Dropout in all layers has a higher loss than in the last two", "not compared", loss(dropout, half),
                    loss(last_two, half)),
        Claim.above("dense with dropout has a higher loss than SMoE-Dropout in the last two layers with all experts", "not compared", loss(plain), loss(last_two)),
    ]
    shown = {dropout.name: "random, k grows", learned_growing.name: "learned, k grows", constant.name: f"random, k = {half}",
             learned.name: f"learned, k = {half}", uniform.name: f"uniform, k = {half}", last_two.name: "random, k grows, last two layers",
             last_one.name: "random, k grows, last layer"}
    figure, axes = subplots(2)
    for axis, compared in zip(axes, ((dropout, learned_growing, constant, learned, uniform), (dropout, last_two, last_one))):
        for model in compared:
            axis.plot(design_ks, [statistics.fmean(loss(model, k)) for k in design_ks], marker="o", label=shown[model.name])
        axis.axhline(statistics.fmean(loss(plain)), color="C7", linestyle="--", label="dense")
        axis.set_xlabel(f"experts per token, of {experts}")
        axis.legend(frameon=False, fontsize=8)
    axes[0].set_ylabel("held-out loss, nats per token")
    page.section("Routers and layers (Q2)", page.figure("smoe-dropout-design.png", "Loss against the number of experts", figure),
                 table(["router in training", *[f"{k} experts" for k in design_ks], "all experts, above SMoE-Dropout"],
                       [[shown[model.name], *[Spread.of(loss(model, k)) for k in design_ks],
                         "" if model is dropout else Difference.of(loss(model), loss(dropout))] for model in with_experts]),
                 f"SMoE-Dropout is the first row; the dense model: {Spread.of(loss(plain))}.")
    page.results |= {"dense": loss(plain), "top_k": {model.name: {k: loss(model, k) for k in design_ks} for model in with_experts}}
    page.models = design_models
    return page
