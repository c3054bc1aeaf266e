"""ModuleFormer (Shen et al. 2023, arXiv:2306.04640): modules that specialise, that can be pruned, and to which new ones can be
added."""
import configparser
import statistics

import numpy as np

from compare import Claim, Difference, Spread, minus
from lab import Lab, Model
from losses import about_items, parameters, percent
from page import Page, subplots, table

experts = 16
_common = {"model.attention": "moa", "model.attention_weights": "stick_breaking", "model.ffn": "gelu", "model.tie_embeddings": "true",
           "model.heads": 2, "model.head_dim": 32, "moe.experts": experts, "moe.top_k": 2, "moe.expert_hidden": 256, "moe.router": "mlp",
           "moe.router_hidden": 64, "moe.gates": "detached", "attention_experts.count": 8, "attention_experts.top_k": 2,
           "balance.scope": "batch", "optim.schedule": "cosine", "optim.min_lr": 2e-4}
by_information = Model("moduleformer-mi", _common | {"balance.mutual_information": 0.01})
by_load = Model("moduleformer-switch", _common | {"balance.expert": 0.01})
models = [by_information, by_load]
new_domain = "python"
tuned_domain = "headers"
penalties = [0, 0.25, 0.5, 1.0]
thresholds = [0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7]
inserted = 4


