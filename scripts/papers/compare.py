"""Differences between models over seeds, and what may be said of them.

Seed by seed, two models have read the same data in the same order, so differences are paired. A claim holds where the 95 %
confidence interval of the mean difference (Student's t, n − 1 degrees of freedom) is on its side of zero.
"""
import math
import re
import statistics
from dataclasses import dataclass

# Student's t, two-sided 95 %, by degrees of freedom: up to ten seeds.
_t_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def t_95(degrees: int) -> float:
    return _t_95[degrees]


def minus(a, b) -> list[float]:
    """Seed by seed."""
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
        """Of a − b, seed by seed."""
        values = minus(a, b)
        if len(values) < 2:
            return Difference(values[0], math.inf)
        return Difference(statistics.fmean(values), t_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values)))

    def __str__(self) -> str:
        return f"{self.mean:+.4f}" + (f" ± {self.half_width:.4f}" if math.isfinite(self.half_width) else " (one seed)")

    def verdict(self) -> str:
        """Of the claim that the difference is above zero."""
        if self.mean > self.half_width:
            return "reproduced"
        return "opposite" if self.mean < -self.half_width else "not seen"


@dataclass(frozen=True)
class Claim:
    text: str
    paper: str  # the paper's figures for it
    ours: str
    verdict: str  # reproduced, not seen, opposite
    seeds: list[float]  # the difference of each

    @staticmethod
    def above(text: str, paper: str, a, b, unit: str = "nats") -> "Claim":
        """That a is above b, seed by seed."""
        difference = Difference.of(a, b)
        return Claim(text, paper, f"{difference} {unit}".strip(), difference.verdict(), minus(a, b))

    def same_as(self, other: "Claim") -> bool:
        """Whether it claims the same, with figures that runs may change."""
        without_figures = lambda text: re.sub(r"[\d.]+", "", text)
        return without_figures(self.text) == without_figures(other.text)

    def sign_changes(self) -> bool:
        """Whether one seed says otherwise than another."""
        return min(self.seeds) < 0 < max(self.seeds)


def smallest_visible(values) -> float:
    """The smallest mean difference that n seeds would show, were two models' seeds as far apart as these and not paired:
    t · √2 · s / √n."""
    values = list(values)
    if len(values) < 2:
        return math.inf
    return t_95(len(values) - 1) * math.sqrt(2) * statistics.stdev(values) / math.sqrt(len(values))
