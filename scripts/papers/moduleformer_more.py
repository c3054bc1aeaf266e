"""ModuleFormer (Shen et al. 2023, arXiv:2306.04640) against dense models: learning new text without forgetting (Tables 4 and 5),
and time and memory at equal loss (Table 2)."""
import statistics

from compare import Claim, Difference, Spread, minus
from lab import Lab, Model
from losses import about_items, millions, percent
from moduleformer import by_information, grown_by, inserted, new_domain, old_domains, on_new_domain, pretrained, tuned_whole, tuning_steps
from page import Page, subplots, table

_dense = {"model.ffn": "gelu", "model.tie_embeddings": "true", "model.heads": 4, "model.head_dim": 32, "optim.schedule": "cosine", "optim.min_lr": 2e-4}
# GPT-Neo 2.7B has two thirds of the parameters of MoLM-4B-K4, with which the paper compares it.
dense = Model("dense-gelu", _dense | {"model.ffn_hidden": 2880})
models = [by_information, dense]
lora_targets = "model/layers/*/self_attn/*_proj/weight, model/layers/*/mlp/*"

# --- joint and lifelong pre-training: Tables 4 and 5


def adapted(name: str, data: dict, source: Model, rank: int, weight_decay: float) -> Model:
    return Model(name, data | {"optim.lora_rank": rank, "optim.lora_alpha": 2 * rank, "optim.lora_targets": lora_targets,
                               "optim.weight_decay": weight_decay}, source, ("reset",))


def lora_parameters(model: Model, layers: int, hidden: int) -> int:
    """Returns the number of parameters of the adapters of all matrices of attention and FFN: r · (rows + columns) of each."""
    keys = model.source.keys
    attention, ffn = 4 * (hidden + keys["model.heads"] * keys["model.head_dim"]), 2 * (hidden + keys["model.ffn_hidden"])
    return layers * model.keys["optim.lora_rank"] * (attention + ffn)


def trained_parameters(lab: Lab, model: Model, base: Model) -> int:
    """Returns the number of parameters that continual training changes. base: the model of pre-training."""
    if "optim.lora_rank" in model.keys:
        return lora_parameters(model, int(lab.base["model.layers"]), int(lab.base["model.hidden"]))
    total = lab.parameters(model)["total"]
    return total - lab.parameters(base)["total"] if "optim.train_only" in model.keys else total


def both_halves(lab: Lab, source: Model) -> Model:
    """Returns the model with new experts in FFNs and 2 in attention, which alone are trained on the new domain."""
    ffn = Model("moduleformer-new-ffn", {"run.steps": 0}, source, ("insert", "--experts", str(inserted)))
    only_new = ("model/layers/*/mlp/experts/1[6-9]/*, model/layers/*/mlp/gate/weight[16:], "
                "model/layers/*/self_attn/experts/[89]/*, model/layers/*/self_attn/gate/weight[8:]")
    return Model("moduleformer-new-attention", on_new_domain(lab) | {"optim.train_only": only_new}, ffn,
                 ("insert", "--site", "attention", "--experts", "2"))


