"""Baselines are fitted once for the same samples, settings and code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import read_json
from costbench.datasets.record_types import ESTIMATES
from costbench.datasets.records import digests_of, offsets_of
from costbench.datasets.splits import Split
from costbench.datasets.storage import write_shard
from costbench.experiments.evaluation.program import EvaluateParams, ProgramTask
from costbench.experiments.evaluation.shard_costs import fitted_costs
from costbench.experiments.grid.baseline_fit import BaselineTask, baselines_folder, fit_baselines
from costbench.features.feature_shards import FeatureShard, estimates_path, feature_path
from costbench.models.baselines.fitting import classes_of
from costbench.models.baselines.spec import SampleSpec, TreesBudget
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
    assert set(before) == {"done.json", "fits.json", *(f"{name}.json" for name in done.models)}
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
    assert list(costs) == [("analytical_launch", "main", 0), ("trees", "main", 0)]
    predicted = np.concatenate(costs["analytical_launch", "main", 0])
    measured = np.concatenate([shard.runtime_ns(index) for index in range(len(shard))])
    np.testing.assert_allclose(predicted, measured, rtol=1e-3)
    assert fitted_costs(replace(program, fitted=None), "fusion", shard) == {}


def test_baselines_that_read_estimates_are_fitted_to_those_of_another_quality(task: BaselineTask) -> None:
    for name in ("a", "b", "c"):
        shard = FeatureShard(feature_path(task.features, "fusion", CHIP, name))
        columns = {
            "kernel_fingerprint": digests_of(shard.fingerprints()),
            "config_analytical_ns_offsets": offsets_of(shard.num_configs().tolist()),
            # Estimates as good as measurements, in another unit.
            "config_analytical_ns": np.concatenate(
                [3.0 * shard.runtime_ns(index).astype(np.float64) for index in range(len(shard))]
            ),
        }
        write_shard(estimates_path(shard.path, "expert"), columns, {"program": name}, ESTIMATES)
    folder = task.folder.with_name(f"{task.folder.name}-expert")
    assert baselines_folder(task.folder.parent, "random", CHIP, "expert") == folder
    other = replace(task, folder=folder, estimate="expert")
    assert other.key != task.key
    names = {"analytical_unscaled", "analytical_constant", "analytical_launch", "analytical_linear"}
    assert set(fit_baselines(other).models) == names | {"trees_analytical"}
    fit_baselines(task)
    params = EvaluateParams(("analytical_constant", "trees"), (1,), (0,))
    program = ProgramTask(
        Path("data"), task.features, CHIP, "c", (), params.models, params, frozenset(), fitted=task.folder,
        fitted_to={"expert": folder},
    )  # fmt: skip
    shard = FeatureShard(feature_path(task.features, "fusion", CHIP, "c"))
    costs = fitted_costs(program, "fusion", shard)
    assert set(costs) == {
        ("analytical_constant", "main", 0), ("analytical_constant", "expert", 0), ("trees", "main", 0)
    }  # fmt: skip
    measured = np.concatenate([shard.runtime_ns(index) for index in range(len(shard))])
    exact, inexact = (
        np.concatenate(costs["analytical_constant", variant, 0]) for variant in ("expert", "main")
    )
    np.testing.assert_allclose(exact, measured, rtol=1e-9)
    assert np.abs(inexact / measured - 1.0).max() > 0.1


def test_trees_of_a_budget_are_fitted_beside_the_baselines(task: BaselineTask) -> None:
    folder = baselines_folder(task.folder.parent, "random", CHIP, "small", "seed1")
    budget = TreesBudget(kernels=2, configs=1, max_trees=3, patience=3)
    timing = folder.parent / "timing.json"
    small = replace(
        task, folder=folder, budget="small", seed=1, spec=budget.spec(ONE_DECISION), timing=timing
    )
    assert set(fit_baselines(small).models) == {"trees", "trees_analytical"}
    assert small.key != replace(small, budget="other").key
    fits = read_json(folder / "fits.json")
    assert set(fits) == set(read_json(timing)["core_seconds"]) == {"trees", "trees_analytical"}
    assert (fits["trees"]["kernels"], fits["trees"]["samples"]) == (2, 2)
    assert 1 <= fits["trees"]["trees"] <= 3
    shard = FeatureShard(feature_path(task.features, "fusion", CHIP, "b"))
    params = EvaluateParams(("random",), (1,), (0,))
    program = ProgramTask(
        Path("data"), task.features, CHIP, "b", (), params.models, params, frozenset(),
        fitted_with={("small", 1): folder},
    )  # fmt: skip
    costs = fitted_costs(program, "fusion", shard)
    assert list(costs) == [("trees", "small", 1), ("trees_analytical", "small", 1)]
    predicted = np.concatenate(costs["trees", "small", 1])
    measured = np.concatenate([shard.runtime_ns(index) for index in range(len(shard))])
    error = 100.0 * np.abs(predicted / measured - 1.0)
    assert error.min() <= fits["trees"]["validation"] <= error.max()
