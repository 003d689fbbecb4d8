"""Confidence intervals of the difference between two models, by a paired bootstrap over test programs.

Both models are judged on the same programs, so programs are drawn with replacement and both values of a
drawn program go together: what is common to a program (hard or easy) cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from costbench.arrays import F64
from costbench.errors import DataError
from costbench.metrics.checks import not_empty, paired
from costbench.metrics.small_samples import Redrawn, small_sample_interval

Drawn = Literal["both", "programs", "seeds"]
"""What a resample draws."""


@dataclass(frozen=True)
class BootstrapInterval:
    """A mean difference and its confidence interval.

    Attributes:
        difference: mean over programs of left - right.
        low: lower end of the interval.
        high: upper end of the interval.
        share_negative: share of resamples in which left is below right, ties counting half.
    """

    difference: float
    low: float
    high: float
    share_negative: float


def paired_bootstrap(
    left: npt.ArrayLike,
    right: npt.ArrayLike,
    generator: np.random.Generator,
    *,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> BootstrapInterval:
    """Returns the mean of left - right with its bootstrap interval over programs.

    The interval is corrected for few programs (`metrics.small_samples`).

    Args:
        left: one value a program, [num_programs].
        right: the other model's values of the same programs, [num_programs].
        generator: a named stream; the same one gives the same interval.
        resamples: how often programs are drawn.
        confidence: probability that the interval contains the truth.

    Raises:
        DataError: for arrays that are empty, of different lengths or not finite, `resamples < 1`, or a
            confidence outside (0, 1).
    """
    first, second = paired(left, right, ("left", "right"))
    not_empty(first, "left")
    if resamples < 1:
        raise DataError(f"{resamples}", field="resamples", expected="at least 1")
    if not 0.0 < confidence < 1.0:
        raise DataError(f"{confidence}", field="confidence", expected="a number between 0 and 1")
    difference = first - second
    means = _resampled_means(difference, generator, resamples)
    tail, still = (1.0 - confidence) / 2.0, np.full(resamples, difference.mean())
    found = small_sample_interval(Redrawn(float(difference.mean()), means, still, means, len(difference), 1))
    share = float(np.mean((means < 0.0) + 0.5 * (means == 0.0)))
    return BootstrapInterval(found.estimate, found.low(tail), found.high(tail), share)


def _resampled_means(values: F64, generator: np.random.Generator, resamples: int) -> F64:
    n = len(values)
    # A mean depends only on how often each program is drawn, so a resample is n counts instead of n draws.
    counts = generator.multinomial(n, np.full(n, 1.0 / n), size=resamples)
    means: F64 = counts @ values / n
    return means


class CrossedDraws:
    """Resamples of programs and of training seeds, shared by all results that are compared.

    A result depends on the test program and on the seed of the training run, and each run is judged on every
    program, so the two are crossed: a resample draws programs and, independently, seeds, both with
    replacement (the "pigeonhole" bootstrap of Owen, 2007). Arrays over the same programs get the same draws
    of programs, and arrays over the same seeds the same draws of seeds: both sides of a comparison stay
    paired.
    """

    def __init__(self, generator: np.random.Generator, resamples: int = 10_000) -> None:
        """Draws come from `generator` when first needed: equal calls in equal order give equal draws.

        Raises:
            DataError: if `resamples < 1`.
        """
        if resamples < 1:
            raise DataError(f"{resamples}", field="resamples", expected="at least 1")
        self._generator = generator
        self._resamples = resamples
        self._programs: dict[tuple[str, ...], npt.NDArray[np.intp]] = {}
        self._shares: dict[tuple[int, ...], F64] = {}

    def deviation_scales(self, num_seeds: int) -> F64:
        """Returns true standard deviations of runs over that of `num_seeds`, [resamples].

        sqrt((m - 1) / chi-square(m - 1)) of m normal values; new draws at each call.

        Raises:
            DataError: with fewer than two seeds.
        """
        if num_seeds < 2:
            raise DataError(f"{num_seeds}", field="seeds", expected="at least 2")
        freedom = num_seeds - 1
        scales: F64 = np.sqrt(freedom / self._generator.chisquare(freedom, self._resamples))
        return scales

    def resampled(
        self, values: F64, programs: tuple[str, ...], seeds: tuple[int, ...], drawn: Drawn = "both"
    ) -> F64:
        """Values of the drawn programs, each the mean over the drawn seeds, [resamples, num_programs].

        Args:
            values: finite, [num_programs, num_seeds].
            programs: what the rows of `values` are.
            seeds: what the columns of `values` are.
            drawn: with `programs`, values are means over all seeds; with `seeds`, those of all programs.

        Raises:
            DataError: if the shape of `values` is another, or there is nothing in it.
        """
        if values.shape != (len(programs), len(seeds)) or not values.size:
            expected = f"[{len(programs)}, {len(seeds)}], both above zero"
            raise DataError(f"shape {list(values.shape)}", field="values", expected=expected)
        if programs not in self._programs:
            size = (self._resamples, len(programs))
            self._programs[programs] = self._generator.integers(len(programs), size=size)
        if seeds not in self._shares:
            uniform = np.full(len(seeds), 1.0 / len(seeds))
            counts = self._generator.multinomial(len(seeds), uniform, size=self._resamples)
            self._shares[seeds] = counts / len(seeds)
        if drawn == "programs":
            drawn_values: F64 = values.mean(axis=1)[self._programs[programs]]
            return drawn_values
        means: F64 = self._shares[seeds] @ values.T
        return means if drawn == "seeds" else np.take_along_axis(means, self._programs[programs], axis=1)
