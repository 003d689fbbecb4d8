"""Confidence intervals of differences between models, over few test programs and few training runs.

Both models are judged on the same programs, so programs are drawn with replacement and both values of a
drawn program go together (a paired bootstrap): what is common to a program (hard or easy) cancels.

Run j of a network has on program i the score mu + a_i + b_j + e_ij: each run is judged on every program, so
programs and runs are crossed (Owen, "The pigeonhole bootstrap", 2007). The effect is resampled with programs
drawn, with runs drawn, and with both; of the three variances follow those of the programs' and of the runs'
parts, as in an analysis of variance of two crossed factors.

The interval is as wide as Student's t says for that variance, with the degrees of freedom of Satterthwaite
(1946), and as skewed as the percentiles of the resamples of programs: of 6 or 8 programs, percentiles are too
near by (n - 1) / n of the variance and by the tails of a normal distribution (Hesterberg, "What teachers
should know about the bootstrap", 2015), and t alone has all its errors on one side where effects are
differences of geometric means.

Programs of one application (four batch sizes of a ResNet) are alike, so that they tell less than as many
independent ones. With clusters, whole applications are drawn, each with all of its programs; their number
takes the place of that of programs in the variance and in the degrees of freedom (a cluster bootstrap).

`benchmarks/interval_coverage.py` measures how often the intervals contain the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from costbench.arrays import F64
from costbench.errors import DataError
from costbench.metrics.checks import aligned, not_empty

CONFIDENCE = 0.95
LEAST_P = 1e-6
"""Smallest p-value: no count of resamples or programs here tells of rarer events."""
ResampledFactor = Literal["both", "programs", "seeds"]
"""What a resample draws."""


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
class ResampledEffect:
    """An effect, and what it becomes with programs and runs drawn with replacement.

    Attributes:
        estimate: effect over all programs and runs.
        programs: effects over drawn programs and all runs, [resamples].
        runs: effects over all programs and drawn runs, [resamples].
        both: effects over the programs and the runs that the other two draw, [resamples].
        num_programs: number of programs drawn in a resample.
        num_runs: number of runs drawn in a resample.
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
        programs: variance over drawn programs with all runs, the interaction in it.
        runs: variance over drawn runs with all programs, the interaction in it as well.
        interaction: variance of the interaction of programs and runs.
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


