"""Bayesian optimisation of listed spaces: one configuration after another, of all the one that promises most.

A Gaussian process (`models.gaussian_process`) is fitted to costs -best / runtime, with the best so far:
differences among slow configurations hardly count, those near the best one do. The next trial is the
configuration of the whole space with the greatest expected improvement (Jones, Schonlau and Welch, Journal
of Global Optimization 13, 1998) times the probability that it runs, which the same process predicts from
what failed. After `growth` trials two are chosen at once, after twice as many three, and so on.

With tables of the same kernel on other devices the process models what a linear function of the costs there
leaves over; the first trial is then the configuration that was fastest there on average. Costs of
configurations that another device did not measure are predicted by boosted trees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from costbench.arrays import F64, I64
from costbench_schedules.models.gaussian_process import Axes, KernelPrior, Posterior
from costbench_schedules.models.learner import samples_of
from costbench_schedules.models.trees import BoostedTrees, BoostingSpec
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.search.replay import Replay
from costbench_schedules.spaces.parameter_space import ParameterSpace

_LEAST_CHANCE = 0.01
"""Probability that a configuration runs, at least: a space may be full of what failed so far."""
_COEFFICIENT_DEVIATION = 0.3
"""Standard deviation of the coefficients of other devices before anything was measured."""
_TREES = BoostedTrees("regression", spec=BoostingSpec(trees=300, depth=6, learning_rate=0.1))


@dataclass(frozen=True)
class BayesianSpec:
    """Settings.

    Attributes:
        first: number of trials that are drawn at random, without tables of other devices.
        growth: number of trials after which one more is chosen at once.
        refit: factor by which trials grow between two fits of the covariance.
        fitted: number of measurements that the covariance is fitted to: half of them the fastest, if there
            are more.
        least: number of measurements before the first fit; until then the covariance is the prior's.
        modelled: number of measurements that the process takes; after them the rest follows in its order.
        deviation: standard deviation of speeds that is expected before anything was measured.
        prior: prior of the covariance.
    """

    first: int = 5
    growth: int = 100
    refit: float = 1.25
    fitted: int = 200
    least: int = 5
    modelled: int = 1_000
    deviation: float = 0.2
    prior: KernelPrior = field(default_factory=KernelPrior)


@dataclass(frozen=True)
class BayesianSearch:
    """A `TableStrategy`.

    Attributes:
        spec: settings.
        transfer: whether to learn from the tables of other devices, where there are any.
    """

    spec: BayesianSpec = field(default_factory=BayesianSpec)
    transfer: bool = False

    def __call__(self, replay: Replay, rng: np.random.Generator, /) -> None:
        """Measures until no trial is left."""
        spec, space = self.spec, replay.space
        capacity = min(replay.trials, spec.modelled)
        posterior = Posterior(Axes(space.columns[1]), capacity, spec.prior)
        if self.transfer and replay.sources:
            others = np.stack([costs_on(source, space) for source in replay.sources], axis=1)
            replay.measure(np.argsort(others.mean(axis=1), kind="stable")[:1])
        else:
            others = np.zeros((space.size, 0))
            replay.measure(rng.permutation(space.size)[: spec.first])
        next_fit, promise = float(spec.least), np.zeros(space.size)
        while replay.left:
            count = 1 + len(replay.order) // spec.growth
            if len(replay.order) + count <= capacity:
                fit = len(replay.order) >= next_fit
                promise = promise_of(spec, (replay.order, replay.observed), posterior, others, rng, fit=fit)
                next_fit = len(replay.order) * spec.refit if fit else next_fit
            promise[replay.order] = -np.inf
            replay.measure(
                np.argpartition(-promise, count - 1)[:count] if count < space.size else range(space.size)
            )


def promise_of(
    spec: BayesianSpec,
    measured: tuple[I64, F64],
    posterior: Posterior,
    others: F64,
    rng: np.random.Generator,
    *,
    fit: bool,
) -> F64:
    """Returns the expected improvement of every configuration times the chance that it runs, float64 [k].

    Args:
        spec: settings.
        measured: numbers of the configurations measured so far and their runtimes, in order, [n] both.
        posterior: process over all configurations; takes those that it does not have yet.
        others: costs on other devices, or by another model, float64 [k, devices].
        rng: random numbers that draw what the covariance is fitted to.
        fit: whether the covariance is fitted first.
    """
    order, observed = measured
    costs = -samples_of(observed).speed
    trend = trend_of(others, order, costs, spec.deviation)
    residuals = costs - trend[order]
    if fit:
        chosen = _fitted(spec, costs, rng)
        posterior.fit(order[chosen], residuals[chosen])
    posterior.add(order[len(posterior.numbers) :])
    failed = np.isinf(observed).astype(np.float64)
    means, squares = posterior.means(np.stack([residuals, failed], axis=1))
    variance = (squares + spec.deviation**2) / (len(order) + 1.0)
    deviations = posterior.deviations(variance)
    distance = (costs.min() - trend - means[:, 0]) / deviations
    density = np.exp(-0.5 * distance**2) / np.sqrt(2.0 * np.pi)
    improvement: F64 = deviations * (distance * ndtr(distance) + density)
    return improvement * np.clip(1.0 - means[:, 1], _LEAST_CHANCE, 1.0)


def _fitted(spec: BayesianSpec, costs: F64, rng: np.random.Generator) -> I64:
    """Returns the measurements that the covariance is fitted to."""
    if len(costs) <= spec.fitted:
        return np.arange(len(costs))
    order, half = np.argsort(costs, kind="stable"), spec.fitted // 2
    rest = rng.choice(order[half:], spec.fitted - half, replace=False)
    return np.concatenate([order[:half], rest]).astype(np.int64)


def trend_of(others: F64, order: I64, costs: F64, deviation: float) -> F64:
    """Returns a + sum over devices of b_s cost_s of every configuration, float64 [k].

    The coefficients are the posterior means of a linear model: b_s is 1 / devices before anything was
    measured, a is 0. Without other devices a is the mean of the costs.

    Args:
        others: costs on other devices, float64 [k, devices].
        order: configurations measured so far, int64 [n].
        costs: their costs, float64 [n].
        deviation: standard deviation of costs about the line.
    """
    devices = others.shape[1]
    if not devices:
        return np.full(len(others), costs.mean())
    inputs = np.column_stack([np.ones(len(others)), others])
    prior = np.array([0.0, *[1.0 / devices] * devices])
    known = inputs[order]
    precision = known.T @ known + np.eye(devices + 1) * (deviation / _COEFFICIENT_DEVIATION) ** 2
    return np.asarray(inputs @ (prior + np.linalg.solve(precision, known.T @ (costs - known @ prior))))


def costs_on(source: TuningTable, space: ParameterSpace) -> F64:
    """Returns -best / runtime on another device of every configuration, float64 [k]; 0 where it failed.

    Configurations that were not measured there are predicted by boosted trees.
    """
    numbers = source.space.indices_of(space)
    costs = -samples_of(source.first_ns).speed
    missing = numbers < 0
    result = costs[numbers]
    if missing.any():
        result[missing] = _predicted(source, space)[missing]
    return np.asarray(result, dtype=np.float64)


@lru_cache(maxsize=16)
def _predicted(source: TuningTable, space: ParameterSpace) -> F64:
    names, columns = source.space.columns
    other_names, other_columns = space.columns
    shared = [name for name in names if name in other_names]
    known, asked = (
        np.ascontiguousarray(values[:, [labels.index(name) for name in shared]], dtype=np.float32)
        for labels, values in ((list(names), columns), (list(other_names), other_columns))
    )
    return _TREES.fit(known, samples_of(source.first_ns), 0).predict(asked)
