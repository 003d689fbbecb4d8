"""Models against profiles of a real machine: each is asked by its name and compared with the fastest runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.profiles.importing import ImportedProfiles, import_profiles
from costbench.errors import DataError
from costbench.experiments.evaluation.profiles import score_profiles
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.models.baselines.fitting import classes_of, save_baselines
from costbench.models.checkpoint import load_checkpoint, save_checkpoint
from costbench.models.graph_batch import FeatureScaling, KernelSamples
from costbench.models.learned import LearnedCostNet
from costbench.models.spec import NetSpec
from tests.datasets.profiles import tpu_profile
from tests.models.baselines.tables import SPEC, made_up

MEASURED_NS = (40_000.0, 8_000.0)
"""The dot and the fusion of `tpu_profile`."""
OWN = """
class Constant:
    tasks = ("fusion",)

    def predict(self, kernel, decisions):
        return [16_000.0] * len(decisions)
"""


@pytest.fixture
def imported(tmp_path: Path) -> ImportedProfiles:
    tpu_profile(tmp_path / "trace")
    return import_profiles(tmp_path / "trace", tmp_path / "data")


def test_estimates_are_scaled_to_the_kinds_of_the_program(tmp_path: Path, imported: ImportedProfiles) -> None:
    """With one dot and one elementwise kernel, the scaled estimates are the runtimes."""
    (score,) = score_profiles(tmp_path / "data", imported, ["analytical"])
    assert (score.program, score.model, score.kernels, score.kernels_ge5us) == (
        "jit_layer",
        "analytical",
        2,
        2,
    )
    assert score.metrics["mape"] == pytest.approx(0.0, abs=1e-9)
    assert score.metrics["kendall_tau"] == pytest.approx(1.0)
    shard = FeatureShard(feature_path(tmp_path / "data" / "features", "fusion", "tpu_v3", "jit_layer"))
    assert tuple(float(shard.runtime_ns(index)[0]) for index in range(len(shard))) == MEASURED_NS


def test_a_model_of_the_users_own_is_asked(
    tmp_path: Path, imported: ImportedProfiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of 24 of 40 us and 8 of 8 us."""
    (tmp_path / "profiled_model.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    (score,) = score_profiles(tmp_path / "data", imported, ["profiled_model:Constant"])
    assert score.metrics["mape"] == pytest.approx((60.0 + 100.0) / 2)


def test_trained_networks_and_fitted_baselines_are_asked_by_their_folders(
    tmp_path: Path, imported: ImportedProfiles
) -> None:
    score_profiles(tmp_path / "data", imported, ["analytical"])
    shard = FeatureShard(feature_path(tmp_path / "data" / "features", "fusion", "tpu_v3", "jit_layer"))
    samples = [
        KernelSamples(shard.graph(i), shard.config_features(i), shard.runtime_ns(i).astype(float), "", None)
        for i in range(len(shard))
    ]
    scaling = FeatureScaling.fit(samples)
    spec = NetSpec(hidden=8, opcode_embedding=4, static_features="kernel", columns=("sum",))
    save_checkpoint(tmp_path / "net", LearnedCostNet(spec, scaling.sizes, 5), scaling, "log_runtime_ns")
    fitted = {name: classes_of("fusion")[name].fit(made_up(0), made_up(1), SPEC, 7) for name in ("trees",)}
    save_baselines(tmp_path / "fitted", "fusion", fitted)
    names = [str(tmp_path / "net"), str(tmp_path / "fitted"), "analytical"]
    scores = score_profiles(tmp_path / "data", imported, names)
    assert [score.model for score in scores] == names
    predicted = load_checkpoint(tmp_path / "net").predict_kernels(samples)
    error = np.mean([abs(p[0] - m) / m for p, m in zip(predicted, MEASURED_NS, strict=True)])
    assert scores[0].metrics["mape"] == pytest.approx(100.0 * error, rel=1e-5)
    assert scores[1].metrics["mape"] > 0.0


def test_what_is_no_model_is_one_line(tmp_path: Path, imported: ImportedProfiles) -> None:
    with pytest.raises(DataError, match="no such folder"):
        score_profiles(tmp_path / "data", imported, [str(tmp_path / "missing")])


def test_a_model_of_tile_sizes_alone_is_named(
    tmp_path: Path, imported: ImportedProfiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tile_model.py").write_text(OWN.replace('"fusion"', '"tile"'))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="tile_model:Constant: is a model for tile"):
        score_profiles(tmp_path / "data", imported, ["analytical", "tile_model:Constant"])
