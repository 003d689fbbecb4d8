"""Confidence intervals of an effect over few test programs and few training runs.

Run j of a network has on program i the score mu + a_i + b_j + e_ij: each run is judged on every program, so
programs and runs are crossed (Owen, "The pigeonhole bootstrap", 2007). The effect is resampled with programs
drawn, with runs drawn, and with both; of the three variances follow those of the programs' and of the runs'
parts, as in an analysis of variance of two crossed factors.

The interval is as wide as Student's t says for that variance, with the degrees of freedom of Satterthwaite
(1946), and as skewed as the percentiles of the resamples of programs: of 6 or 8 programs, percentiles are too
near by (n - 1) / n of the variance and by the tails of a normal distribution (Hesterberg, "What teachers
should know about the bootstrap", 2015), and t alone has all its errors on one side where effects are
differences of geometric means.

`benchmarks/interval_coverage.py` measures how often the intervals contain the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from costbench.arrays import F64
from costbench.errors import DataError

CONFIDENCE = 0.95


class Interval(Protocol):
    """An effect with an interval for each probability that it may be wrong with.

    Attributes:
        estimate: the effect.
        of_runs: share of its variance that is that of training runs.
    """

    @property
    def estimate(self) -> float: ...

    @property
    def of_runs(self) -> float: ...

    def low(self, tail: float) -> float:
        """Returns the end that the truth is below with probability `tail`."""

    def high(self, tail: float) -> float:
        """Returns the end that the truth is above with probability `tail`."""


@dataclass(frozen=True)
class Redrawn:
    """An effect, and what it becomes with programs and runs drawn with replacement.

    Attributes:
        estimate: of all programs and runs.
        programs: with programs drawn and all runs, [resamples].
        runs: with all programs and runs drawn, [resamples].
        both: with the programs and the runs of the other two, [resamples].
        num_programs: drawn in a resample.
        num_runs: drawn in a resample.
    """

    estimate: float
    programs: F64
    runs: F64
    both: F64
    num_programs: int
    num_runs: int

    def __post_init__(self) -> None:
        if not self.programs.size or not self.programs.shape == self.runs.shape == self.both.shape:
            raise DataError("of different lengths", field="resamples", expected="equally many, at least 1")
        if self.num_programs < 1 or self.num_runs < 1:
            numbers = f"{self.num_programs} programs, {self.num_runs} runs"
            raise DataError(numbers, field="drawn", expected="at least one of each")

    def variances(self) -> Variances:
        """Returns the variances of the effect, of which there is no part of runs with one run.

        A bootstrap variance of n draws is (n - 1) / n of an unbiased one.
        """
        n, m = self.num_programs, self.num_runs
        # What the two drawn together do beyond what each does alone, in the same resamples.
        beyond = self.both - self.programs - self.runs
        programs, runs, interaction = (float(np.var(part)) for part in (self.programs, self.runs, beyond))
        of_programs, of_runs = (count / (count - 1) if count > 1 else 1.0 for count in (n, m))
        if m == 1:
            return Variances(programs * of_programs, 0.0, 0.0)
        return Variances(programs * of_programs, runs * of_runs, interaction * of_programs * of_runs)


@dataclass(frozen=True)
class Variances:
    """Variances of an effect, by what is drawn.

    Attributes:
        programs: with all runs; has the interaction in it.
        runs: with all programs; has the interaction in it as well.
        interaction: of programs and runs.
    """

    programs: float
    runs: float
    interaction: float

    @property
    def added(self) -> float:
        """Returns what runs add to the variance of programs: their own, without the interaction."""
        return max(0.0, self.runs - self.interaction)

    @property
    def total(self) -> float:
        """Returns the variance over programs and runs, the interaction in it once."""
        return self.programs + self.added

    def freedom(self, num_programs: int, num_runs: int) -> float:
        """Returns Satterthwaite's degrees of freedom of the total, 1 at the least."""
        n, m = max(1, num_programs - 1), max(1, num_runs - 1)
        squares = self.programs**2 / n
        if self.added > 0.0:
            squares += self.runs**2 / m + self.interaction**2 / (n * m)
        return max(1.0, self.total**2 / squares) if squares > 0.0 else 1.0


@dataclass(frozen=True)
class StudentInterval:
    """An effect whose error has Student's t distribution, of a scale of its own on either side.

    Attributes:
        estimate: the effect.
        below: standard error towards lower values.
        above: standard error towards higher values.
        freedom: degrees of freedom.
        of_runs: share of the variance that is that of training runs.
    """

    estimate: float
    below: float
    above: float
    freedom: float
    of_runs: float = 0.0

    def low(self, tail: float) -> float:
        """Returns the lower end, `below` times the t quantile under the effect."""
        return self.estimate - self.below * student(tail, self.freedom)

    def high(self, tail: float) -> float:
        """Returns the upper end."""
        return self.estimate + self.above * student(tail, self.freedom)


