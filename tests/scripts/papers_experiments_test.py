#!/usr/bin/env python3
"""Tests parts of the experiments in scripts/papers: names and descriptions of manual pages and questions about them, the reference of
activation flow, parameters of adapters, the list of what is to run, and models that several experiments share."""
import importlib.util
import os
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

REPOSITORY = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("matplotlib") is None:
    python = os.environ.get("LYCEUM_PYTHON", str(REPOSITORY / ".venv/bin/python"))
    os.execv(python, [python, *sys.argv])
sys.path.insert(0, str(REPOSITORY / "scripts/papers"))
import chats  # noqa: E402
import deepseekmoe  # noqa: E402
import experiments  # noqa: E402
import flow  # noqa: E402
import moduleformer_more  # noqa: E402
import mohd_more  # noqa: E402
import numpy as np  # noqa: E402
import page  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402


class PaperLab:
    """Stands in for a lab whose models have the losses of a paper, times `sign`. A pair of losses is that on the new domain, and
    that on others."""

    def __init__(self, losses: dict[str, float | tuple[float, float]], sign: int = 1):
        self.of_paper, self.sign, self.seeds, self.trained = losses, sign, [1, 2, 3], []
        self.base, self.steps = experiments.base(quick=False), 2400
        self.corpus = SimpleNamespace(names=["headers", "python"], train=lambda *names: " ".join(names), valid=lambda *names: " ".join(names))

    def train(self, models):
        self.trained += models

    def losses(self, models, *arguments):
        def loss(model):
            of = self.of_paper[model.name]
            return of if not isinstance(of, tuple) else of[0 if arguments == ("--data.valid=python",) else 1]
        return {model.name: [self.sign * loss(model) + seed / 1e6 for seed in self.seeds] for model in models}

    def scores(self, models, *names):
        return {model.name: [50.0] * len(self.seeds) for model in models}

    def parameters(self, model):
        return {"total": 10_000_000, "activated": 5_000_000}

    def metrics(self, model, seed):
        return [{"step": 1, "valid_loss": self.of_paper[model.name], "step_ms": 1.0}]


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


class Claims(unittest.TestCase):
    """With the figures of the papers all claims are reproduced, and with the negated ones their opposites are."""

    def check(self, run, losses: dict[str, float]):
        for sign, verdict in ((1, "reproduced"), (-1, "opposite")):
            lab = PaperLab(losses, sign)
            made = run(lab)
            self.assertEqual([claim for claim in made.claims if claim.verdict != verdict], [])
            self.assertEqual({model.name for model in made.models}, {model.name for model in lab.trained})
            for figure in made.figures.values():
                plt.close(figure)

    def test_larger_models(self):
        self.check(deepseekmoe.larger, {name: float(loss) for name, loss in deepseekmoe.pile_loss.items()})

    def test_ratios(self):
        self.check(deepseekmoe.ratio, {name: float(loss) for name, loss in deepseekmoe.pile_loss.items()})

    def test_sizes(self):
        self.check(mohd_more.sizes, {name: -accuracy for name, accuracy in mohd_more.averages.items()})

    def test_decoupled_halves(self):
        perplexity = {"llama": 11.61} | {mohd_more.by_shares[each].name: value for each, value in mohd_more.table_5.items()}
        self.check(mohd_more.decoupled, perplexity)


    def test_continual_learning(self):
        # Accuracies in Vietnamese and English. Table 5 does not have models with all weights, the last two of these.
        accuracies = {"dense-gelu": (58.9, 78.6), "moduleformer-mi": (58.4, 80.9),
                      "dense-joint-whole": (66.0, 75.1), "moduleformer-joint-whole": (67.9, 80.1), "dense-joint-lora-7": (62.0, 74.4),
                      "dense-joint-lora-12": (62.6, 74.9), "moduleformer-joint-new": (66.2, 79.4),
                      "dense-new-lora-1": (57.5, 69.3), "dense-new-lora-6-decay": (57.8, 69.9), "dense-new-lora-6": (59.8, 70.3),
                      "moduleformer-new-0": (68.0, 74.5), "moduleformer-new-0.25": (64.8, 76.0), "moduleformer-new-1": (63.0, 78.7),
                      "moduleformer-new-attention": (68.0, 74.5), "dense-new-whole": (66.0, 70.0), "moduleformer-new-whole": (68.0, 75.0)}
        self.check(moduleformer_more.continual, {name: (-new, -old) for name, (new, old) in accuracies.items()})


class Experiments(unittest.TestCase):
    def test_shares_of_normal_numbers(self):
        from statistics import NormalDist
        squares = np.sort([NormalDist().inv_cdf((i + 0.5) / 200_000) ** 2 for i in range(200_000)])[::-1]
        for part in (0.1, 0.25, 0.5, 1.0):
            self.assertAlmostEqual(flow.share_of_normal(part), squares[:round(part * len(squares))].sum() / squares.sum(), delta=1e-4)

    def test_interpolated_shares_of_dimensions(self):
        layer = {"top_share": np.array([0.5, 0.75, 0.9, 1.0])}
        for part, share in ((0.25, 0.5), (0.5, 0.75), (0.375, 0.625), (0.125, 0.25), (1.0, 1.0)):
            self.assertAlmostEqual(flow.top_share(layer, part), share)

    def test_parameters_of_adapters(self):
        source = moduleformer_more.Model("dense", {"model.ffn_hidden": 10})
        model = moduleformer_more.adapted("adapted", {}, source, rank=3, weight_decay=0.0)
        # Per layer, four matrices [8, 8] and two of 8 and 10 rows or columns, each with 3 · (rows + columns).
        self.assertEqual(moduleformer_more.lora_parameters(model, layers=2, hidden=8), 2 * 3 * (4 * 16 + 2 * 18))

    def test_models_of_one_name_are_one_model(self):
        seen = {}
        for name, experiment in experiments.all_of_them.items():
            for model in experiment.models:
                self.assertEqual(seen.setdefault(model.name, model.keys), model.keys, f"{name}: {model.name}")

    def test_what_is_to_run(self):
        made = {"seconds_of_training": 7200, "seeds": 2, "steps": 1200}
        pages = {"new": {"made": made}, "old": {"made": made | {"older": "two more models"}}}
        text = page._to_run(pages, {"new": "New", "old": "Old", "none": "None yet"}, {"new": 0, "old": 0, "none": 1.5}, 2400)
        self.assertIn("10 in all", text)  # old: 1 h per seed with 1,200 steps, so 6 h; none: 4.5 h
        self.assertNotIn("New", text)
        self.assertRegex(text, r"Old \(`old`\) +\| +the script has changed: two more models \| +6\.0 \| +10\.5 \|")
        self.assertRegex(text, r"None yet \(`none`\) +\| +defined, not run yet \| +4\.5 \| +4\.5 \|")
        pages["old"]["made"]["note"] = "other gates"
        noted = page._to_run(pages, {"new": "New", "old": "Old", "none": "None yet"}, {"new": 0, "old": 0, "none": 1.5}, 2400)
        self.assertLess(noted.index("Old"), noted.index("None yet"))
        self.assertEqual(page._to_run({"new": pages["new"]}, {"new": "New"}, {"new": 0}, 2400), "")


if __name__ == "__main__":
    unittest.main()
