#!/usr/bin/env python3
"""Tests parts of the experiments in scripts/papers: names and descriptions of manual pages and questions about them, excerpts
with their domains, claims with the papers' figures, the reference of activation flow, parameters of adapters, the list of what is to run and its options, and what experiments train."""
import contextlib
import functools
import importlib.util
import io
import json
import os
import random
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

REPOSITORY = Path(__file__).resolve().parents[2]
python = os.environ.get("LYCEUM_PYTHON", str(REPOSITORY / ".venv/bin/python"))
if importlib.util.find_spec("matplotlib") is None and python != sys.executable:
    os.execv(python, [python, *sys.argv])
sys.path.insert(0, str(REPOSITORY / "scripts/papers"))
import chats  # noqa: E402
import compare  # noqa: E402
import deepseekmoe  # noqa: E402
import excerpts  # noqa: E402
import experiments  # noqa: E402
import flow  # noqa: E402
import lab  # noqa: E402
import machine  # noqa: E402
import main  # noqa: E402
import moduleformer_more  # noqa: E402
import mohd_more  # noqa: E402
import muon  # noqa: E402
import numpy as np  # noqa: E402
import page  # noqa: E402
import smoe_more  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402


class PaperLab:
    """Stands in for a lab whose models have the losses of a paper, times `sign`. A pair of losses is that on the new domain, and
    that on others."""

    def __init__(self, losses: dict[str, float | tuple[float, float]], sign: int = 1):
        self.of_paper, self.sign, self.seeds, self.trained, self.evaluated = losses, sign, [1, 2, 3], [], set()
        self.base, self.steps, self.device = experiments.base(quick=False), 2400, "cpu"
        self.corpus = SimpleNamespace(names=["headers", "python"], folder=Path("text"), tokenizer="tokenizer.model",
                                      train=lambda *names: " ".join(f"1 {name}" for name in names or ["all"]), valid=lambda *names: " ".join(names or ["all"]))

    def train(self, models):
        self.trained += models

    def evaluate(self, wanted):
        self.evaluated |= {(model.name, arguments) for model, _, arguments in wanted}

        def loss(model, arguments):
            of = self.of_paper[model.name]
            if callable(of):
                return of(int(arguments[0].split("=")[1]) if arguments else model.keys.get("moe.top_k"))
            return of if not isinstance(of, tuple) else of[0 if arguments == ("--data.valid=python",) else 1]
        return {(model.name, seed, arguments): {"loss": self.sign * loss(model, arguments) + seed / 1e6, "bits_per_byte": 1.5}
                for model, seed, arguments in wanted}

    def losses(self, models, *arguments):
        results = self.evaluate([(model, seed, arguments) for model in models for seed in self.seeds])
        return {model.name: [results[model.name, seed, arguments]["loss"] for seed in self.seeds] for model in models}

    def scores(self, models, *names):
        self.evaluated |= {(model.name, ("--tasks", *names)) for model in models}
        return {model.name: [50.0] * len(self.seeds) for model in models}

    def tasks(self, models, arguments):
        """The accuracies of a pair of losses, in percent: of excerpts and of descriptions."""
        self.evaluated |= {(model.name, arguments) for model in models}
        values = lambda model: self.of_paper[model.name] if isinstance(self.of_paper[model.name], tuple) else (0.0, 0.0)
        scores = lambda model, seed: [{"acc": self.sign * value / 100 + seed / 1e6, "acc_norm": self.sign * value / 100 + seed / 1e6} for value in values(model)]
        alone = lambda model: [file for file in ("excerpts", "chats") if model.name.endswith(f"-{file}")]
        of = lambda model, seed: [scores(model, seed)[("excerpts", "chats").index(file)] for file in alone(model)] or scores(model, seed)
        return {model.name: [of(model, seed) for seed in self.seeds] for model in models}

    def times(self, models, seed, rounds, prompt, tokens):
        return {model.name: dict.fromkeys(("prompt", "token"), self.sign * self.of_paper[model.name][2] + seed / 1e6) for model in models}

    def batch_times(self, models, seed, rounds, sequences):
        figures = lambda latency, memory, throughput: {"milliseconds": latency, "megabytes": memory, "process_megabytes": memory, "tokens_per_second": throughput}
        return {model.name: figures(*[self.sign * value + seed / 1e6 for value in self.of_paper[model.name][2:]]) for model in models}

    def tensors(self, model, seed, names):
        return {name: np.array([-np.log(3)]) for name in names}

    def parameters(self, model):
        return {"total": 10_000_000, "activated": 5_000_000}

    def metrics(self, model, seed):
        return [{"step": 1, "valid_loss": self.of_paper[model.name], "step_ms": 1.0}]


