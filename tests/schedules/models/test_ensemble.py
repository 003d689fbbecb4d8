from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from costbench import rng
from costbench.errors import ChoiceError
from costbench_schedules.models.ensemble import (
    Bootstrap,
    CorrectedModel,
    Ensemble,
    expected_improvement,
    upper_confidence_bound,
)
from costbench_schedules.models.learner import Samples, samples_of


@dataclass(frozen=True)
class Constant:
    """Predicts the same cost for everything."""

    cost: float

    def predict(self, features: np.ndarray, /) -> np.ndarray:
        return np.full(len(features), self.cost)


class Averages:
    """Learns the mean speed."""

    def fit(self, features: np.ndarray, samples: Samples, seed: int, /) -> Constant:
        assert features[:, 0] == pytest.approx(samples.runtime_ns)
        return Constant(-float(samples.speed.mean()))


FEATURES = np.arange(1.0, 9.0)[:, None]
SAMPLES = samples_of(FEATURES[:, 0])


@pytest.mark.parametrize(("mean", "deviation"), [(-1.2, 0.3), (-0.4, 0.5), (0.0, 0.1)])
def test_expected_improvement_is_the_integral(mean: float, deviation: float) -> None:
    density = norm(mean, deviation)
    integral, _ = quad(lambda cost: (-1.0 - cost) * density.pdf(cost), -10.0, -1.0, points=[mean])
    improvement = expected_improvement(np.array([mean]), np.array([deviation]))
    assert improvement[0] == pytest.approx(-integral, abs=1e-9)


def test_expected_improvement_without_doubt_is_the_improvement() -> None:
    improvement = expected_improvement(np.array([-1.5, -1.0, -0.2]), np.zeros(3))
    assert improvement.tolist() == [-0.5, 0.0, 0.0]


def test_doubt_helps() -> None:
    means, deviations = np.full(2, -0.5), np.array([0.1, 0.4])
    assert np.argmin(expected_improvement(means, deviations)) == 1
    assert upper_confidence_bound(means, deviations).tolist() == [-0.6, -0.9]


def test_an_ensemble_by_hand() -> None:
    models = [Constant(-1.0), Constant(0.0)]
    assert Ensemble(models).predict(FEATURES).tolist() == [-0.5] * 8
    assert Ensemble(models, "ucb").predict(FEATURES).tolist() == [-1.0] * 8


def test_every_model_has_its_own_draw_with_replacement() -> None:
    fitted = Bootstrap(Averages(), size=4).fit(FEATURES, SAMPLES, 7)
    costs = []
    for number in range(4):
        indices = rng.stream(7, "bootstrap", number).integers(8, size=8)
        # Speeds are relative to the fastest of all, also where that one was not drawn.
        costs.append(-float((1.0 / FEATURES[indices, 0]).mean()))
    assert [float(model.predict(FEATURES)[0]) for model in fitted.models] == pytest.approx(costs)
    assert len(set(costs)) == 4


def test_unknown_acquisitions_and_empty_ensembles_are_refused() -> None:
    with pytest.raises(ChoiceError, match=r"ei.*ucb"):
        Bootstrap(Averages(), acquisition="best")
    with pytest.raises(ValueError, match="at least 1"):
        Bootstrap(Averages(), size=0)


def test_a_corrected_model_is_the_sum() -> None:
    assert CorrectedModel(Constant(-0.7), Constant(0.2)).predict(FEATURES) == pytest.approx([-0.5] * 8)
