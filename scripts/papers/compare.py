"""Differences between models over seeds, and verdicts on claims about them.

With the same seed, two models have read the same data in the same order, so differences are paired. A claim is reproduced if
the 95 % confidence interval of the mean difference (Student's t, n − 1 degrees of freedom) is on its side of zero.
"""
import math
import re
import statistics
from dataclasses import dataclass

# Degrees of freedom -> Student's t, two-sided 95 %, for up to ten seeds.
_t_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def t_95(degrees: int) -> float:
    if degrees in _t_95:
        return _t_95[degrees]
    z, v = 1.959964, degrees  # expansion in 1/v; 0.003 too small at 10
    return z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)


def seeds_to_see(effect: float, deviation: float, most: int = 1000) -> int | None:
    """Returns the number of seeds with which a claim is reproduced in four of five experiments, if the mean difference is
    `effect` and differences have this standard deviation: the least n with (t + z) · deviation / √n <= effect, z = 0.842. None if
    that is more than `most`."""
    return next((n for n in range(2, most + 1) if (t_95(n - 1) + 0.842) * deviation <= abs(effect) * math.sqrt(n)), None)


def minus(a, b) -> list[float]:
    """Returns the differences a − b, one per seed."""
    return [x - y for x, y in zip(a, b, strict=True)]


@dataclass(frozen=True)
class Spread:
    mean: float
    deviation: float  # standard deviation over seeds; NaN with one

    @staticmethod
    def of(values) -> "Spread":
        values = list(values)
        return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan)

    def __str__(self) -> str:
        return f"{self.mean:.4f}" + ("" if math.isnan(self.deviation) else f" ± {self.deviation:.4f}")


@dataclass(frozen=True)
class Difference:
    mean: float
    half_width: float  # of the 95 % interval; infinite with one seed

    @staticmethod
    def of(a, b) -> "Difference":
        """Returns the mean of a − b over seeds, with its confidence interval."""
        values = minus(a, b)
        if len(values) < 2:
            return Difference(values[0], math.inf)
        return Difference(statistics.fmean(values), t_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values)))

    def __str__(self) -> str:
        return f"{self.mean:+.4f}" + (f" ± {self.half_width:.4f}" if math.isfinite(self.half_width) else " (one seed)")

    def verdict(self) -> str:
        """Returns the verdict on the claim that the difference is above zero."""
        if self.mean > self.half_width:
            return "reproduced"
        return "opposite" if self.mean < -self.half_width else "not seen"


@dataclass(frozen=True)
class Claim:
    text: str
    paper: str  # the figures of the paper
    ours: str
    verdict: str  # reproduced, not seen, opposite
    seeds: list[float]  # the difference in each seed

    @staticmethod
    def above(text: str, paper: str, a, b, unit: str = "nats") -> "Claim":
        """Returns the claim that a is above b. a, b: one value per seed."""
        difference = Difference.of(a, b)
        return Claim(text, paper, f"{difference} {unit}".strip(), difference.verdict(), minus(a, b))

    def same_as(self, other: "Claim") -> bool:
        """Returns True if the texts of both claims agree except for figures, which may differ between runs."""
        without_figures = lambda text: re.sub(r"[\d.]+", "", text)
        return without_figures(self.text) == without_figures(other.text)

    def repetitions(self, claims: list["Claim"]) -> list["Claim"]:
        """Returns those of the claims with the same text, or, if there are none, with a text that differs in figures only."""
        return [claim for claim in claims if claim.text == self.text] or [claim for claim in claims if self.same_as(claim)]

    def effect_of_paper(self) -> float | None:
        """Returns the paper's difference in nats, where it prints one or two perplexities."""
        if found := re.match(r"([+−-]\d+\.\d+)(?: \(perplexity|$)", self.paper):
            return float(found[1].replace("−", "-"))
        if found := re.match(r"perplexity (\d+\.\d+) against (\d+\.\d+)", self.paper):
            return math.log(float(found[1]) / float(found[2]))
        return None

    def sign_changes(self) -> bool:
        """Returns True if the difference is positive in one seed and negative in another."""
        return min(self.seeds) < 0 < max(self.seeds)


def smallest_visible(values) -> float:
    """Returns the smallest significant mean difference of two models with n seeds each, if both have the standard deviation s
    of these values and are not paired: t · √2 · s / √n."""
    values = list(values)
    if len(values) < 2:
        return math.inf
    return t_95(len(values) - 1) * math.sqrt(2) * statistics.stdev(values) / math.sqrt(len(values))