def without_text():
    """Returns a context in which chats and excerpts are not made."""
    made = chats.Chats(Path("train"), Path("valid"), Path("questions.jsonl"), 1, 1000, 1)
    context = contextlib.ExitStack()
    for module in (chats, excerpts):
        context.enter_context(mock.patch.object(module, "prepare", lambda lab: made))
    return context


class Recorder(PaperLab):
    """Records the models that an experiment trains, up to its first evaluation."""

    class Done(Exception):
        pass

    def __init__(self, experiment):
        super().__init__({})
        with without_text(), contextlib.suppress(self.Done):
            experiment.run(self)

    def evaluate(self, wanted):
        raise self.Done

    def directory(self, model, seed):
        raise self.Done


def keys_with_sources(model) -> dict:
    """Returns the keys of the configuration of a model, without those of the lab, as `lyceum convert` changes those of its source."""
    if not model.source:
        return model.keys
    keys, (kind, *arguments) = keys_with_sources(model.source), model.transform
    given = dict(zip(arguments[::2], arguments[1::2]))
    if kind == "insert":
        count = "attention_experts.count" if given.get("--site") == "attention" else "moe.experts"
        keys = keys | {count: keys[count] + int(given["--experts"])}
    if kind == "modulize":
        number = int(given["--experts"])
        keys = {key: value for key, value in keys.items() if key != "model.ffn_hidden"} | {
            "moe.experts": number, "moe.top_k": number, "moe.expert_hidden": keys["model.ffn_hidden"] // number, "moe.router": "random", "moe.gates": "ones"}
    own = {key.removeprefix("--"): value for key, value in (argument.split("=") for argument in arguments if "=" in argument)}
    return keys | own | model.keys


class ManualPages(unittest.TestCase):
    def test_names_and_descriptions(self):
        man = '.TH GREP 1\n.SH NAME\n.\\" a comment\ngrep, egrep \\- print lines that match \\fIpatterns\\fR\n.\n.SH SYNOPSIS\n'
        self.assertEqual(chats.name_and_description(man), ("grep", "print lines that match patterns"))
        pod = '.SH "NAME"\nAlgorithm::Diff \\- Compute\ndifferences between two files\n.SH "SYNOPSIS"\n'
        self.assertEqual(chats.name_and_description(pod), ("Algorithm::Diff", "Compute differences between two files"))
        mdoc = ".Sh NAME\n.Nm bsdtar ,\n.Nm tar\n.Nd manipulate tape archives\n.Sh SYNOPSIS\n"
        self.assertEqual(chats.name_and_description(mdoc), ("bsdtar", "manipulate tape archives"))
        bold = ".SH NAME\n.B ip-link\n\\- network device configuration\n.SH SYNOPSIS\n"
        self.assertEqual(chats.name_and_description(bold), ("ip-link", "network device configuration"))

    def test_pages_without_plain_words(self):
        for text in ("", ".SH NOM\nls \\- affiche\n.SH X\n", ".SH NAME\nls\n.SH X\n", ".SH NAME\nls \\- short\n.SH X\n", ".SH NAME\nls \\- list \\(bu contents\n.SH X\n",
                     ".SH NAME\ntwo words \\- list the contents\n.SH X\n"):
            self.assertIsNone(chats.name_and_description(text), text)

    def test_questions(self):
        pairs = [(f"name{i}", f"what it does, {i}") for i in range(30)]
        items = chats.questions(pairs, 20, 1)
        self.assertEqual(len({item["context"] for item in items}), 20)
        for item in items:
            self.assertEqual(len(set(item["choices"])), 4)
            self.assertIn((item["context"].removeprefix("What is ").removesuffix("?\n"), item["choices"][item["answer"]]), pairs)
        self.assertEqual(len({item["answer"] for item in items}), 4)
        self.assertEqual(items, chats.questions(pairs, 20, 1))


    def test_nothing_held_out_is_in_training(self):
        page = lambda name, described: f".SH NAME\n{name} \\- {described}\n.SH X\n"
        found = [(None, page(f"trained{i}", f"what it does, {i}"), False) for i in range(5)]
        found += [(None, page(f"other{i}", f"something else, {i}"), True) for i in range(20)]
        found += [(None, page("trained1", "a second page of it"), True), (None, page("alias", "what it does, 2"), True)]
        with mock.patch.object(chats.text, "texts", lambda domain: found):
            trained, held_out = chats.collect(100, 100)
        self.assertEqual((len(trained), sorted(name for name, _ in held_out)), (5, sorted(f"other{i}" for i in range(20))))


class Excerpts(unittest.TestCase):
    def test_draw(self):
        file = " ".join(f"w{i}" for i in range(100))
        known = set()
        drawn = excerpts.draw([file, file, "five words are too few", ""], 15, random.Random(1), known)
        self.assertEqual(len(drawn), 15)
        self.assertEqual(set(drawn), known)
        for excerpt in drawn:
            self.assertEqual(len(excerpt.split()), excerpts.words)
            self.assertIn(f" {excerpt} ", f" {file} ")
        self.assertEqual(len(excerpts.draw([file], 15, random.Random(1), set())), excerpts.of_file)
        again = excerpts.draw([file], 15, random.Random(1), known)
        self.assertFalse(set(again) & set(drawn))
        self.assertEqual(known, {*again, *drawn})

    def test_items(self):
        items = excerpts.items([("a b c", "python"), ("d e f", "headers")])
        self.assertEqual([(item["context"], item["choices"][item["answer"]]) for item in items], [("a b c\n", "python"), ("d e f\n", "headers")])
        self.assertEqual(items[0]["choices"], ["headers", "python"])

    def test_excerpts_have_one_domain_and_part(self):
        names = [domain.name for domain in excerpts.text.domains(REPOSITORY)]

        def texts(domain):  # half of the words are the same in all files; licences are scarce
            for n in range(24 if domain.name == "licences" else 80):
                yield None, " ".join([f"w{i}" for i in range(60)] + [f"{domain.name}-{n}-{i}" for i in range(60)]), n % 4 == 0

        with mock.patch.object(excerpts.text, "texts", texts), mock.patch.object(excerpts, "least", {False: 50, True: 20}):
            trained, held_out = excerpts.collect(200, 40)
            with self.assertRaisesRegex(excerpts.Failed, "excerpts for training of the domain licences: at least 400 are needed"), \
                    mock.patch.object(excerpts, "least", {False: 400, True: 20}):
                excerpts.collect(4000, 40)
        for part, most in ((trained, 200), (held_out, 40)):
            counts = {name: sum(of == name for _, of in part) for name in names}
            self.assertEqual(len(set(counts.values())), 1, counts)
            self.assertLessEqual(counts["licences"], most)
        together = [excerpt for excerpt, _ in trained + held_out]
        self.assertEqual(len(set(together)), len(together))


class Claims(unittest.TestCase):
    """With the figures of the papers all claims are reproduced, and with the negated ones their opposites are."""

    def check(self, name: str, losses: dict, evaluations: int = 0):
        experiment = experiments.all_of_them[name]
        for sign, verdict in ((1, "reproduced"), (-1, "opposite")):
            lab = PaperLab(losses, sign)
            with without_text():
                made = experiment.run(lab)
            self.assertEqual(len(lab.evaluated), evaluations or experiment.evaluations)
            self.assertEqual([claim for claim in made.claims if claim.verdict != verdict], [])
            self.assertEqual({model.name for model in made.models}, {model.name for model in lab.trained})
            for figure in made.figures.values():
                plt.close(figure)
        return made

    def test_larger_models(self):
        self.check("deepseekmoe-larger", {name: float(loss) for name, loss in deepseekmoe.pile_loss.items()})

    def test_ratios(self):
        self.check("deepseekmoe-ratio", {name: float(loss) for name, loss in deepseekmoe.pile_loss.items()})

    def test_sizes(self):
        self.check("mohd-sizes", {name: -accuracy for name, accuracy in mohd_more.averages.items()})

    def test_decoupled_halves(self):
        perplexity = {"llama": 11.61} | {mohd_more.by_shares[each].name: value for each, value in mohd_more.table_5.items()}
        self.check("mohd-decoupled", perplexity)

    def test_smoe_dropout(self):
        half = lambda k: 1.1486 + (16 - k) / 8 * (1.1776 - 1.1486)  # BPC of SMoE-Dropout with k experts, if it changes evenly
        bpc = {"dense-704": 1.2, "dense-dropout": 1.1623, "dense-concrete": 1.3335, "dense-dropblock": 1.2468, "thor-0.1": 1.3110, "smoe-learned-0.1": 1.1896,
               "smoe-dropout-0.1": half, "smoe-dropout": 1.15}
        rates = self.check("smoe-dropout", bpc).results["concrete_rates"]
        self.assertEqual(len(rates), 9)
        for of_site in rates.values():
            np.testing.assert_allclose(of_site, 0.25, rtol=1e-12)

    def test_fine_tuning(self):
        accuracies = {model.name: 0.0 for model in smoe_more.transfer_models}
        for row in smoe_more.rows_of_table_2:
            name = f"{row.source.name}-{row.experts}" if row.experts else row.source.name
            accuracies |= {f"{name}-{task}": row.paper for task in ("excerpts", "chats")}
        self.check("smoe-dropout-transfer", accuracies)

    def test_depths(self):
        dense = {2: 1.15, 4: 1.1623, 8: 1.1, 12: 1.08}
        sparse = {2: 1.16, 4: 1.1486, 8: 1.05, 12: 1.02}
        losses = {}
        for layers, models in smoe_more.by_depth.items():
            losses |= {models["dense"].name: dense[layers], models["learned"].name: dense[layers] + 0.02, models["dropout"].name: sparse[layers]}
        self.check("smoe-dropout-capacity", losses)

    def test_routers_and_layers(self):
        with_k = lambda loss: lambda k: loss + (16 - k) / 100
        self.check("smoe-dropout-design", {"dense-dropout": 1.1623, "smoe-dropout-0.1": with_k(1.1486), "smoe-dropout-last-2": with_k(1.14),
                                           "smoe-dropout-last-1": with_k(1.15), "smoe-learned-growing": with_k(1.17), "smoe-learned-0.1": with_k(1.1896),
                                           "smoe-random-8": with_k(1.16), "smoe-uniform-8": with_k(1.18)})

    def test_speed(self):
        # Latency, memory and throughput of Pythia 1.4B, whose loss is the nearest, and of MoLM-4B-K2.
        others = {model.name: (5.0, 5.0, 1, 1, 1) for model in moduleformer_more.speed_models}
        self.check("moduleformer-speed", others | {"moduleformer-mi": (3.0, 3.0, 497, 27, 71017), "dense-gelu": (3.1, 3.1, 918, 42, 35559)}, evaluations=10)

    def test_continual_learning(self):
        # Accuracies in Vietnamese and English. Table 5 does not have models with all weights, the last two of these.
        accuracies = {"dense-gelu": (58.9, 78.6), "moduleformer-mi": (58.4, 80.9),
                      "dense-joint-whole": (66.0, 75.1), "moduleformer-joint-whole": (67.9, 80.1), "dense-joint-lora-22": (62.0, 74.4),
                      "dense-joint-lora-37": (62.6, 74.9), "moduleformer-joint-new": (66.2, 79.4),
                      "dense-new-lora-6": (57.5, 69.3), "dense-new-lora-33-decay": (57.8, 69.9), "dense-new-lora-33": (59.8, 70.3),
                      "moduleformer-new-0": (68.0, 74.5), "moduleformer-new-0.25": (64.8, 76.0), "moduleformer-new-1": (63.0, 78.7),
                      "moduleformer-new-attention": (68.0, 74.5), "dense-new-whole": (66.0, 70.0), "moduleformer-new-whole": (68.0, 75.0)}
        self.check("moduleformer-continual", {name: (-new, -old) for name, (new, old) in accuracies.items()})


class Experiments(unittest.TestCase):
    def test_shares_of_normal_numbers(self):
        self.assertAlmostEqual(flow.share_of_normal(0.5, 2), 0.5 + 1 / np.pi)  # E max(cos² θ, sin² θ)
        drawn = np.sort(np.random.default_rng(1).standard_normal((10_000, 192)) ** 2)[:, ::-1]
        shares = {"top_share": (drawn / drawn.sum(axis=1, keepdims=True)).cumsum(axis=1).mean(axis=0)}
        for part in (0.001, 0.1, 1000 / 4096, 0.5, 1.0):
            self.assertAlmostEqual(flow.share_of_normal(part, 192), flow.top_share(shares, part), delta=1e-3)

    def test_interpolated_shares_of_dimensions(self):
        layer = {"top_share": np.array([0.5, 0.75, 0.9, 1.0])}
        for part, share in ((0.25, 0.5), (0.5, 0.75), (0.375, 0.625), (0.125, 0.25), (1.0, 1.0)):
            self.assertAlmostEqual(flow.top_share(layer, part), share)

    def test_adapters_have_as_many_weights_as_new_experts(self):
        lab = Recorder(experiments.all_of_them["moduleformer-continual"])
        by_name = {model.name: model for model in lab.trained}
        new_experts = 4 * 4 * (2 * 128 * 256 + 64)  # 4 layers with 4 experts: two matrices and a row of the router
        # Table 4 has 152 M and 261 M beside 266 M, Table 5 24 M and 133 M beside 151 M.
        for name, of_paper in (("joint-lora-22", 152 / 266), ("joint-lora-37", 261 / 266), ("new-lora-6", 24 / 151), ("new-lora-33", 133 / 151),
                               ("new-lora-33-decay", 133 / 151)):
            trained = moduleformer_more.trained_parameters(lab, by_name["dense-" + name], by_name["dense-gelu"])
            self.assertAlmostEqual(trained / new_experts, of_paper, delta=0.02, msg=name)

    def test_models_of_one_name_are_one_model(self):
        seen = {}
        for name, experiment in experiments.all_of_them.items():
            for model in experiment.models:
                self.assertEqual(seen.setdefault(model.name, model.keys), model.keys, f"{name}: {model.name}")

    def test_steps_of_training(self):
        for name, experiment in experiments.all_of_them.items():
            lab = Recorder(experiment)
            planned = {model.name for model in experiment.models}
            others = [model.keys.get("run.steps", lab.steps) / lab.steps for model in {model.name: model for model in lab.trained}.values()
                      if model.name not in planned]
            self.assertLessEqual(planned, {model.name for model in lab.trained}, name)
            self.assertEqual(sorted(share for share in others if share), sorted(experiment.more), name)

    def test_what_is_to_run(self):
        made = {"seconds_of_training": 7200, "seeds": 2, "steps": 1200}
        pages = {"new": {"made": made}, "old": {"made": made | {"older": "two more models"}}, "bits": {"made": made | {"older": "bits per byte"}}}
        of = lambda title, hours: experiments.Experiment(title, print, [None] * 6, 12, core_hours=hours)  # evaluations take a tenth of training
        all_of_them = {"new": of("New", 0), "bits": of("Bits", 0.1), "old": of("Old", 0), "none": of("None yet", 1.5)}
        text = page._to_run(pages, all_of_them, 2400)
        self.assertIn("about 12 in all", text)  # old: 1 h per seed with 1,200 steps, so 6.6 h; none: 4.95 h
        self.assertNotIn("New", text)
        self.assertRegex(text, r"\| None yet \(`none`\) +\| defined, not run yet +\| +5 \| +5 \|\n"
                               r"\| Old \(`old`\) +\| the script has changed: two more models +\| +7 \| +12 \|\n"
                               r"\| Bits \(`bits`\) +\| optional: bits per byte +\| +0\.3 \| +12 \|")
        found = page.to_run(pages, all_of_them, 2400)
        self.assertEqual([each.name for each in found], ["none", "old", "bits"])
        for hours, seeds, names in ((4.9, 3, []), (5, 3, ["none"]), (11.5, 3, ["none"]), (11.6, 3, ["none", "old"]), (10, 6, ["none"])):
            self.assertEqual(page.fitting(found, hours, seeds), names, hours)
        pages["old"]["made"]["note"] = "other gates"
        noted = page._to_run(pages, all_of_them, 2400)
        self.assertLess(noted.index("Old"), noted.index("None yet"))
        self.assertEqual(page._to_run({"new": pages["new"]}, {"new": all_of_them["new"]}, 2400), "")

    def test_repetitions_of_the_same_models(self):
        with tempfile.TemporaryDirectory() as folder:
            for seeds, configurations in (("4-6", "0123abcd"), ("7-9", "89ef4567")):
                made = {"text_digest": "00112233445566", "configurations": configurations}
                Path(folder, f"few-seeds-{seeds}.json").write_text(json.dumps({"made": made, "claims": []}))
            with contextlib.redirect_stderr(io.StringIO()) as messages:
                self.assertEqual(page._repeated(Path(folder), "few", {"configurations": "0123abcd"}), [("4 to 6", "00112233", [])])
            self.assertRegex(messages.getvalue(), r"^\S*few-seeds-7-9\.json is left out, since its models are not configured as those of few\.md; [^\n]*\n$")
            with contextlib.redirect_stderr(io.StringIO()) as messages:  # a page from before configurations were compared
                self.assertEqual(page._repeated(Path(folder), "few", {}), [])
            self.assertEqual(messages.getvalue().count("is left out"), 2)

    def test_time_of_training(self):  # of the faster seed, without the pause in one of its steps
        of_seed = {1: [20.0, 21.0, 19.0], 2: [10.0, 50_000.0, 9.0]}
        runs = SimpleNamespace(seeds=[1, 2], metrics=lambda model, seed: [{"step_ms": time} for time in of_seed[seed]])
        runs.median_step_seconds = functools.partial(lab.Lab.median_step_seconds, runs)
        runs.step_seconds = functools.partial(lab.Lab.step_seconds, runs)
        self.assertAlmostEqual(lab.Lab.seconds(runs, ["model"]), 6 * 0.010)

    def test_machines_of_runs(self):  # the second run is of a version that did not name its machine
        with tempfile.TemporaryDirectory() as folder:
            for seed, trained in ((1, "A GPU\n"), (2, ""), (3, "A GPU\n")):
                Path(folder, str(seed)).mkdir()
                Path(folder, str(seed), "trained").write_text(trained)
            runs = SimpleNamespace(seeds=[1, 2, 3], machine="this one", directory=lambda model, seed: Path(folder, str(seed)))
            self.assertEqual(lab.Lab.machines(runs, ["model"]), ["A GPU", "this one"])

    def test_seeds_of_a_page_made_on_a_gpu(self):  # core-hours are those of a CPU
        claim = vars(compare.Claim.above("a above b", "0.010", [1.00, 1.02, 1.01], [1.0, 1.0, 1.01]))
        made = {"seconds_of_training": 7200, "seeds": 2}
        all_of_them = {"few": experiments.Experiment("Few", print, [None], 1, core_hours=3)}
        hours = lambda made: page._seeds_needed({"few": {"made": made, "claims": [claim]}}, all_of_them).splitlines()[-1].split("|")[-2].strip()
        self.assertEqual([hours(made), hours(made | {"device": "cpu"}), hours(made | {"device": "cuda"})], ["1.0", "1.0", "3.0"])

    def test_loss_after_equal_time(self):
        lines = [{"step": step, "valid_loss": 3 - step / 1000 if step % 10 == 0 else None} for step in range(1, 101)]
        for second in (0.001, 0.0123456, 1 / 3):  # of a step
            runs = SimpleNamespace(metrics=lambda model, seed: lines, step_seconds=lambda model: second)
            whole = sum([second * 100] * 3) / 3
            self.assertEqual([muon.loss_at(runs, "model", 1, share * whole) for share in (0.05, 0.1, 0.55, 1, 2)], [2.99, 2.99, 2.95, 2.9, 2.9])

    def test_claims_that_need_more_seeds(self):
        made = {"seconds_of_training": 7200, "seeds": 3, "steps": 2400}
        all_of_them = {"few": experiments.Experiment("Few", print, [None] * 6, 12, core_hours=1, seeds=10, seeds_for="a small effect")}
        self.assertRegex(page._to_run({"few": {"made": made}}, all_of_them, 2400), r"\| Few \(`few`\) +\| optional: 10 seeds, for a small effect +\| +11 \|")
        found = page.to_run({"few": {"made": made}}, all_of_them, 2400)
        self.assertEqual((page.fitting(found, 100, 3), page.fitting(found, 100, 10)), ([], ["few"]))  # 11 core-hours
        self.assertEqual(page.to_run({"few": {"made": made | {"seeds": 10}}}, all_of_them, 2400), [])
        older, = page.to_run({"few": {"made": made | {"older": "more"}}}, all_of_them, 2400)
        self.assertEqual((older.seeds, round(older.core_hours, 6)), (3, 3.3))


class Options(unittest.TestCase):
    def given(self, *words: str):
        with mock.patch.object(sys, "argv", ["run.sh", *words]):
            return main.arguments()

    def test_refused(self):
        for words, message in ((["next"], "next needs --hours"), (["mohd", "--hours", "1"], "--hours is for next only, not for mohd"),
                               (["next", "--hours", "0"], "--hours 0: must be above 0"), (["next", "mohd", "--hours", "1"], "next must be the only name"),
                               (["next", "--hours", "1", "--quick"], "without --minutes, --quick and --first-seed"),
                               (["next", "--hours", "9", "--seeds", "2"], "--seeds 2: next needs at least 3"), (["all", "mohd"], "all must be the only name")):
            with contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit) as stopped:
                self.given(*words)
            self.assertEqual(stopped.exception.code, 2)
            self.assertIn(message, errors.getvalue())

    def test_device(self):
        self.assertEqual(experiments.base(False)["run.device"], "cpu")
        self.assertEqual(experiments.base(True, "cuda")["run.device"], "cuda")
        self.assertEqual(main.command_of(self.given("mohd"), "mohd"), "scripts/papers/run.sh mohd --seeds 3")
        self.assertEqual(main.command_of(self.given("mohd", "--device", "cuda"), "mohd"), "scripts/papers/run.sh mohd --device cuda --seeds 3")
        with self.assertRaisesRegex(main.Failed, "^--device cuda: the times of muon, modse are those of one core; "):
            main.names_of(self.given("mohd", "muon", "modse", "--device", "cuda"), Path("pages"))
        self.assertNotIn("NVIDIA", machine.name_of("cpu"))
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}), self.assertRaisesRegex(main.Failed, "^--device cuda: nvidia-smi names no GPU"):
            machine.name_of("cuda")

    def test_names(self):
        out = Path("pages")
        self.assertEqual(main.names_of(self.given("mohd", "muon", "mohd"), out), ["mohd", "muon"])
        self.assertEqual(main.names_of(self.given("all"), out), list(experiments.all_of_them))
        first = page.ToRun(1, 3.0, "MoHD", "mohd", "defined, not run yet")
        more = page.ToRun(2, 10.0, "MoDSE", "modse", "optional: 10 seeds", 10)
        for found, words, names in (([first, more], ["next", "--hours", "3"], ["mohd"]), ([more], ["next", "--hours", "3"], []), ([], ["next", "--hours", "3"], []),
                                    ([first, more], ["next", "--hours", "20", "--seeds", "10"], ["mohd", "modse"])):
            with mock.patch.object(main.pages, "to_run", lambda *_: found), contextlib.redirect_stdout(io.StringIO()) as printed:
                self.assertEqual(main.names_of(self.given(*words), out), names)
            self.assertEqual(printed.getvalue(), f"to run: {', '.join(names) or 'none'}\n")
        with mock.patch.object(main.pages, "to_run", lambda *_: [first]), self.assertRaisesRegex(main.Failed, "mohd, takes about 6.0 core-hours with 6 seeds"):
            main.names_of(self.given("next", "--hours", "5", "--seeds", "6"), out)
        # Without anything to run, neither a program nor text is needed.
        with mock.patch.object(main, "names_of", lambda *_: []), mock.patch.object(sys, "argv", ["run.sh", "next", "--hours", "1", "--lyceum", "none"]):
            self.assertEqual(main.main(), 0)

    def test_stopped(self):
        def run(given, work, out, program, left, summarise):
            left.remove("mohd")
            raise main.Stopped

        for words, instead in ((["next", "--hours", "8"], ", but with muon modse instead of next --hours 8"), (["mohd", "muon", "modse"], "")):
            with mock.patch.multiple(main, run=run, names_of=lambda *_: ["mohd", "muon", "modse"], Program=mock.DEFAULT, path_of=mock.DEFAULT, signal=mock.DEFAULT), \
                    mock.patch.object(sys, "argv", ["run.sh", *words]), contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(main.main(), 75)
            self.assertEqual(errors.getvalue(), f"stopped; run the same command to resume{instead}\n")


if __name__ == "__main__":
    unittest.main()
