"""Is a difference between two models more than the choice of test programs? A paired bootstrap.

Both models are judged on the same programs, so programs are drawn with replacement and both values of a
drawn program go together: what is common to a program (hard or easy) cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.errors import DataError
from costbench.metrics.checks import Floats, not_empty, paired


@dataclass(frozen=True)
class BootstrapInterval:
    """A mean difference and how sure it is.

    Attributes:
        difference: mean over programs of left - right.
        low: lower end of the percentile interval.
        high: upper end of the percentile interval.
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
    """Percentile bootstrap over programs of mean(left - right).

    Args:
        left: one value a program, [num_programs].
        right: the other model's values of the same programs, [num_programs].
        generator: a named stream; the same one gives the same interval.
        resamples: how often programs are drawn.
        confidence: probability mass between `low` and `high`.

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
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    share = float(np.mean((means < 0.0) + 0.5 * (means == 0.0)))
    return BootstrapInterval(float(difference.mean()), float(low), float(high), share)


def _resampled_means(values: Floats, generator: np.random.Generator, resamples: int) -> Floats:
    n = len(values)
    # How often each program is drawn says all that the draws say, in n numbers a resample.
    counts = generator.multinomial(n, np.full(n, 1.0 / n), size=resamples)
    means: Floats = counts @ values / n
    return means
