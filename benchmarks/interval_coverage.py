"""How often 95% intervals over few programs and runs contain the truth, for six ways to make them.

The effect is a mean over programs i and training runs j of mu + a_i + b_j + e_ij, with programs drawn from a
normal distribution, a log-normal one (sigma 0.5, skewness 1.75), a log-normal one as skewed as errors of
programs themselves (sigma 1, skewness 6.2), or Student's t with 3 degrees of freedom, each of variance 1; b
and e are normal. Ways:

- `percentile`: percentiles of resamples of programs and runs together;
- `expanded`: the same at the percentiles of Hesterberg (2015);
- `bca`: bias-corrected and accelerated (Efron, 1987), skewness over programs;
- `bootstrap-t`: t values of resampled programs times the standard error over programs and runs;
- `t`: the standard error of the analysis of variance, Satterthwaite's degrees of freedom;
- `ours`: `costbench.metrics.intervals`, which reports use.

    python -m benchmarks.interval_coverage
    python -m benchmarks.interval_coverage --geometric
    python -m benchmarks.interval_coverage --clusters
    python -m benchmarks.interval_coverage --shares out/laptop/evaluate/*/rows.jsonl
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

from costbench.arrays import F64
from costbench.metrics.intervals import (
    CONFIDENCE,
    CrossedDraws,
    Interval,
    ResampledEffect,
    WiderInterval,
    small_sample_interval,
    student,
)
from costbench.metrics.rows import read_rows
from costbench.reports.claims.claim import Claim, Side, load_claims
from costbench.reports.frame import frame_of
from costbench.reports.scores import (
    MIN_PROGRAMS,
    Scores,
    mean_over_programs,
    score_index,
    scores_of,
    share_programs,
)
from costbench.rng import stream

TAIL = (1.0 - CONFIDENCE) / 2.0
_MEANS = ("geometric_mean", "mean", "kernel_mean")
INTERACTION, OF_RUNS = 0.79, 0.09
"""Variances of e and of b over that of a: median and upper quartile of `--shares` on the evidence profile."""


def _log_normal(generator: np.random.Generator, size: tuple[int, ...], sigma: float) -> F64:
    drawn = np.exp(sigma * generator.standard_normal(size))
    variance = np.expm1(sigma**2) * np.exp(sigma**2)
    return (drawn - np.exp(0.5 * sigma**2)) / np.sqrt(variance)  # type: ignore[no-any-return]


EFFECTS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], F64]] = {
    "normal": lambda generator, size: generator.standard_normal(size),
    "skewed": lambda generator, size: _log_normal(generator, size, 0.5),
    "very skewed": lambda generator, size: _log_normal(generator, size, 1.0),
    "heavy tails": lambda generator, size: generator.standard_t(3, size) / np.sqrt(3.0),
}
"""Effects of programs, of mean 0 and variance 1."""


@dataclass(frozen=True)
class Trials:
    """Simulated studies, and their resamples.

    Attributes:
        values: of each study, [trials, num_programs, num_runs].
        truth: mean that intervals should contain, [trials]: 0, or with one run that of the run.
        weights: how often each program is drawn, over their number, [resamples, num_programs].
        shares: the same of runs, [resamples, num_runs].
    """

    values: F64
    truth: F64
    weights: F64
    shares: F64

    @property
    def means(self) -> F64:
        """Returns the effects, [trials]."""
        return self.values.mean(axis=(1, 2))  # type: ignore[no-any-return]

    @property
    def programs(self) -> F64:
        """Returns the effects with programs drawn, [trials, resamples]."""
        drawn: F64 = self.values.mean(axis=2) @ self.weights.T
        return drawn

    @property
    def runs(self) -> F64:
        """Returns the effects with runs drawn, [trials, resamples]."""
        drawn: F64 = self.values.mean(axis=1) @ self.shares.T
        return drawn

    @property
    def both(self) -> F64:
        """Returns the effects with programs and runs drawn, [trials, resamples]."""
        of_each_run = (
            self.values[:, :, j] @ self.weights.T * self.shares[:, j] for j in range(len(self.shares[0]))
        )
        return sum(of_each_run, np.zeros(1))

    def errors(self) -> tuple[F64, F64]:
        """Returns standard errors of the analysis of variance and their degrees of freedom, [trials]."""
        _, n, m = self.values.shape
        programs = self.values.mean(axis=2).var(axis=1, ddof=1) / n
        if m == 1:
            return np.sqrt(programs), np.full(len(programs), n - 1.0)
        by_program, by_run = self.values.mean(axis=2, keepdims=True), self.values.mean(axis=1, keepdims=True)
        residuals = self.values - by_program - by_run + self.values.mean(axis=(1, 2), keepdims=True)
        interaction = (residuals**2).sum(axis=(1, 2)) / ((n - 1) * (m - 1)) / (n * m)
        runs = by_run[:, 0].var(axis=1, ddof=1) / m
        total = programs + np.maximum(0.0, runs - interaction)
        more = runs**2 / (m - 1) + interaction**2 / ((n - 1) * (m - 1))
        squares = programs**2 / (n - 1) + np.where(runs > interaction, more, 0.0)
        return np.sqrt(total), np.maximum(1.0, total**2 / squares)


Ends = tuple[F64, F64]


def expanded_tail(tail: float, n: int) -> float:
    """Returns the tail of a percentile interval over n draws that covers as one of t with `tail` would.

    Phi(-sqrt(n / (n - 1)) t(1 - tail, n - 1)) (Hesterberg, 2015).
    """
    return float(ndtr(-np.sqrt(n / (n - 1)) * student(tail, n - 1)))


def _percentiles(drawn: F64, tail: float) -> Ends:
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=1)
    return low, high


def _bca(trials: Trials) -> Ends:
    drawn, means = trials.both, trials.means
    below = np.clip((drawn < means[:, None]).mean(axis=1), 0.5 / drawn.shape[1], 1.0 - 0.5 / drawn.shape[1])
    bias = ndtri(below)
    centred = trials.values.mean(axis=2) - means[:, None]
    acceleration = (centred**3).sum(axis=1) / (6.0 * (centred**2).sum(axis=1) ** 1.5)
    levels = []
    for z in (ndtri(TAIL), -ndtri(TAIL)):
        levels.append(ndtr(bias + (bias + z) / (1.0 - acceleration * (bias + z))))
    ends = [np.quantile(own, both) for own, *both in zip(drawn, *levels, strict=True)]
    low, high = np.transpose(ends)
    return low, high


def _bootstrap_t(trials: Trials) -> Ends:
    values, means = trials.values.mean(axis=2), trials.means
    squares = values**2 @ trials.weights.T
    spread = np.sqrt(np.maximum(1e-12, squares - trials.programs**2) / (values.shape[1] - 1))
    scaled = (trials.programs - means[:, None]) / spread
    low, high = np.quantile(scaled, [TAIL, 1.0 - TAIL], axis=1)
    error, _ = trials.errors()
    return means - high * error, means - low * error


def _student(trials: Trials) -> Ends:
    error, freedom = trials.errors()
    width = error * np.array([student(TAIL, degrees) for degrees in freedom])
    return trials.means - width, trials.means + width


def _ours(trials: Trials) -> Ends:
    _, n, m = trials.values.shape
    ends = []
    effects = zip(trials.means, trials.programs, trials.runs, trials.both, strict=True)
    for estimate, programs, runs, both in effects:
        interval = small_sample_interval(ResampledEffect(float(estimate), programs, runs, both, n, m))
        ends.append((interval.low(TAIL), interval.high(TAIL)))
    low, high = np.transpose(ends)
    return low, high


METHODS: Mapping[str, Callable[[Trials], Ends]] = {
    "percentile": lambda trials: _percentiles(trials.both, TAIL),
    "expanded": lambda trials: _percentiles(trials.both, expanded_tail(TAIL, trials.values.shape[1])),
    "bca": _bca,
    "bootstrap-t": _bootstrap_t,
    "t": _student,
    "ours": _ours,
}


@dataclass(frozen=True)
class Design:
    """A study: distribution of programs' effects, how many programs and runs, variance of the runs' part."""

    effects: str
    programs: int
    runs: int
    of_runs: float = OF_RUNS


def simulate(
    design: Design, trials: int, resamples: int, seed: int = 0, *, of_all_runs: bool = False
) -> Trials:
    """Returns studies of a design.

    Args:
        design: of each.
        trials: how many.
        resamples: of each, the same draws for all.
        seed: of all draws.
        of_all_runs: whether the truth of a study with one run is the mean over all runs that might have
            been; else it is that run's mean over programs, which is all that such a study can tell.
    """
    n, m = design.programs, design.runs
    names = (design.effects, n, m, str(design.of_runs))
    generator = stream(seed, "coverage", *names)
    of_programs = EFFECTS[design.effects](generator, (trials, n, 1))
    of_runs = np.sqrt(design.of_runs) * generator.standard_normal((trials, 1, m))
    noise = np.sqrt(INTERACTION) * generator.standard_normal((trials, n, m))
    weights = generator.multinomial(n, np.full(n, 1.0 / n), size=resamples) / n
    shares = generator.multinomial(m, np.full(m, 1.0 / m), size=resamples) / m
    truth = of_runs[:, 0, 0] if m == 1 and not of_all_runs else np.zeros(trials)
    return Trials(of_programs + of_runs + noise, truth, weights, shares)


def coverage(trials: Trials, ends: Ends) -> float:
    """Returns the share of studies whose interval contains the truth."""
    return float(np.mean((ends[0] <= trials.truth) & (trials.truth <= ends[1])))


def geometric(programs: int, trials: int, resamples: int) -> dict[str, tuple[float, float]]:
    """Returns by way the shares of intervals that lie above and below the truth, of one run.

    The effect is the difference of two geometric means, as of most claims: logarithms of errors have a
    deviation of 0.9 over programs, which both sides share, and their difference has mean 0.8 and deviation
    0.5.
    """
    generator = stream(0, "coverage", "geometric", programs)
    errors = 0.9 * generator.standard_normal((trials, programs))
    lead = 0.8 + 0.5 * generator.standard_normal((trials, programs))
    weights = generator.multinomial(programs, np.full(programs, 1.0 / programs), size=resamples) / programs
    truth = 2.0 * np.sinh(0.4)
    missed = {name: np.zeros(2) for name in ("percentile", "t", "ours")}
    for hard, easier in zip(errors + 0.5 * lead, errors - 0.5 * lead, strict=True):
        resampled = np.exp(weights @ hard) - np.exp(weights @ easier)
        estimate, fixed = np.exp(hard.mean()) - np.exp(easier.mean()), np.zeros(resamples)
        ours = small_sample_interval(
            ResampledEffect(float(estimate), resampled, fixed, resampled, programs, 1)
        )
        half = 0.5 * (ours.below + ours.above) * student(TAIL, programs - 1.0)
        low, high = np.quantile(resampled, [TAIL, 1.0 - TAIL])
        ends = {
            "percentile": (low, high),
            "t": (estimate - half, estimate + half),
            "ours": (ours.low(TAIL), ours.high(TAIL)),
        }
        for name, (below, above) in ends.items():
            missed[name] += (truth < below, truth > above)
    return {name: (float(one[0]) / trials, float(one[1]) / trials) for name, one in missed.items()}


APPLICATION_SIZES = (1,) * 20 + (2,) * 8 + (4,) * 10 + (8,) * 5 + (22,)
"""Programs of 44 applications, 138 in all, about as uneven as those of the folds of the corpus."""


def clustered(within: float, trials: int, resamples: int, sizes: Sequence[int]) -> dict[str, float]:
    """Returns by kind of interval how often it contains the truth, if programs of an application are alike.

    Args:
        within: share of the variance that programs of one application have in common.
        trials: number of studies.
        resamples: number of resamples of each.
        sizes: number of programs of each application.
    """
    generator = stream(0, "coverage", "clusters", str(within), len(sizes))
    applications = np.repeat(np.arange(len(sizes)), sizes)
    names = tuple(f"p{i}" for i in range(len(applications)))
    clusters = {name: f"a{application}" for name, application in zip(names, applications, strict=True)}
    hits = dict.fromkeys(("programs", "applications", "the wider"), 0)
    for _ in range(trials):
        common = np.sqrt(within) * generator.standard_normal(len(sizes))
        values = common[applications] + np.sqrt(1.0 - within) * generator.standard_normal(len(applications))
        intervals: list[Interval] = []
        for of in (None, clusters):
            draws = CrossedDraws(generator, resamples, of)
            drawn = mean_over_programs(draws.resampled(values[:, np.newaxis], names, (0,), "programs"))
            fixed = np.full(resamples, values.mean())
            number = draws.num_drawn(names)
            effect = ResampledEffect(float(values.mean()), drawn, fixed, drawn, number, 1)
            intervals.append(small_sample_interval(effect))
        for name, interval in zip(hits, (*intervals, WiderInterval(*intervals)), strict=True):
            hits[name] += interval.low(TAIL) <= 0.0 <= interval.high(TAIL)
    return {name: count / trials for name, count in hits.items()}


@dataclass(frozen=True)
class Shares:
    """Variances of the runs' part and of the interaction, over that of programs, of one pair of a claim."""

    of_runs: float
    interaction: float


