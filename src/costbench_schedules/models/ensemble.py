"""Models made of models: bootstrapped ensembles (autotvm2018, section 3.3), and transfer (section 4).

Several models are fitted to samples drawn with replacement; their spread stands for what is not known, and
acquisition functions use it. The paper does so with five models and the regression objective, whose costs
share one scale. Transfer adds a local model to a global one of earlier workloads (equation 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from scipy.special import ndtr

from costbench import rng
from costbench.arrays import F64
from costbench.errors import choose
from costbench_schedules.models.learner import Learner, Samples, ScheduleModel, Selectable

Features = TypeVar("Features", bound=Selectable)
Acquisition = Callable[[F64, F64], F64]
_BEST = -1.0
"""Cost of the fastest schedule measured so far: minus its speed, see `Samples.speed`."""
_KAPPA = 1.0


def mean(means: F64, deviations: F64) -> F64:
    """Returns the mean costs, float64 [n]."""
    return means


def expected_improvement(means: F64, deviations: F64) -> F64:
    """Returns minus the expected improvement on the best measured cost b, float64 [n]:

    - E max(b - c, 0) = - s (z Phi(z) + phi(z)), z = (b - m) / s, for a normal c of mean m and deviation s;
    - max(b - m, 0) where s = 0. Source: Jones, Schonlau and Welch 1998, equation 15.
    """
    sure = deviations <= 0.0
    spread = np.where(sure, 1.0, deviations)
    z = (_BEST - means) / spread
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    uncertain = spread * (z * ndtr(z) + density)
    result: F64 = -np.where(sure, np.maximum(_BEST - means, 0.0), uncertain)
    return result


def upper_confidence_bound(means: F64, deviations: F64) -> F64:
    """Returns m - s, float64 [n]: minus the upper confidence bound of the speed, with kappa = 1."""
    return means - _KAPPA * deviations


ACQUISITIONS: Mapping[str, Acquisition] = {
    "mean": mean,
    "ei": expected_improvement,
    "ucb": upper_confidence_bound,
}


@dataclass(frozen=True, eq=False)
class Ensemble(Generic[Features]):
    """Several fitted models, a `ScheduleModel` of their acquisition function.

    Attributes:
        models: fitted models, at least one.
        acquisition: name of the acquisition function, a key of `ACQUISITIONS`.
    """

    models: Sequence[ScheduleModel[Features]]
    acquisition: str = "mean"

    def predict(self, features: Features, /) -> F64:
        """Returns the acquisition function of mean and standard deviation over the models, float64 [n]."""
        costs = np.stack([model.predict(features) for model in self.models])
        return ACQUISITIONS[self.acquisition](costs.mean(axis=0), costs.std(axis=0))


@dataclass(frozen=True)
class Bootstrap(Generic[Features]):
    """A `Learner` of ensembles.

    Attributes:
        learner: learner that fits each model.
        size: number of models.
        acquisition: name of the acquisition function, a key of `ACQUISITIONS`.

    Raises:
        ValueError: for fewer than one model.
        ChoiceError: for an unknown acquisition function.
    """

    learner: Learner[Features]
    size: int = 5
    acquisition: str = "mean"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size is {self.size}, expected at least 1")
        choose(ACQUISITIONS, self.acquisition, "acquisition function")

    def fit(self, features: Features, samples: Samples, seed: int, /) -> Ensemble[Features]:
        """Returns models of samples drawn with replacement from the measurements, as many as these are."""
        models = []
        for number in range(self.size):
            indices = rng.stream(seed, "bootstrap", number).integers(len(samples), size=len(samples))
            models.append(self.learner.fit(features[indices], samples.select(indices), seed))
        return Ensemble(models, self.acquisition)


@dataclass(frozen=True, eq=False)
class CorrectedModel(Generic[Features]):
    """f(x) = f_global(x) + f_local(x), a `ScheduleModel`.

    Attributes:
        earlier: f_global, fitted to other workloads or another machine on features that mean the same there.
        local: f_local, fitted with `Samples.start` = f_global, so that it learns what that one leaves over.
    """

    earlier: ScheduleModel[Features]
    local: ScheduleModel[Features]

    def predict(self, features: Features, /) -> F64:
        """Returns the sum of both predictions, float64 [n]."""
        return self.earlier.predict(features) + self.local.predict(features)
