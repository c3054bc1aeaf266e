"""SMoE-Dropout (Chen et al. 2023, arXiv:2303.01610): with a random router that is never trained and a number of experts that
grows during training, one model can be used with any number of experts."""
import statistics

from compare import Claim, Difference, Spread, minus
from lab import Lab, Model
from page import Page, subplots, table

experts = 16
_cut = {"moe.experts": experts, "moe.expert_hidden": 44}  # the dense FFN of width 704 in 16 parts
dense = Model("dense-704", {"model.ffn_hidden": experts * 44})
dropout = Model("smoe-dropout", _cut | {"moe.router": "random", "moe.gates": "renormalized", "moe.top_k": experts, "moe.top_k_start": 2})
learned = Model("smoe-learned", _cut | {"moe.gates": "renormalized", "moe.top_k": experts // 2, "balance.expert": 0.01, "balance.scope": "batch"})
models = [dense, dropout, learned]
ks = [2, 4, 6, 8, 10, 12, 14, 16]


def run(lab: Lab) -> Page:
    lab.train(models)
    arguments = lambda model, k: () if model.keys["moe.top_k"] == k else (f"--moe.top_k={k}",)
    results = lab.evaluate([(dense, seed, ()) for seed in lab.seeds] +
                           [(model, seed, arguments(model, k)) for model in (dropout, learned) for k in ks for seed in lab.seeds])
    loss = lambda model, k: [results[model.name, seed, arguments(model, k)]["loss"] for seed in lab.seeds]
    dense_loss = [results[dense.name, seed, ()]["loss"] for seed in lab.seeds]
    page = Page("SMoE-Dropout (arXiv:2303.01610), Table 1 and Figure 3",
                "A dense FFN is divided into 16 experts. A random router that is not trained chooses k of them, and k grows evenly from 2 to all "
                "during training. The paper claims that the loss then falls with every expert that is added (\"self-slimmable\"), that all "
                "experts beat the dense model of the same size, and that half of them come close. Its dense baseline uses dropout; the one "
                "here is trained without.")
    # The claim is about all steps, so it is tested for the step whose confidence interval has the lowest end.
    gain = lambda step: Difference.of(loss(dropout, step[0]), loss(dropout, step[1]))
    least = min(zip(ks, ks[1:]), key=lambda step: gain(step).mean - gain(step).half_width)
    page.claims += [
        Claim.above(f"SMoE-Dropout with {ks[0]} experts has a higher loss than with all", "Figure 3", loss(dropout, ks[0]), loss(dropout, ks[-1])),
        Claim.above(f"every two experts more lower its loss (the least of {len(ks) - 1} steps, from {least[0]} to {least[1]})", "Figure 3",
                    loss(dropout, least[0]), loss(dropout, least[1])),
        Claim.above("the dense model has a higher loss than SMoE-Dropout with all experts", "BPC 1.1623 against 1.1486", dense_loss, loss(dropout, 16)),
        Claim.above("a learned router, used with all experts, has a higher loss than SMoE-Dropout with all", "BPC 1.1896 against 1.1486",
                    loss(learned, 16), loss(dropout, 16)),
        Claim.above("from half to all experts, SMoE-Dropout gains more than the learned router", "Figure 3",
                    minus(loss(dropout, 8), loss(dropout, 16)), minus(loss(learned, 8), loss(learned, 16))),
    ]
    figure, (axis,) = subplots()
    for model, text in ((dropout, "random router, k grows"), (learned, "learned router, k = 8")):
        axis.plot(ks, [statistics.fmean(loss(model, k)) for k in ks], marker="o", label=text)
    axis.axhline(statistics.fmean(dense_loss), color="C3", linestyle="--", label="dense")
    axis.set_xlabel("experts per token, of 16")
    axis.set_ylabel("held-out loss, nats per token")
    axis.legend(frameon=False)
    page.section("Loss against the number of experts", page.figure("smoe-dropout.png", "Loss against the number of experts", figure),
                 table(["experts per token", *[str(k) for k in ks]],
                       [[model.name, *[Spread.of(loss(model, k)) for k in ks]] for model in (dropout, learned)]),
                 f"The dense model: {Spread.of(dense_loss)}.")
    with_all = loss(dropout, experts)
    rows = [[model.name, paper, Spread.of(values), Difference.of(values, with_all)] for model, paper, values in
            ((dense, "1.1623", dense_loss), (learned, "1.1896", loss(learned, experts)))]
    page.section("Table 1", "All experts are used. The paper gives bits per character of enwik8, here it is nats per token.",
                 table(["model", "paper: BPC", "here: loss, mean ± sd", f"above {dropout.name}"],
                       [*rows, [dropout.name, "1.1486", Spread.of(with_all), ""]]))
    page.results |= {"dense": dense_loss, "top_k": {model.name: {k: loss(model, k) for k in ks} for model in (dropout, learned)}}
    page.models = models
    return page
