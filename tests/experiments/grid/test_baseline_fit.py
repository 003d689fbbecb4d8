"""Baselines are fitted once for the same samples, settings and code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.splits import Split
from costbench.experiments.evaluation.program import EvaluateParams, ProgramTask
from costbench.experiments.evaluation.shard_costs import fitted_costs
from costbench.experiments.grid.baseline_fit import BaselineTask, baselines_folder, fit_baselines
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.models.baselines.fitting import classes_of
from costbench.models.baselines.spec import SampleSpec
from tests.models.baselines.tables import SPEC, real_shard

CHIP = "tpu_v3"
ONE_DECISION = replace(SPEC, training=SampleSpec(100, 1), validation=SampleSpec(100, 1))


@pytest.fixture
def task(repository: Path, tmp_path: Path) -> BaselineTask:
    """Fused kernels that take 2 us more than half as long again as estimated."""
    features = tmp_path / "features"
    for name in ("a", "b", "c"):
        path = feature_path(features, "fusion", CHIP, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        real_shard(repository, path, name.upper(), 1, lambda ns: 2_000.0 + 1.5 * ns)
    folder = baselines_folder(tmp_path / "train" / "main-fusion", "random", CHIP)
    split = Split("random", ("a",), ("b",), ("c",))
    return BaselineTask("fusion", CHIP, features, split, ONE_DECISION, 0, folder, "code")


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_fits_are_kept_and_made_again_when_something_changes(task: BaselineTask) -> None:
    done = fit_baselines(task)
    assert done.models == tuple(sorted(classes_of("fusion")))
    before = times(task.folder)
    assert set(before) == {"done.json", *(f"{name}.json" for name in done.models)}
    assert fit_baselines(replace(task)) == done
    assert times(task.folder) == before
    (task.folder / "of_an_older_version.json").write_text("{}")
    assert fit_baselines(replace(task, code="other code")).key != done.key
    assert set(times(task.folder)) == set(before)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"code": "other"},
        {"spec": replace(ONE_DECISION, ridge=1.0)},
        {"split": Split("random", ("a",), ("c",), ("b",))},
    ],
    ids=str,
)
def test_keys(task: BaselineTask, change: dict[str, object]) -> None:
    assert replace(task, **change).key != task.key  # type: ignore[arg-type]


def test_test_programs_are_not_read(task: BaselineTask) -> None:
    feature_path(task.features, "fusion", CHIP, "c").unlink()
    assert replace(task).key == task.key


def test_costs_of_a_program(task: BaselineTask) -> None:
    fit_baselines(task)
    params = EvaluateParams(("analytical_launch", "random", "learned", "trees"), (1,), (0,))
    shard = FeatureShard(feature_path(task.features, "fusion", CHIP, "c"))
    program = ProgramTask(
        Path("data"), task.features, CHIP, "c", (), params.models, params, frozenset(), fitted=task.folder
    )
    costs = fitted_costs(program, "fusion", shard)
    assert list(costs) == ["analytical_launch", "trees"]
    predicted = np.concatenate(costs["analytical_launch"])
    measured = np.concatenate([shard.runtime_ns(index) for index in range(len(shard))])
    np.testing.assert_allclose(predicted, measured, rtol=1e-3)
    assert fitted_costs(replace(program, fitted=None), "fusion", shard) == {}
