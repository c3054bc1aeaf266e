#!/usr/bin/env python3
"""Tests scripts/papers/compare.py: Student's t beyond its table, and the seeds that a claim needs."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/papers"))
from compare import Claim, seeds_to_see, t_95  # noqa: E402


def claim(paper: str) -> Claim:
    return Claim("a is above b", paper, "", "not seen", [0.0, 0.0])


class Power(unittest.TestCase):
    def test_students_t(self):
        for degrees, expected in ((10, 2.228), (20, 2.086), (60, 2.000), (999, 1.962)):
            self.assertAlmostEqual(t_95(degrees), expected, delta=0.003)

    def test_seeds_for_a_power_of_four_fifths(self):  # sample sizes of paired t-tests by effect size, from tables of power
        for effect, seeds in ((1.0, 10), (0.5, 34), (0.2, 199)):
            self.assertAlmostEqual(seeds_to_see(effect, 1.0), seeds, delta=1)
            self.assertEqual(seeds_to_see(-effect, 1.0), seeds_to_see(effect, 1.0))
        self.assertEqual(seeds_to_see(1.0, 0.0), 2)
        self.assertIsNone(seeds_to_see(0.0, 1.0))

    def test_effects_that_a_paper_prints(self):
        self.assertEqual(claim("+0.124").effect_of_paper(), 0.124)
        self.assertEqual(claim("+0.078 (perplexity 11.08 against 10.25)").effect_of_paper(), 0.078)
        self.assertAlmostEqual(claim("perplexity 9.56 against 9.50 (1B model)").effect_of_paper(), 0.0063, places=4)
        for other in ("Figure 3", "+9.6 points of accuracy", "BPC 1.1623 against 1.1486", "0.58 nats, of the seed that chose"):
            self.assertIsNone(claim(other).effect_of_paper(), other)

    def test_repetitions(self):
        of = lambda text: Claim(text, "", "", "not seen", [0.0, 0.0])
        two, nine, least = of("high in 2 tokens in a row"), of("high in 9 tokens in a row"), of("the least of 7 steps, from 14 to 16")
        self.assertEqual(two.repetitions([nine, two, least]), [two])
        self.assertEqual(least.repetitions([two, of("the least of 7 steps, from 2 to 4")]), [of("the least of 7 steps, from 2 to 4")])


if __name__ == "__main__":
    unittest.main()