def small_sample_interval(effect: ResampledEffect) -> StudentInterval:
    """Returns the interval of an effect over programs and runs, as the module's description says.

    The distances of the 2.5% and 97.5% percentiles of the resamples of programs from the effect give the
    ratio of the standard errors on both sides, whose mean is the root of the variance.
    """
    tail, estimate = (1.0 - CONFIDENCE) / 2.0, effect.estimate
    variances = effect.variances()
    freedom = variances.freedom(effect.num_programs, effect.num_runs)
    error = float(np.sqrt(variances.total))
    if error == 0.0:
        return StudentInterval(estimate, 0.0, 0.0, freedom)
    low, high = np.quantile(effect.programs, [tail, 1.0 - tail])
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
        share: share of the programs, with the width that draws of programs and runs give it.
        n: number of programs.
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
class IntervalOfLog:
    """The interval of a logarithm, shown as what it is the logarithm of: a factor has none below 0.

    Attributes:
        log: logarithm with its interval.
        shown: non-decreasing function from a logarithm to the value that is reported.
    """

    log: Interval
    shown: Callable[[float], float]

    @property
    def estimate(self) -> float:
        """Returns the effect."""
        return self.shown(self.log.estimate)

    @property
    def of_runs(self) -> float:
        """Returns the share of the logarithm's variance that is that of training runs."""
        return self.log.of_runs

    def low(self, tail: float) -> float:
        """Returns the lower end."""
        return self.shown(self.log.low(tail))

    def high(self, tail: float) -> float:
        """Returns the upper end."""
        return self.shown(self.log.high(tail))


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
    """

    logs: F64
    error: float
    freedom: float

    @property
    def estimate(self) -> float:
        """Returns the largest logarithm."""
        return float(self.logs.max())

    @property
    def of_runs(self) -> float:
        """Returns 1: the programs are given."""
        return 1.0

    def low(self, tail: float) -> float:
        """Returns the lower end."""
        return self.estimate - self.error * student(tail / len(self.logs), self.freedom)

    def high(self, tail: float) -> float:
        """Returns the upper end."""
        return self.estimate + self.error * student(tail, self.freedom)


@dataclass(frozen=True)
class PercentileInterval:
    """An effect of runs alone, whose distribution is known from draws.

    Attributes:
        estimate: the effect.
        drawn: effects that may be the true one, ascending, [draws].
    """

    estimate: float
    drawn: F64

    @property
    def of_runs(self) -> float:
        """Returns 1: it is runs that differ."""
        return 1.0

    def low(self, tail: float) -> float:
        """Returns the percentile; -inf where the draws are too few to tell of events so rare."""
        return float(np.quantile(self.drawn, tail)) if tail * len(self.drawn) >= 1.0 else -np.inf

    def high(self, tail: float) -> float:
        """Returns the percentile from above."""
        return float(np.quantile(self.drawn, 1.0 - tail)) if tail * len(self.drawn) >= 1.0 else np.inf


@dataclass(frozen=True)
class WiderInterval:
    """Of two intervals of one effect the wider one, at 95%: the more cautious view of what is independent."""

    first: Interval
    second: Interval

    @property
    def wider(self) -> Interval:
        """Returns the wider of both, the first of equals."""
        tail = (1.0 - CONFIDENCE) / 2.0
        return max((self.first, self.second), key=lambda one: one.high(tail) - one.low(tail))

    @property
    def estimate(self) -> float:
        """Returns the effect."""
        return self.first.estimate

    @property
    def of_runs(self) -> float:
        """Returns the share of the wider one's variance that is that of training runs."""
        return self.wider.of_runs

    def low(self, tail: float) -> float:
        """Returns the lower end of the wider one."""
        return self.wider.low(tail)

    def high(self, tail: float) -> float:
        """Returns the upper end of the wider one."""
        return self.wider.high(tail)


def smallest_tail(decided: Callable[[float], bool]) -> float:
    """Returns the p-value of a two-sided decision: twice the least tail at which intervals still decide.

    Args:
        decided: whether the interval with a tail decides; once it does, all larger tails do.
    """
    low, high = np.log(0.5 * LEAST_P), np.log(0.5)
    if decided(float(np.exp(low))):
        return LEAST_P
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if decided(float(np.exp(middle))) else (middle, high)
    return 2.0 * float(np.exp(high))


