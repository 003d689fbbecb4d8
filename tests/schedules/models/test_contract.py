"""What every cost model of schedules promises, over the table of models."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic_schedules import synthetic_ns
from costbench import rng
from costbench.metrics.ranking import kendall_tau
from costbench_schedules.features.vectors import REPRESENTATIONS
from costbench_schedules.models.learner import Objective, samples_of
from costbench_schedules.models.spec import MODELS, READS_TREES, ScheduleModelSpec, learner_of
from costbench_schedules.models.storage import load_schedule_model, save_schedule_model
from costbench_schedules.operators.operators import OPERATORS, parse_operator
from costbench_schedules.spaces.space import ScheduleSpace

SPACE = ScheduleSpace(parse_operator("C6"))
ROWS = SPACE.sample(rng.stream(0, "contracts"), 64)
TIMES = synthetic_ns(SPACE, ROWS)
NEEDS = {"gbt_xgboost": "xgboost"}
"""Models of optional libraries."""

every_model = pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None,
                reason=f"needs {NEEDS.get(name)} (extra cpu)",
            ),
        )
        for name in sorted(MODELS)
    ],
)


def spec_of(name: str, objective: Objective = "rank") -> ScheduleModelSpec:
    return ScheduleModelSpec(name, "tree" if name in READS_TREES else "relation", objective)


def features(name: str, rows: np.ndarray = ROWS) -> Any:
    return REPRESENTATIONS[spec_of(name).representation](SPACE, rows)


@every_model
@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_learns_a_table_by_heart(name: str, objective: Objective) -> None:
    """Made-up times of one convolution; the slowest schedules failed."""
    times = np.where(np.argsort(np.argsort(TIMES)) >= 58, np.inf, TIMES)
    model = learner_of(spec_of(name, objective)).fit(features(name), samples_of(times), 0)
    ran = np.isfinite(times)
    costs = model.predict(features(name))
    assert kendall_tau(costs[ran], times[ran]) > 0.6
    assert costs[~ran].mean() > costs[ran].mean()


@every_model
def test_equal_fits_are_equal_and_come_back(name: str, tmp_path: Path) -> None:
    spec, own, samples = spec_of(name), features(name), samples_of(TIMES)
    model, again = (learner_of(spec).fit(own, samples, 3) for _ in range(2))
    save_schedule_model(tmp_path, model, spec)
    loaded, result = load_schedule_model(tmp_path)
    assert result == spec
    expected = model.predict(own)
    assert expected.dtype == np.float64
    assert expected.shape == (len(ROWS),)
    for other in (again, loaded):
        assert np.array_equal(other.predict(own), expected)


@every_model
def test_a_cost_does_not_depend_on_the_other_schedules(name: str) -> None:
    model = learner_of(spec_of(name)).fit(features(name), samples_of(TIMES), 0)
    whole = model.predict(features(name))
    some = np.array([5, 40, 5])
    assert model.predict(features(name)[some]) == pytest.approx(whole[some], rel=1e-4, abs=1e-5)
    assert model.predict(features(name, ROWS[some])) == pytest.approx(whole[some], rel=1e-4, abs=1e-5)


OTHERS = (
    *("C1", "depthwise-256", "dense-512", "batch-matmul-12", "matmul-256"),
    "grouped_conv2d:n=1,h=14,w=14,g=4,ci=32,co=32,kh=3,kw=3,stride=1,pad=1",
)


@every_model
def test_prices_any_operator(name: str) -> None:
    """A model of one operator has finite costs for schedules of every other, and tells them apart."""
    model = learner_of(spec_of(name)).fit(features(name), samples_of(TIMES), 0)
    spaces = [ScheduleSpace(parse_operator(text)) for text in OTHERS]
    assert {space.operator.name for space in spaces} == set(OPERATORS)
    for space in spaces:
        rows = space.sample(rng.stream(1, "contracts", space.operator.text), 16)
        costs = model.predict(REPRESENTATIONS[spec_of(name).representation](space, rows))
        assert np.isfinite(costs).all()
        assert len(np.unique(costs)) > 1