def shares(paths: Sequence[Path]) -> list[Shares]:
    """Returns the shares of pairs that claims compare, with several runs of one side at least.

    An analysis of variance of the leads, of the logarithms of errors that are averaged geometrically.

    Raises:
        DataError: for rows that cannot be read.
    """
    index = score_index(frame_of(row for path in paths for row in read_rows(path)))
    found = {}
    for claim in (one for one in load_claims() if one.statistic in _MEANS):
        for left, right in claim.pairs:
            if left.programs == right.programs:
                both = {side: scores_of(index, claim.task, claim.metric, side) for side in (left, right)}
                one = _shares(claim, share_programs(both), (left, right))
                if one is not None:
                    found[claim.task, claim.metric, claim.statistic, left, right] = one
    return list(found.values())


def _shares(claim: Claim, scores: Mapping[Side, Scores], pair: tuple[Side, Side]) -> Shares | None:
    values = [scores[side].values for side in pair]
    runs = min((len(one[0]) for one in values if one.size and len(one[0]) > 1), default=1)
    if runs == 1 or len(values[0]) < MIN_PROGRAMS:
        return None
    if claim.statistic == "geometric_mean":
        values = [np.log(np.maximum(one, 0.05)) for one in values]
    left, right = (one[:, :runs] if len(one[0]) > 1 else np.repeat(one, runs, axis=1) for one in values)
    leads = left - right
    n, m = leads.shape
    rest = leads - leads.mean(axis=1, keepdims=True) - leads.mean(axis=0) + leads.mean()
    interaction = float((rest**2).sum()) / ((n - 1) * (m - 1))
    of_programs = float(leads.mean(axis=1).var(ddof=1)) - interaction / m
    if of_programs <= 0.0:
        return None
    return Shares(
        (float(leads.mean(axis=0).var(ddof=1)) - interaction / n) / of_programs, interaction / of_programs
    )