def continual(lab: Lab) -> Page:
    sparse_base, dense_base = (pretrained(lab, model) for model in models)
    old = old_domains(lab)
    alone = on_new_domain(lab)
    joint = alone | {"data.train": f"{lab.corpus.train(*old)} {lab.corpus.train(new_domain)}"}  # four old domains, one new: 4 to 1
    only_new = str(grown_by(lab, sparse_base, 0).keys["optim.train_only"])
    # Ranks give about as many trained weights, relative to those of the new experts, as in the paper: 152 M and 261 M to 266 M in
    # Table 4, 24 M and 133 M to 151 M in Table 5.
    joint_models = {
        "dense, everything": Model("dense-joint-whole", joint, dense_base, ("reset",)),
        "sparse, everything": Model("moduleformer-joint-whole", joint, sparse_base, ("reset",)),
        "dense, adapters of rank 22": adapted("dense-joint-lora-22", joint, dense_base, 22, 0.0),
        "dense, adapters of rank 37": adapted("dense-joint-lora-37", joint, dense_base, 37, 0.0),
        "sparse, new experts": Model("moduleformer-joint-new", joint | {"optim.train_only": only_new}, sparse_base, ("insert", "--experts", str(inserted))),
    }
    lifelong_models = {
        "dense, everything": Model("dense-new-whole", alone, dense_base, ("reset",)),
        "sparse, everything": tuned_whole(lab, sparse_base),
        "dense, adapters of rank 6": adapted("dense-new-lora-6", alone, dense_base, 6, 0.0),
        "dense, adapters of rank 33, weight decay 0.25": adapted("dense-new-lora-33-decay", alone, dense_base, 33, 0.25),
        "dense, adapters of rank 33": adapted("dense-new-lora-33", alone, dense_base, 33, 0.0),
        "sparse, new experts, λ = 0": grown_by(lab, sparse_base, 0),
        "sparse, new experts, λ = 0.25": grown_by(lab, sparse_base, 0.25),
        "sparse, new experts, λ = 1": grown_by(lab, sparse_base, 1.0),
        "sparse, new experts in attention, too": both_halves(lab, sparse_base),
    }
    tuned = [*joint_models.values(), *lifelong_models.values()]
    everything = [sparse_base, dense_base, *tuned]
    lab.train(everything)
    new_loss, old_loss = lab.losses(everything, f"--data.valid={lab.corpus.valid(new_domain)}"), lab.losses(everything, f"--data.valid={lab.corpus.valid(*old)}")
    new_score, old_score = lab.scores(everything, new_domain), lab.scores(everything, *old)
    lab.losses([sparse_base, dense_base])
    base = lambda model: dense_base if model.name.startswith("dense") else sparse_base
    learned = {model.name: minus(new_loss[base(model).name], new_loss[model.name]) for model in tuned}
    forgotten = {model.name: minus(old_loss[model.name], old_loss[base(model).name]) for model in tuned}

    page = Page("ModuleFormer (arXiv:2306.04640), Tables 4 and 5",
                f"Models that were trained on all domains but {new_domain} learn {new_domain} for {tuning_steps(lab)} steps, with the old domains at 4 to 1 "
                "(joint, Table 4) and without them (lifelong, Table 5): a dense model with all weights or with adapters (LoRA), and ModuleFormer with "
                f"all weights or with {inserted} new experts per layer only. The paper has accuracies in English and German or Vietnamese, and claims that "
                "sparse models forget less, and that new experts learn more and forget less than adapters with about as many weights. Its MoLM-4B-K4 "
                "chooses 4 experts for a token, the model here 2. *Learned* is the fall of the loss on "
                f"{new_domain}, *forgotten* the rise on the old domains.")
    joint_of, lifelong_of = (lambda name: joint_models[name].name), (lambda name: lifelong_models[name].name)
    both = [("joint", joint_of, "dense, adapters of rank 37", "sparse, new experts", "−3.5 against −0.8 points", "−3.7 against −1.5 points",
             "+7.8 against +3.7 points"),
            ("lifelong", lifelong_of, "dense, adapters of rank 33", "sparse, new experts, λ = 0", "not compared", "−8.3 against −6.4 points",
             "+9.6 against +1.4 points")]
    for kind, of, adapters, new, whole_paper, forgotten_paper, learned_paper in both:
        page.claims += [
            Claim.above(f"{kind}: with all weights, the dense model forgets more than ModuleFormer", whole_paper, forgotten[of("dense, everything")],
                        forgotten[of("sparse, everything")]),
            Claim.above(f"{kind}: adapters of the dense model forget more than new experts of ModuleFormer", forgotten_paper, forgotten[of(adapters)],
                        forgotten[of(new)]),
            Claim.above(f"{kind}: new experts of ModuleFormer learn more than adapters of the dense model", learned_paper, learned[of(new)],
                        learned[of(adapters)]),
        ]
    decay = lifelong_of("dense, adapters of rank 33, weight decay 0.25")
    page.claims.append(Claim.above("lifelong: without weight decay, adapters learn more than with 0.25", "+1.4 against −0.6 points",
                                   learned[lifelong_of("dense, adapters of rank 33")], learned[decay]))
    none = [0.0] * len(lab.seeds)
    for heading, group in (("Joint (Table 4)", joint_models), ("Lifelong (Table 5)", lifelong_models)):
        rows = [[f"{frozen.name}, frozen", "0", Spread.of(new_loss[frozen.name]), "", "", percent(new_score[frozen.name]), percent(old_score[frozen.name])]
                for frozen in (dense_base, sparse_base)]
        rows += [[text, millions(trained_parameters(lab, model, base(model))), Spread.of(new_loss[model.name]),
                  Difference.of(learned[model.name], none), Difference.of(forgotten[model.name], none), percent(new_score[model.name]),
                  percent(old_score[model.name])] for text, model in group.items()]
        headings = ["trained", "trained weights", f"loss on {new_domain}", "learned", "forgotten", f"cloze items of {new_domain}", "of old domains"]
        page.section(heading, table(headings, rows), about_items)
    figure, axes = subplots(2)
    for axis, (heading, group) in zip(axes, (("joint", joint_models), ("lifelong", lifelong_models))):
        for text, model in group.items():
            axis.plot(statistics.fmean(forgotten[model.name]), statistics.fmean(learned[model.name]), "s" if text.startswith("dense") else "o", label=text)
        axis.set_title(heading, fontsize=10)
        axis.set_xlabel("rise of the loss on the old domains")
        axis.legend(frameon=False, fontsize=7)
    axes[0].set_ylabel(f"fall of the loss on {new_domain}")
    page.section("Learned against forgotten", page.figure("moduleformer-continual.png", "What is learned against what is forgotten", figure))
    page.results |= {"learned": learned, "forgotten": forgotten, "score_new": new_score, "score_old": old_score}
    page.models = everything
    return page


# --- time and memory at equal loss: Table 2