def small_sample_interval(redrawn: Redrawn) -> StudentInterval:
    """Returns the interval of an effect over programs and runs, as the module's description says.

    The distances of the 2.5% and 97.5% percentiles of the resamples of programs from the effect give the
    ratio of the standard errors on both sides, whose mean is the root of the variance.
    """
    tail, estimate = (1.0 - CONFIDENCE) / 2.0, redrawn.estimate
    variances = redrawn.variances()
    freedom = variances.freedom(redrawn.num_programs, redrawn.num_runs)
    error = float(np.sqrt(variances.total))
    if error == 0.0:
        return StudentInterval(estimate, 0.0, 0.0, freedom)
    low, high = np.quantile(redrawn.programs, [tail, 1.0 - tail])
    below, above = max(0.0, estimate - float(low)), max(0.0, float(high) - estimate)
    # What runs add is not skewed: few of them tell nothing of that.
    skewness = (below - above) / (below + above) if below + above > 0.0 else 0.0
    skewness *= variances.programs / variances.total
    ends = (error * (1.0 + skewness), error * (1.0 - skewness))
    return StudentInterval(estimate, *ends, freedom, variances.added / variances.total)


def student(tail: float, freedom: float) -> float:
    """Returns the value that Student's t exceeds with probability `tail`."""
    from scipy.special import stdtrit

    return float(-stdtrit(freedom, tail))


@dataclass(frozen=True)
class ShareInterval:
    """A share of programs, with the exact interval of Clopper and Pearson (1934) at the least.

    Resamples of programs that all agree have no width; the binomial distribution knows that six of six may
    be chance. Ties count half, so that the number of successes need not be whole.

    Attributes:
        share: of the programs, with the width that draws of programs and runs give it.
        n: programs.
    """

    share: StudentInterval
    n: int

    @property
    def estimate(self) -> float:
        """Returns the share."""
        return self.share.estimate

    @property
    def of_runs(self) -> float:
        """Returns the share of the variance that is that of training runs."""
        return self.share.of_runs

    def low(self, tail: float) -> float:
        """Returns the lower of the two lower ends, at least 0."""
        from scipy.special import betaincinv

        won = self.estimate * self.n
        exact = float(betaincinv(won, self.n - won + 1.0, tail)) if won > 0.0 else 0.0
        return max(0.0, min(exact, self.share.low(tail)))

    def high(self, tail: float) -> float:
        """Returns the higher of the two upper ends, at most 1."""
        from scipy.special import betaincinv

        won = self.estimate * self.n
        exact = float(betaincinv(won + 1.0, self.n - won, 1.0 - tail)) if won < self.n else 1.0
        return min(1.0, max(exact, self.share.high(tail)))


@dataclass(frozen=True)
class LargestInterval:
    """The largest of the values of given programs, each known up to the luck of its runs.

    Programs are not drawn: resamples that lack the best program say nothing about it. With standard errors
    of the logarithms pooled over the programs, the largest is at least the largest of the lower ends, which
    all hold together at a share of 1 / n of the error (Bonferroni), and at most the largest upper end.

    Attributes:
        logs: logarithm of each program's value, mean over runs, [num_programs].
        error: standard error of each logarithm, pooled over programs.
        freedom: degrees of freedom of `error`.
        shown: makes of a logarithm what is reported; it must not fall.
    """

    logs: F64
    error: float
    freedom: float
    shown: Callable[[float], float]

    @property
    def estimate(self) -> float:
        """Returns the largest value."""
        return self.shown(float(self.logs.max()))

    @property
    def of_runs(self) -> float:
        """Returns 1: the programs are given."""
        return 1.0

    def low(self, tail: float) -> float:
        """Returns the lower end."""
        return self.shown(self.logs.max() - self.error * student(tail / len(self.logs), self.freedom))

    def high(self, tail: float) -> float:
        """Returns the upper end."""
        return self.shown(self.logs.max() + self.error * student(tail, self.freedom))


def smallest_tail(decided: Callable[[float], bool]) -> float:
    """Returns the p-value of a two-sided decision: twice the least tail at which intervals still decide.

    Args:
        decided: whether the interval with a tail decides; once it does, all larger tails do.
    """
    least, most = np.log(0.5 * LEAST_P), np.log(0.5)
    if decided(float(np.exp(least))):
        return LEAST_P
    for _ in range(50):
        middle = 0.5 * (least + most)
        least, most = (least, middle) if decided(float(np.exp(middle))) else (middle, most)
    return 2.0 * float(np.exp(most))


LEAST_P = 1e-6
"""Where p-values end: no count of resamples or programs here tells of rarer events."""


def false_discovery_rates(p_values: Sequence[float], *, dependent: bool = False) -> tuple[float, ...]:
    """Returns q-values: the least rate of false discoveries at which each test still counts as one.

    Args:
        p_values: of all tests that were made.
        dependent: whether to allow for any dependence between tests (Benjamini and Yekutieli, 2001); else
            the procedure of Benjamini and Hochberg (1995), for independent or positively dependent ones.
    """
    from scipy.stats import false_discovery_control

    if not p_values:
        return ()
    found = false_discovery_control(np.asarray(p_values), method="by" if dependent else "bh")
    return tuple(float(value) for value in found)