def false_discovery_rates(p_values: Sequence[float]) -> tuple[float, ...]:
    """Returns q-values: the least rate of false discoveries at which each test still counts as one.

    The procedure of Benjamini and Hochberg (1995), for independent or positively dependent tests.

    Args:
        p_values: p-values of all tests that were made.
    """
    from scipy.stats import false_discovery_control

    if not p_values:
        return ()
    return tuple(false_discovery_control(np.asarray(p_values)).tolist())


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

    The interval is corrected for few programs (`small_sample_interval`).

    Args:
        left: one value a program, [num_programs].
        right: the other model's values of the same programs, [num_programs].
        generator: named stream; the same one gives the same interval.
        resamples: number of times that programs are drawn.
        confidence: probability that the interval contains the truth.

    Raises:
        DataError: for arrays that are empty, of different lengths or not finite, `resamples < 1`, or a
            confidence outside (0, 1).
    """
    first, second = aligned(left=left, right=right)
    not_empty(first, "left")
    if resamples < 1:
        raise DataError(f"{resamples}", field="resamples", expected="at least 1")
    if not 0.0 < confidence < 1.0:
        raise DataError(f"{confidence}", field="confidence", expected="a number between 0 and 1")
    difference = first - second
    n = len(difference)
    # A mean depends only on how often each program is drawn, so a resample is n counts instead of n draws.
    counts = generator.multinomial(n, np.full(n, 1.0 / n), size=resamples)
    means: F64 = counts @ difference / n
    tail, fixed = (1.0 - confidence) / 2.0, np.full(resamples, difference.mean())
    interval = small_sample_interval(ResampledEffect(float(difference.mean()), means, fixed, means, n, 1))
    share = float(np.mean((means < 0.0) + 0.5 * (means == 0.0)))
    return BootstrapInterval(interval.estimate, interval.low(tail), interval.high(tail), share)


class CrossedDraws:
    """Resamples of programs and of training seeds, shared by all results that are compared.

    A result depends on the test program and on the seed of the training run, and each run is judged on every
    program, so the two are crossed: a resample draws programs and, independently, seeds, both with
    replacement (the "pigeonhole" bootstrap of Owen, 2007). Arrays over the same programs get the same draws
    of programs, and arrays over the same seeds the same draws of seeds: both sides of a comparison stay
    paired.
    """

    def __init__(
        self,
        generator: np.random.Generator,
        resamples: int = 10_000,
        clusters: Mapping[str, str] | None = None,
    ) -> None:
        """Draws come from `generator` when first needed: equal calls in equal order give equal draws.

        Args:
            generator: named stream.
            resamples: number of resamples.
            clusters: program -> application that it is drawn with; None where programs are drawn one by one.

        Raises:
            DataError: if `resamples < 1`.
        """
        if resamples < 1:
            raise DataError(f"{resamples}", field="resamples", expected="at least 1")
        self._generator = generator
        self._resamples = resamples
        self._clusters = clusters
        self._programs: dict[tuple[str, ...], npt.NDArray[np.intp]] = {}
        self._shares: dict[tuple[int, ...], F64] = {}

    def num_drawn(self, programs: Sequence[str]) -> int:
        """Returns how many independent draws a resample of these programs takes: programs, or clusters."""
        if self._clusters is None:
            return len(programs)
        return len({self._clusters[program] for program in programs})

    def _draw(self, programs: tuple[str, ...]) -> npt.NDArray[np.intp]:
        """Returns positions of drawn programs, [resamples, programs of the largest], -1 behind the last."""
        if self._clusters is None:
            return self._generator.integers(len(programs), size=(self._resamples, len(programs)))
        names = [self._clusters[program] for program in programs]
        positions = {name: [i for i, own in enumerate(names) if own == name] for name in sorted(set(names))}
        members = np.full((len(positions), max(map(len, positions.values()))), -1, dtype=np.intp)
        for row, indices in zip(members, positions.values(), strict=True):
            row[: len(indices)] = indices
        chosen = self._generator.integers(len(members), size=(self._resamples, len(members)))
        drawn = members[chosen].reshape(self._resamples, -1)
        # Programs to the front, in their order, so that no column is empty in all resamples.
        drawn = np.take_along_axis(drawn, np.argsort(drawn < 0, axis=1, kind="stable"), axis=1)
        return drawn[:, : int((drawn >= 0).sum(axis=1).max())]

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
        self, values: F64, programs: tuple[str, ...], seeds: tuple[int, ...], factor: ResampledFactor = "both"
    ) -> F64:
        """Returns values of drawn programs, each the mean over drawn seeds, [resamples, num_programs].

        With clusters, resamples hold different numbers of programs, and NaN behind the last.

        Args:
            values: finite, [num_programs, num_seeds].
            programs: programs that the rows of `values` belong to.
            seeds: seeds that the columns of `values` belong to.
            factor: factor that is drawn; with `programs`, values are means over all seeds, with `seeds`,
                those of all programs.

        Raises:
            DataError: if the shape of `values` is another, or there is nothing in it.
        """
        if values.shape != (len(programs), len(seeds)) or not values.size:
            expected = f"[{len(programs)}, {len(seeds)}], both above zero"
            raise DataError(f"shape {list(values.shape)}", field="values", expected=expected)
        if programs not in self._programs:
            self._programs[programs] = self._draw(programs)
        if seeds not in self._shares:
            uniform = np.full(len(seeds), 1.0 / len(seeds))
            counts = self._generator.multinomial(len(seeds), uniform, size=self._resamples)
            self._shares[seeds] = counts / len(seeds)
        positions = self._programs[programs]
        if factor == "programs":
            drawn_values: F64 = values.mean(axis=1)[positions]
        else:
            means: F64 = self._shares[seeds] @ values.T
            if factor == "seeds":
                return means
            drawn_values = np.take_along_axis(means, positions, axis=1)
        return drawn_values if self._clusters is None else np.where(positions < 0, np.nan, drawn_values)