widths = (512, 1536, 2880, 5760)  # of the FFN of dense models; the one whose loss is nearest to that of the sparse model is compared
dense_of_width = {width: dense if width == 2880 else Model(f"dense-gelu-{width}", _dense | {"model.ffn_hidden": width}) for width in widths}
speed_models = [by_information, *dense_of_width.values()]


batch, full_batch = 32, 128  # sequences: those of the paper's latency, and for the throughput, in place of as many as fit a GPU


def speed(lab: Lab) -> Page:
    compared = [pretrained(lab, model) for model in speed_models]
    lab.train(compared)
    losses, scores = lab.losses(compared), lab.scores(compared, *old_domains(lab))
    sparse = compared[0]
    prompt = "the file of the program and " * (int(lab.base["batch.seq_len"]) // 16)
    single = [lab.times(compared, seed, 7, prompt, 16) for seed in lab.seeds]
    batched, full = ([lab.batch_times(compared, seed, 3, sequences) for seed in lab.seeds] for sequences in (batch, full_batch))
    counts = {model.name: lab.parameters(model) for model in compared}
    mean_loss = lambda model: statistics.fmean(losses[model.name])
    nearest = min(compared[1:], key=lambda model: abs(mean_loss(model) - mean_loss(sparse)))
    of = lambda measured, model, what: [run[model.name][what] for run in measured]
    length = int(lab.base["batch.seq_len"])
    page = Page("ModuleFormer (arXiv:2306.04640), Table 2",
                "The paper compares latency, memory and throughput of ModuleFormer with those of dense models that are about as good: half of the latency "
                "and twice the throughput, with a quarter of the activated parameters. Here, dense models of four FFN widths are trained, and the one "
                f"whose loss is nearest to ModuleFormer's is compared: {nearest.name}, {Difference.of(losses[nearest.name], losses[sparse.name])} nats above "
                f"it. As in the paper, latency and peak memory are those of a batch of {batch} sequences (here of {length} tokens, on one core). A GPU that is "
                f"full, with which the paper measures the throughput, is replaced by a batch of {full_batch} sequences. Small experts have small matrix products, "
                "which cost more per operation. Memory is in f32, and a sparse model holds all of its experts.")
    dense_model = f"the dense model of the nearest loss ({abs(mean_loss(nearest) - mean_loss(sparse)):.3f} nats from ModuleFormer's)"
    page.claims += [
        Claim.above(f"{dense_model} takes more time for a batch of {batch} sequences", "latency 918 against 497 ms (Pythia 1.4B, MoLM-4B-K2)",
                    of(batched, nearest, "milliseconds"), of(batched, sparse, "milliseconds"), unit="ms"),
        Claim.above(f"{dense_model} takes more memory for a batch of {batch} sequences", "42 against 27 GB (Pythia 1.4B, MoLM-4B-K2)",
                    of(batched, nearest, "megabytes"), of(batched, sparse, "megabytes"), unit="MB"),
        Claim.above(f"ModuleFormer has a higher throughput than {dense_model}", "71,017 against 35,559 tokens/s (MoLM-4B-K2, Pythia 1.4B)",
                    of(full, sparse, "tokens_per_second"), of(full, nearest, "tokens_per_second"), unit="tokens/s"),
        Claim.above(f"{dense_model} takes more time for a prompt", "not compared", of(single, nearest, "prompt"), of(single, sparse, "prompt"), unit="ms"),
        Claim.above(f"{dense_model} takes more time per decoded token", "not compared", of(single, nearest, "token"), of(single, sparse, "token"), unit="ms"),
    ]
    page.section("Models", table(["model", "loss, mean ± sd", "cloze items", "parameters", "activated", "weights"],
                                 [[model.name, Spread.of(losses[model.name]), percent(scores[model.name]), millions(counts[model.name]["total"]),
                                   millions(counts[model.name]["activated"]), f"{4 * counts[model.name]['total'] / 1e6:.1f} MB"] for model in compared]),
                 about_items)
    rounded = lambda measured, model, what, digits: f"{statistics.fmean(of(measured, model, what)):,.{digits}f}"
    page.section("Time and memory at equal loss (Table 2)",
                 table(["model", f"latency of {batch} sequences, ms", "peak memory, MB", "of the process, MB", f"throughput of {full_batch} sequences, tokens/s",
                        "its peak memory, MB", "ms per prompt", "ms per token"],
                       [[model.name, rounded(batched, model, "milliseconds", 0), rounded(batched, model, "megabytes", 1),
                         rounded(batched, model, "process_megabytes", 0), rounded(full, model, "tokens_per_second", 0), rounded(full, model, "megabytes", 1),
                         Spread.of(of(single, model, "prompt")), Spread.of(of(single, model, "token"))] for model in compared]),
                 "Means over seeds of medians. A batch is one forward pass with the loss of every token (`lyceum eval --timing`). Peak memory is that of the "
                 "tensors after loading; that of the process includes loading, the program, its libraries and the text. Prompt and decoded tokens are those of one sequence "
                 "(`lyceum generate --timing`).")
    page.results |= {"loss": losses, "score": scores, "single": single, f"batch_of_{batch}": batched, f"batch_of_{full_batch}": full}
    page.models = compared
    return page