def information(lab: Lab, model: Model, seed: int) -> dict[str, float]:
    """Returns H(m), H(m|x) and their difference in nats, over the last quarter of training, averaged over the routers of FFNs."""
    mean, given = (lab.routing(model, seed, what)[1] for what in ("mean_probability", "mean_entropy"))
    last = max(1, len(given[0]) // 4)
    of_mean = np.mean([-(p[-last:] * np.log(np.maximum(p[-last:], 1e-30))).sum(axis=1).mean() for p in mean])
    of_given = np.mean([entropy[-last:].mean() for entropy in given])
    return {"H(m)": float(of_mean), "H(m|x)": float(of_given), "MI": float(of_mean - of_given)}


def kept(lab: Lab, model: Model, seed: int) -> float:
    """Returns the share of the experts of FFNs that a pruned model still has."""
    sections = configparser.RawConfigParser()
    sections.read(lab.directory(model, seed) / "config.ini")
    of_layers = sections.get("moe", "experts_of_layers", fallback="")
    counts = [int(count) for count in of_layers.split(",")] if of_layers.strip() else [sections.getint("moe", "experts")]
    return statistics.fmean(counts) / experts


def old_domains(lab: Lab) -> list[str]:
    """Returns the domains of pre-training: all but the new one."""
    return [name for name in lab.corpus.names if name != new_domain]


def pretrained(lab: Lab, model: Model) -> Model:
    """Returns the model, trained on all domains but the new one."""
    old = old_domains(lab)
    return Model(model.name, model.keys | {"data.train": lab.corpus.train(*old), "data.valid": lab.corpus.valid(*old)})


def tuning_steps(lab: Lab) -> int:
    return max(10, lab.steps // 3)


def on_new_domain(lab: Lab) -> dict[str, object]:
    """Returns the keys of training on the new domain alone."""
    return {"data.train": lab.corpus.train(new_domain), "data.valid": lab.corpus.valid(new_domain), "run.steps": tuning_steps(lab)}


def grown_by(lab: Lab, source: Model, penalty: float) -> Model:
    """Returns the model with new FFN experts, which alone are trained on the new domain, with this penalty of their router rows."""
    only_new = f"model/layers/*/mlp/experts/1[6-9]/*, model/layers/*/mlp/gate/weight[{experts}:]"
    return Model(f"moduleformer-new-{penalty:g}", on_new_domain(lab) | {"optim.train_only": only_new, "optim.router_penalty": penalty,
                 "optim.router_penalty_from": experts if penalty else 0}, source, ("insert", "--experts", str(inserted)))


def tuned_whole(lab: Lab, source: Model) -> Model:
    """Returns the model with all its weights trained on the new domain."""
    return Model("moduleformer-new-whole", on_new_domain(lab), source, ("reset",))


def run(lab: Lab) -> Page:
    old, tuning = old_domains(lab), tuning_steps(lab)
    informed, loaded = (pretrained(lab, model) for model in models)
    code = {"data.train": lab.corpus.train(tuned_domain), "data.valid": lab.corpus.valid(tuned_domain), "run.steps": tuning}
    no_balance = {"balance.mutual_information": 0}
    concentrated = Model("moduleformer-concentrated", code | no_balance | {"balance.concentration": 0.01}, informed, ("reset",))
    plain = Model("moduleformer-tuned", code | no_balance, informed, ("reset",))
    whole = tuned_whole(lab, informed)
    grown = {penalty: grown_by(lab, informed, penalty) for penalty in penalties}
    trained = [informed, loaded, concentrated, plain, whole, *grown.values()]
    lab.train(trained)
    pruned = {(model.name, threshold): Model(f"{model.name}-pruned-{threshold:g}", code | {"run.steps": 0}, model,
                                             ("prune", "--data", str(lab.corpus.folder / f"{tuned_domain}-train"), "--batches", "8",
                                              "--threshold", str(threshold)))
              for model in (concentrated, plain) for threshold in thresholds}
    lab.train(list(pruned.values()))

    losses = lab.losses([informed, loaded])
    entropy = {model.name: [information(lab, model, seed) for seed in lab.seeds] for model in (informed, loaded)}
    of = lambda model, figure: [run[figure] for run in entropy[model.name]]
    on_tuned = (f"--data.valid={lab.corpus.valid(tuned_domain)}",)
    on_new, on_old = (f"--data.valid={lab.corpus.valid(new_domain)}",), (f"--data.valid={lab.corpus.valid(*old)}",)
    tuned_loss = lab.losses([concentrated, plain, *pruned.values()], *on_tuned)
    tuned_score = lab.scores([concentrated, plain, *pruned.values()], tuned_domain)
    new_loss = lab.losses([informed, whole, *grown.values()], *on_new)
    old_loss = lab.losses([informed, whole, *grown.values()], *on_old)
    gain = {model.name: minus(new_loss[informed.name], new_loss[model.name]) for model in (whole, *grown.values())}
    forgotten = {model.name: minus(old_loss[model.name], old_loss[informed.name]) for model in (whole, *grown.values())}
    remaining = {key: [kept(lab, model, seed) for seed in lab.seeds] for key, model in pruned.items()}
    shares = lambda model: [statistics.fmean(remaining[model.name, t][i] for t in thresholds) for i in range(len(lab.seeds))]

    # Losses are compared at the same share of experts: the smallest to which both models were pruned with every seed.
    common = max(min(remaining[model.name, t][i] for t in thresholds) for model in (plain, concentrated) for i in range(len(lab.seeds)))

    def interpolated(values: dict[str, list[float]], share: float) -> dict[str, list[float]]:
        """Returns the values of both models when this share of their experts is left, between those of two thresholds."""
        def of_seed(model: Model, i: int) -> float:
            points = sorted([(1.0, values[model.name][i]), *((remaining[model.name, t][i], values[pruned[model.name, t].name][i]) for t in thresholds)])
            return float(np.interp(share, *zip(*points)))
        return {model.name: [of_seed(model, i) for i in range(len(lab.seeds))] for model in (plain, concentrated)}

    at_common, score_at_common = interpolated(tuned_loss, common), interpolated(tuned_score, common)

    page = Page("ModuleFormer (arXiv:2306.04640), sections 3 and 4, Figure 2, Table 5",
                "Attention and FFNs are mixtures, with stick-breaking attention. A loss that raises the mutual information of tokens and experts "
                "keeps all experts in use and makes each choice certain, where Switch's loss only evens the load. Fine-tuning that concentrates the "
                "load on few experts lets the others be pruned (Figure 2); choices are counted on text for training here, and "
                "on development data in the paper. New experts learn a new domain while the old ones are frozen; a penalty on "
                "the new rows of the router trades what is learned for what is forgotten (Table 5). The paper measures accuracies; here it is the loss.")
    lightest, heaviest = grown[penalties[0]].name, grown[penalties[-1]].name
    page.claims += [
        Claim.above("the MI loss gives a higher mutual information than Switch's", "section 4", of(informed, "MI"), of(loaded, "MI")),
        Claim.above("Switch's loss leaves a higher H(m|x): choices are less certain", "section 4", of(loaded, "H(m|x)"), of(informed, "H(m|x)")),
        Claim.above("after load concentration, pruning at the same thresholds removes more experts", "Figure 2", shares(plain), shares(concentrated),
                    unit="of the experts, mean over thresholds"),
        Claim.above(f"pruned to {100 * common:.0f} % of the experts, the loss is higher without load concentration", "Figure 2", at_common[plain.name],
                    at_common[concentrated.name]),
        Claim.above(f"pruned to {100 * common:.0f} % of the experts, more cloze items of the domain are right with load concentration than without",
                    "Figure 2(a), pass@k of HumanEval", score_at_common[concentrated.name], score_at_common[plain.name], unit="points"),
        Claim.above("new experts alone learn the new domain", "+9.6 points of accuracy", gain[lightest], [0] * len(lab.seeds)),
        Claim.above("with λ = 1 less is forgotten than with λ = 0", "−2.2 against −6.4 points", forgotten[lightest], forgotten[heaviest]),
        Claim.above("with λ = 1 less is learned than with λ = 0", "+4.6 against +9.6 points", gain[lightest], gain[heaviest]),
    ]
    page.section("Mutual information", "Over the last quarter of pre-training, routers of the FFNs; the maximum is log 16 = 2.77 nats.",
                 table(["model", "parameters", "activated", "loss", "H(m)", "H(m|x)", "MI"],
                       [[model.name, *parameters(lab, model), Spread.of(losses[model.name]), *[Spread.of(of(model, figure)) for figure in
                         ("H(m)", "H(m|x)", "MI")]] for model in (informed, loaded)]))
    figure, (left, right) = subplots(2)
    for model, text in ((plain, "fine-tuned"), (concentrated, "with load concentration")):
        left.plot([1, *[statistics.fmean(remaining[model.name, t]) for t in thresholds]],
                  [statistics.fmean(tuned_loss[name]) for name in (model.name, *[pruned[model.name, t].name for t in thresholds])], marker="o", label=text)
    left.invert_xaxis()
    left.set_xlabel("share of experts that remain")
    left.set_ylabel(f"held-out loss on {tuned_domain}")
    left.legend(frameon=False)
    for model, text in ((whole, "everything trained"), *((grown[p], f"new experts, λ = {p:g}") for p in penalties)):
        right.plot(statistics.fmean(forgotten[model.name]), statistics.fmean(gain[model.name]), "o", label=text)
    right.set_xlabel("rise of the loss on the old domains")
    right.set_ylabel(f"fall of the loss on {new_domain}")
    right.legend(frameon=False, fontsize=8)
    page.section("Pruning and growing", page.figure("moduleformer.png", "Pruning curve; what is learned against what is forgotten", figure))
    page.section("Pruning (Figure 2)", f"Fine-tuned on {tuned_domain} for {tuning} steps with and without load concentration (weight 0.01), then "
                 f"experts are removed whose tokens, counted on 8 batches of {tuned_domain}'s training text, are fewer than a threshold times those of the "
                 "most used expert of their layer.",
                 table(["threshold", *[f"{t:g}" for t in thresholds]],
                       [row for model, text in ((plain, "fine-tuned"), (concentrated, "with concentration")) for row in
                        ([f"{text}: experts left", *[f"{100 * statistics.fmean(remaining[model.name, t]):.0f} %" for t in thresholds]],
                         [f"{text}: loss", *[Spread.of(tuned_loss[pruned[model.name, t].name]) for t in thresholds]],
                         [f"{text}: cloze items", *[percent(tuned_score[pruned[model.name, t].name]) for t in thresholds]])]),
                 f"Without pruning: {Spread.of(tuned_loss[plain.name])} and {Spread.of(tuned_loss[concentrated.name])}; cloze items of {tuned_domain}: "
                 f"{percent(tuned_score[plain.name])} and {percent(tuned_score[concentrated.name])}.", about_items)
    page.section("A new domain (Table 5)", f"{inserted} experts are added to each layer, and {new_domain}, which pre-training did not use, is learned for {tuning} steps.",
                 table(["trained", "loss on the new domain", "learned", "forgotten"],
                       [["nothing", Spread.of(new_loss[informed.name]), "", ""],
                        *[[text, Spread.of(new_loss[model.name]), Difference.of(gain[model.name], [0] * len(lab.seeds)),
                           Difference.of(forgotten[model.name], [0] * len(lab.seeds))]
                          for model, text in ((whole, "everything"), *((grown[p], f"new experts, λ = {p:g}") for p in penalties))]]))
    page.results |= {"loss": losses, "information": entropy, "learned": gain, "forgotten": forgotten, "tuned_loss": tuned_loss, "tuned_score": tuned_score,
                     "loss_at_common_share": at_common, "score_at_common_share": score_at_common,
                     "experts_left": {f"{name}, {t:g}": v for (name, t), v in remaining.items()}}
    page.models = [informed, loaded, concentrated, plain, whole, *grown.values()]
    return page
