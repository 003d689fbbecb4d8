from __future__ import annotations

import numpy as np
import pytest

from costbench.arrays import F64
from costbench.rng import stream
from costbench_schedules.models.gaussian_process import Axes, KernelPrior, Posterior, negative_log_posterior

PRIOR = KernelPrior()
JITTER = 1e-5


@pytest.fixture
def columns() -> F64:
    """Returns all 4 * 3 * 2 configurations of three parameters."""
    grids = np.meshgrid([1.0, 2.0, 4.0, 16.0], [0.0, 1.0, 3.0], [8.0, 32.0], indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=1)


def prior_covariance(columns: F64) -> F64:
    """Returns the covariances of all configurations by the medians of the prior."""
    scaled = np.stack([np.log2(columns[:, 0]) / 4.0, columns[:, 1] / 3.0, np.log2(columns[:, 2] / 8.0) / 2.0])
    falls = np.exp(-PRIOR.decay * np.abs(scaled[:, :, None] - scaled[:, None]))
    return np.asarray(np.prod(PRIOR.floor + (1.0 - PRIOR.floor) * falls, axis=0))


def test_axes_are_logarithms_from_0_to_1(columns: F64) -> None:
    axes = Axes(columns)
    np.testing.assert_allclose(axes.distances[0][0], [0.0, 0.25, 0.5, 1.0])
    np.testing.assert_allclose(axes.distances[1][0], [0.0, 1.0 / 3.0, 1.0])
    between = axes.between(np.array([0, 23]))
    np.testing.assert_allclose(between[:, 0, 1], 1.0)
    np.testing.assert_allclose(between[:, 0, 0], 0.0)


def test_the_posterior_is_that_of_all_measurements_at_once(columns: F64) -> None:
    numbers = stream(0, "numbers").permutation(24)[:9]
    targets = stream(0, "targets").normal(size=(9, 2))
    posterior = Posterior(Axes(columns), 9, PRIOR)
    for batch in (numbers[:4], numbers[4:5], numbers[5:]):
        posterior.add(batch)
    covariance = prior_covariance(columns)
    known = covariance[np.ix_(numbers, numbers)] + np.eye(9) * (PRIOR.noise + JITTER)
    weights = np.linalg.solve(known, covariance[numbers])
    means, squares = posterior.means(targets)
    np.testing.assert_allclose(means, weights.T @ targets, atol=2e-4)
    np.testing.assert_allclose(
        posterior.variances, 1.0 - np.sum(weights * covariance[numbers], axis=0), atol=2e-4
    )
    assert squares == pytest.approx(targets[:, 0] @ np.linalg.solve(known, targets[:, 0]), rel=1e-4)
    assert posterior.numbers.tolist() == numbers.tolist()


def test_the_gradient_is_that_of_the_value(columns: F64) -> None:
    numbers = stream(1, "numbers").permutation(24)[:12]
    distances = Axes(columns).between(numbers)
    targets = stream(1, "targets").normal(size=12)
    theta = PRIOR.moments(3)[0] + stream(1, "theta").normal(size=7)
    _, gradient = negative_log_posterior(theta, distances, targets, PRIOR)
    step = 1e-5
    for index in range(7):
        moved = np.zeros(7)
        moved[index] = step
        above = negative_log_posterior(theta + moved, distances, targets, PRIOR)[0]
        below = negative_log_posterior(theta - moved, distances, targets, PRIOR)[0]
        assert gradient[index] == pytest.approx((above - below) / (2.0 * step), rel=1e-4, abs=1e-5)


def test_a_fit_finds_the_parameter_that_matters(columns: F64) -> None:
    numbers = np.arange(24)
    targets = np.where(columns[:, 2] > 8.0, 1.0, -1.0)
    posterior = Posterior(Axes(columns), 24, PRIOR)
    posterior.fit(numbers, targets)
    # A measurement says much of configurations that differ in the first parameter, little of others.
    posterior.add(numbers[:1])
    same = columns[:, 1:] == columns[0, 1:]
    along_first = posterior.variances[same.all(axis=1) & (columns[:, 0] > 1.0)]
    along_last = posterior.variances[(columns[:, 2] > 8.0) & (columns[:, :2] == columns[0, :2]).all(axis=1)]
    assert along_first.max() < along_last.min()