def _print_clustered(trials: int, resamples: int) -> None:
    print("| in common | programs | applications | the wider |")
    print("|---|---|---|---|")
    for within in (0.0, 0.25, 0.5, 0.75):
        covered = clustered(within, trials, resamples, APPLICATION_SIZES).values()
        print(f"| {within:.0%} | {' | '.join(f'{100.0 * share:.1f}' for share in covered)} |", flush=True)


def _print_shares(paths: Sequence[Path]) -> None:
    pairs = shares(paths)
    for name in ("of_runs", "interaction"):
        quartiles = np.quantile([getattr(value, name) for value in pairs], [0.25, 0.5, 0.75])
        print(f"{name}: quartiles of {len(pairs)} pairs {', '.join(f'{value:.3f}' for value in quartiles)}")


def main(arguments: Sequence[str]) -> None:
    """Prints the table of coverage, or the shares of the variance in result rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=4_000)
    parser.add_argument("--resamples", type=int, default=1_000)
    parser.add_argument("--of-runs", type=float, default=OF_RUNS, help="variance of b over that of a")
    parser.add_argument("--of-all-runs", action="store_true", help="one run stands for all there may be")
    parser.add_argument("--shares", type=Path, nargs="+", help="result rows to estimate variances from")
    parser.add_argument("--geometric", action="store_true", help="differences of geometric means")
    parser.add_argument("--clusters", action="store_true", help="programs of one application are alike")
    options = parser.parse_args(arguments)
    if options.clusters:
        _print_clustered(options.trials, options.resamples)
        return
    if options.geometric:
        for programs in (6, 8, 40):
            for name, (above, below) in geometric(programs, options.trials, options.resamples).items():
                print(f"{programs} programs, {name}: {above:.1%} lie above the truth, {below:.1%} below")
        return
    if options.shares:
        _print_shares(options.shares)
        return
    print(f"| effects | programs | runs | {' | '.join(METHODS)} |")
    print("|---|---|---|" + "---|" * len(METHODS))
    for effects in EFFECTS:
        for programs in (6, 8, 40):
            for runs in (1, 3, 5):
                design = Design(effects, programs, runs, options.of_runs)
                hits = dict.fromkeys(METHODS, 0.0)
                chunks = max(1, options.trials // 500)
                for chunk in range(chunks):
                    numbers = (options.trials // chunks, options.resamples, chunk)
                    studies = simulate(design, *numbers, of_all_runs=options.of_all_runs)
                    for name, method in METHODS.items():
                        hits[name] += coverage(studies, method(studies)) / chunks
                cells = " | ".join(f"{100.0 * share:.1f}" for share in hits.values())
                print(f"| {effects} | {programs} | {runs} | {cells} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
