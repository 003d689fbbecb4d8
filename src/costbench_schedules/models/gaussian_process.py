"""A Gaussian process over all configurations of a listed space, updated with every measurement.

The covariance of two configurations is a product over their parameters,

    k(x, x') = prod_j (c_j + (1 - c_j) exp(-w_j |z_j - z'_j|)),

where z_j is the logarithm of a parameter's value (the value itself, if one is not above 0), scaled to
[0, 1]. The factor falls from 1 to c_j. With a floor c_j > 0 two configurations that differ much in one
parameter still tell of each other: multiplied out, the product is a sum over all subsets of parameters, an
analysis of variance (ANOVA) kernel (Durrande et al., Journal of Multivariate Analysis 115, 2013). Decays w_j,
floors c_j and noise maximise the marginal likelihood times their priors (Rasmussen and Williams, "Gaussian
Processes for Machine Learning", 2006, section 5.4.1).

A space is listed, so the posterior is computed at every configuration: a measurement adds one row to the
Cholesky factor and one to its solution for all k configurations, O(n k) for the n-th.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit

from costbench.arrays import F32, F64, I64

_JITTER = 1e-5
"""Added to the noise: rows in float32 are not more exact."""
_LEAST_VARIANCE = 1e-8
_STEPS = 15
"""Steps of the optimiser, at most."""
_DECAY_BOUNDS, _FLOOR_BOUNDS, _NOISE_BOUNDS = (-5.0, 4.0), (-5.0, 5.0), (float(np.log(1e-6)), 0.0)


class Axes:
    """Distances of the values of each parameter.

    Args:
        columns: values of the parameters of all configurations, float64 [k, d].

    Attributes:
        codes: number of the value of each configuration, d arrays int32 [k].
        distances: distances of values from 0 to 1, d arrays float64 [v, v].
    """

    def __init__(self, columns: F64) -> None:
        self.codes = []
        self.distances: list[F64] = []
        for column in columns.T:
            values, codes = np.unique(column, return_inverse=True)
            scaled = np.log2(values) if values[0] > 0.0 else values
            scaled = (scaled - scaled[0]) / max(float(np.ptp(scaled)), 1e-300)
            self.codes.append(codes.astype(np.int32))
            self.distances.append(np.abs(scaled[:, None] - scaled))

    def between(self, numbers: I64) -> F64:
        """Returns the distances of some configurations along each parameter, float64 [d, n, n]."""
        parts = [
            table[codes[numbers][:, None], codes[numbers]]
            for codes, table in zip(self.codes, self.distances, strict=True)
        ]
        return np.stack(parts) if parts else np.zeros((0, len(numbers), len(numbers)))


@dataclass(frozen=True)
class KernelPrior:
    """Priors of the logarithm of decays, of the logit of floors, and of the logarithm of the noise: normal.

    Attributes:
        decay: median of the decays.
        floor: median of the floors.
        noise: median of the variance of the noise, relative to that of the process.
        decay_deviation: standard deviation of the logarithm of a decay.
        floor_deviation: standard deviation of the logit of a floor.
        noise_deviation: standard deviation of the logarithm of the noise.
    """

    decay: float = 1.2
    floor: float = 0.8
    noise: float = 1e-3
    decay_deviation: float = 1.0
    floor_deviation: float = 1.0
    noise_deviation: float = 1.5

    def moments(self, axes: int) -> tuple[F64, F64]:
        """Returns means and standard deviations of all 2 d + 1 parameters, float64 each."""
        means = [np.log(self.decay)] * axes + [np.log(self.floor / (1.0 - self.floor))] * axes
        deviations = [self.decay_deviation] * axes + [self.floor_deviation] * axes
        return np.array([*means, np.log(self.noise)]), np.array([*deviations, self.noise_deviation])


def negative_log_posterior(theta: F64, distances: F64, targets: F64, prior: KernelPrior) -> tuple[float, F64]:
    """Returns minus the logarithm of likelihood times prior, up to a constant, and its gradient [2 d + 1].

    The variance of the process is the one of greatest likelihood.

    Args:
        theta: logarithms of decays [d], logits of floors [d], logarithm of the noise.
        distances: distances along each parameter, float64 [d, n, n].
        targets: what was measured, less its mean, float64 [n].
        prior: prior of theta.
    """
    d, n = len(distances), len(targets)
    decays, floors, noise = np.exp(theta[:d]), expit(theta[d:-1]), float(np.exp(theta[-1]))
    falls = np.exp(-decays[:, None, None] * distances)
    factors = floors[:, None, None] + (1.0 - floors)[:, None, None] * falls
    covariance = np.prod(factors, axis=0)
    factor = cholesky(covariance + np.eye(n) * (noise + _JITTER), lower=True)
    inverse = cho_solve((factor, True), np.eye(n))
    weights = inverse @ targets
    variance = max(float(targets @ weights) / n, 1e-12)
    value = 0.5 * n * np.log(variance) + float(np.log(np.diag(factor)).sum())
    by_covariance = 0.5 * (inverse - np.outer(weights, weights) / variance)
    by_factor = (by_covariance * covariance) / factors
    gradient = np.empty_like(theta)
    gradient[:d] = -(1.0 - floors) * decays * np.einsum("jab,jab->j", by_factor, distances * falls)
    gradient[d:-1] = floors * (1.0 - floors) * np.einsum("jab,jab->j", by_factor, 1.0 - falls)
    gradient[-1] = noise * np.trace(by_covariance)
    means, deviations = prior.moments(d)
    away = (theta - means) / deviations
    return value + 0.5 * float(away @ away), gradient + away / deviations


class Posterior:
    """The posterior at all configurations, given those measured so far.

    Args:
        axes: parameters of the configurations.
        capacity: number of measurements, at most.
        prior: prior of the covariance, which its first parameters are the median of.
        theta: parameters to begin with instead, those of another posterior of as many axes.

    Attributes:
        theta: parameters of the covariance, see `negative_log_posterior`.
        numbers: configurations measured so far, in order.
        variances: posterior variances relative to that of the process, float32 [k].
    """

    def __init__(self, axes: Axes, capacity: int, prior: KernelPrior, theta: F64 | None = None) -> None:
        self._axes, self._prior = axes, prior
        self._size = len(axes.codes[0]) if axes.codes else 1
        self.theta: F64 = prior.moments(len(axes.codes))[0] if theta is None else theta
        self._factor = np.zeros((capacity, capacity))
        self._solved: F32 = np.zeros((capacity, self._size), dtype=np.float32)
        self.numbers: I64 = np.zeros(0, dtype=np.int64)
        self.variances: F32 = np.ones(self._size, dtype=np.float32)

    def fit(self, numbers: I64, targets: F64) -> None:
        """Finds the covariance for some measurements [n], and starts again with no measurement."""
        axes = len(self._axes.codes)
        result = minimize(
            negative_log_posterior,
            self.theta,
            args=(self._axes.between(numbers), targets, self._prior),
            jac=True,
            method="L-BFGS-B",
            bounds=[_DECAY_BOUNDS] * axes + [_FLOOR_BOUNDS] * axes + [_NOISE_BOUNDS],
            options={"maxiter": _STEPS},
        )
        self.theta = result.x
        self.numbers = self.numbers[:0]
        self.variances = np.ones(self._size, dtype=np.float32)

    def add(self, numbers: I64) -> None:
        """Adds measured configurations [n], in order."""
        noise = float(np.exp(self.theta[-1])) + _JITTER
        start, end = len(self.numbers), len(self.numbers) + len(numbers)
        rows = self._rows(numbers)
        known = self._solved[:start]
        self._factor[start:end, :start] = known[:, numbers].T
        rows -= known[:, numbers].T @ known
        block = rows[:, numbers].astype(np.float64) + noise * np.eye(len(numbers))
        square = cholesky(block, lower=True)
        self._factor[start:end, start:end] = square
        solved = solve_triangular(square.astype(np.float32), rows, lower=True, check_finite=False)
        self._solved[start:end] = solved
        self.variances = self.variances - np.einsum("ij,ij->j", solved, solved)
        self.numbers = np.concatenate([self.numbers, numbers])

    def means(self, targets: F64) -> tuple[F64, float]:
        """Returns posterior means of all configurations, and the sum of squares of the whitened targets.

        The latter over n is the variance of the process of greatest likelihood, for one target.

        Args:
            targets: t values for each measured configuration, float64 [n, t].

        Returns:
            means, float64 [k, t], and that sum of the first target.
        """
        n = len(self.numbers)
        whitened = solve_triangular(self._factor[:n, :n], targets, lower=True, check_finite=False)
        means = (whitened.T.astype(np.float32) @ self._solved[:n]).T.astype(np.float64)
        return means, float(whitened[:, 0] @ whitened[:, 0])

    def deviations(self, variance: float) -> F64:
        """Returns posterior standard deviations of all configurations, float64 [k]."""
        return np.sqrt(np.maximum(self.variances, _LEAST_VARIANCE).astype(np.float64) * variance)

    def _rows(self, numbers: I64) -> F32:
        """Returns the covariances of some configurations with all, float32 [n, k]."""
        axes = len(self._axes.codes)
        decays, floors = np.exp(self.theta[:axes]), expit(self.theta[axes:-1])
        rows = np.ones((len(numbers), self._size), dtype=np.float32)
        for codes, distances, decay, floor in zip(
            self._axes.codes, self._axes.distances, decays, floors, strict=True
        ):
            table = (floor + (1.0 - floor) * np.exp(-decay * distances)).astype(np.float32)
            for row, number in zip(rows, numbers.tolist(), strict=True):
                row *= table[codes[number]][codes]
        return rows
