from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench import rng
from costbench.errors import CostbenchError
from costbench_schedules.features.context import NUM_FEATURES
from costbench_schedules.features.vectors import REPRESENTATIONS
from costbench_schedules.models.ensemble import Ensemble
from costbench_schedules.models.graph_network import GNN, GraphLearner
from costbench_schedules.models.learner import samples_of
from costbench_schedules.models.spec import ScheduleModelSpec
from costbench_schedules.models.storage import load_schedule_model, save_schedule_model
from costbench_schedules.models.training import TrainingSpec
from costbench_schedules.models.tree_gru import TreeGruLearner, TreeGruSpec
from costbench_schedules.models.trees import BoostedTrees, BoostingSpec
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.space import ScheduleSpace
from tests.checked_json import rewrite_json

SPACE = ScheduleSpace(parse_operator("matmul-256"))
ROWS = SPACE.sample(rng.stream(0, "storage"), 8)
SPECS = {
    "trees": ScheduleModelSpec(),
    "network": ScheduleModelSpec("treegru_context", "tree"),
    "graphs": ScheduleModelSpec("gnn", "tree", "regression"),
}
LEARNERS: dict[str, Any] = {
    "trees": BoostedTrees(spec=BoostingSpec(trees=4)),
    "network": TreeGruLearner(spec=TreeGruSpec(True, 4, 4, 2), training=TrainingSpec(epochs=1)),
    "graphs": GraphLearner("regression", replace(GNN, hidden=16), TrainingSpec(epochs=1)),
}


@pytest.fixture(params=sorted(SPECS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def features(kind: str) -> Any:
    return REPRESENTATIONS[SPECS[kind].representation](SPACE, ROWS)


def saved(kind: str, folder: Path) -> Any:
    model = LEARNERS[kind].fit(features(kind), samples_of(np.arange(1.0, 9.0)), 0)
    save_schedule_model(folder, model, SPECS[kind])
    return model


def test_a_stored_model_is_the_same_model(kind: str, tmp_path: Path) -> None:
    model = saved(kind, tmp_path / "one")
    result, spec = load_schedule_model(tmp_path / "one")
    assert spec == SPECS[kind]
    assert np.array_equal(result.predict(features(kind)), model.predict(features(kind)))
    save_schedule_model(tmp_path / "two", result, spec)
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: c.update(format="costbench schedule model 0"), "format"),
        (lambda c: c.update(features="0" * 16), "features"),
        (lambda c: c.pop("spec"), "the keys"),
        (lambda c: c["spec"].update(model="oracle"), "oracle"),
        (lambda c: c["spec"].update(representation="tree"), "representation"),
        (lambda c: c["fitted"].update(library="catboost"), "library"),
        (lambda c: c["fitted"].update(text=c["fitted"]["text"].replace("tree", "bush")), "changed"),
        (lambda c: c["fitted"].update(columns="wide"), "columns"),
        (lambda c: c.update(fitted=[]), "fitted"),
    ],
)
def test_damage_is_named(change: Callable[[dict[str, Any]], object], named: str, tmp_path: Path) -> None:
    saved("trees", tmp_path)
    rewrite_json(tmp_path / "model.json", change)
    with pytest.raises(CostbenchError, match=named) as met:
        load_schedule_model(tmp_path)
    assert "model.json" in str(met.value)
    assert "\n" not in str(met.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: c["fitted"]["net"].update(encoder="best"), "fitted.*encoder"),
        (lambda c: c["fitted"]["net"].update(width=3), "width"),
        (lambda c: c["fitted"]["scaler"].pop("names"), "names"),
        (lambda c: c["fitted"]["scaler"].update(maximum=[-1.0] * NUM_FEATURES), "fitted"),
        (lambda c: c["fitted"]["net"].update(hidden=32), "weights"),
    ],
)
def test_damage_of_a_network_of_graphs_is_named(
    change: Callable[[dict[str, Any]], object], named: str, tmp_path: Path
) -> None:
    saved("graphs", tmp_path)
    rewrite_json(tmp_path / "model.json", change)
    with pytest.raises(CostbenchError, match=named) as met:
        load_schedule_model(tmp_path)
    assert str(tmp_path) in str(met.value)
    assert "\n" not in str(met.value)


@pytest.mark.parametrize("kind", ["network", "graphs"])
def test_damaged_or_missing_weights_are_named(kind: str, tmp_path: Path) -> None:
    saved(kind, tmp_path)
    weights = tmp_path / "weights.pt"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(CostbenchError, match=r"weights\.pt.*not the weights"):
        load_schedule_model(tmp_path)
    weights.unlink()
    with pytest.raises(CostbenchError, match=r"weights\.pt"):
        load_schedule_model(tmp_path)


def test_sums_of_models_are_not_stored(kind: str, tmp_path: Path) -> None:
    with pytest.raises(CostbenchError, match="Ensemble"):
        save_schedule_model(tmp_path, Ensemble([saved(kind, tmp_path)]), SPECS[kind])
