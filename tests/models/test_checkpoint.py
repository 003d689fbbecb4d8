from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.artifacts import digest_bytes
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import QUALITIES
from costbench.compiler.tile_space import tile_space
from costbench.errors import DataError
from costbench.models.checkpoint import MODEL_FILE, load_checkpoint, save_checkpoint
from costbench.models.graph_batch import FeatureScaling
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.model_files import WEIGHTS_FILE
from costbench.models.spec import NetSpec
from costbench.target import load_target
from tests.checked_json import rewrite_json
from tests.compiler import small_kernels as small

SAMPLES = [kernel_samples(seed, nodes, 7) for seed, nodes in enumerate((2, 6))]
SCALING = FeatureScaling.fit(SAMPLES)
SPEC = NetSpec(hidden=8, opcode_embedding=4, static_features="kernel", columns=("sum",))


def net(seed: int = 5) -> LearnedCostNet:
    return LearnedCostNet(SPEC, SCALING.sizes, seed)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "model", net(), SCALING, "log_runtime_ns")
    return tmp_path / "model"


def rewrite(folder: Path, **changes: Any) -> None:
    rewrite_json(folder / MODEL_FILE, lambda content: content.update(changes))


def replace_weights(folder: Path, state: object) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    (folder / WEIGHTS_FILE).write_bytes(buffer.getvalue())
    rewrite(folder, weights_sha256=digest_bytes(buffer.getvalue()))


def test_a_loaded_model_predicts_the_same(saved: Path) -> None:
    before = LearnedCostModel(net(), SCALING, "log_runtime_ns")
    after = load_checkpoint(saved)
    assert after.net.spec == SPEC
    for sample in SAMPLES:
        costs = (model.predict_graph(sample.graph, sample.config_features) for model in (before, after))
        np.testing.assert_array_equal(*costs)


def test_a_hybrid_asks_for_estimates_of_the_quality_that_it_was_trained_with(tmp_path: Path) -> None:
    architecture, kernel = load_target("tpu_v3").architecture, small.dot()
    tiles = tile_space(kernel, architecture).decode(np.array([0, 1]))
    for quality in ("", "expert"):
        spec = replace(SPEC, residual="analytical", estimate=quality)
        network = LearnedCostNet(spec, SCALING.sizes, 5)
        save_checkpoint(tmp_path / quality, network, SCALING, "score")
        loaded = load_checkpoint(tmp_path / quality, analytical=AnalyticalModel(architecture))
        expected = AnalyticalModel(architecture, QUALITIES[quality or architecture.estimate])
        estimates = loaded.estimates(kernel, tiles)
        assert estimates is not None
        assert estimates.tolist() == expected.predict(kernel, tiles).tolist()


def test_a_hybrid_comes_back_with_its_coefficient(tmp_path: Path) -> None:
    network = LearnedCostNet(replace(SPEC, residual="analytical"), SCALING.sizes, 5)
    with torch.no_grad():
        assert network.log_coefficient is not None
        network.log_coefficient.fill_(0.25)
    save_checkpoint(tmp_path, network, SCALING, "score")
    found = load_checkpoint(tmp_path).net
    assert found.spec.residual == "analytical"
    assert found.log_coefficient is not None
    assert found.log_coefficient.item() == 0.25


def test_equal_models_are_equal_bytes(saved: Path, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "elsewhere", net(), SCALING, "log_runtime_ns")
    for name in (MODEL_FILE, WEIGHTS_FILE):
        assert (saved / name).read_bytes() == (tmp_path / "elsewhere" / name).read_bytes()


def test_saving_over_a_model_replaces_it_whole(saved: Path) -> None:
    save_checkpoint(saved, net(seed=6), SCALING, "score")
    assert sorted(path.name for path in saved.iterdir()) == [MODEL_FILE, WEIGHTS_FILE]
    loaded = load_checkpoint(saved)
    assert loaded.predicts == "score"
    assert torch.equal(loaded.net.opcode_embedding.weight, net(seed=6).opcode_embedding.weight)


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path) -> None:
    broken = net()
    torch.nn.init.constant_(broken.reduction.head.cost.weight, torch.inf)
    with pytest.raises(DataError, match=r"reduction\.head\.cost\.weight: NaN or infinite"):
        save_checkpoint(tmp_path / "model", broken, SCALING, "score")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", [MODEL_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_truncated_files_are_refused_by_name(saved: Path, name: str, kept: float) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(DataError, match=name):
        load_checkpoint(saved)


@pytest.mark.parametrize("name", [MODEL_FILE, WEIGHTS_FILE])
def test_missing_files_are_refused_by_name(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(DataError, match=f"{name}: no such file"):
        load_checkpoint(saved)


def test_weights_of_another_model_are_refused(saved: Path, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "other", net(seed=6), SCALING, "score")
    (saved / WEIGHTS_FILE).write_bytes((tmp_path / "other" / WEIGHTS_FILE).read_bytes())
    with pytest.raises(DataError, match="not the weights"):
        load_checkpoint(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "something else"}, "format: is no learned model"),
        ({"features": "0" * 16}, "features: trained on other features"),
        ({"predicts": "joules"}, "predicts: 'joules'"),
        ({"surprise": 1}, "surprise"),
        ({"net": {"hidden": "wide"}}, r"net\.hidden"),
        ({"net": {"encoder": "gcn9"}}, "unknown encoder 'gcn9'"),
        ({"net": {"hidden": 16}}, "no weights of this network"),
        ({"net": {"hidden": 256, "encoder": "pyg.GCNConv"}}, "no weights of this network"),
        ({"scaling": []}, "scaling: is no scaling"),
        ({"scaling": {"node": {}, "decision": {}, "static": {}}}, "scaling"),
    ],
)
def test_foreign_descriptions_are_refused(saved: Path, changes: dict[str, Any], message: str) -> None:
    rewrite(saved, **changes)
    with pytest.raises(DataError, match=message):
        load_checkpoint(saved)


def test_a_list_is_no_model(saved: Path) -> None:
    (saved / MODEL_FILE).write_text("[1]")
    with pytest.raises(DataError, match="is no learned model"):
        load_checkpoint(saved)


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_code_in_weights_is_not_run(saved: Path, tmp_path: Path) -> None:
    replace_weights(saved, {"opcode_embedding.weight": Payload(tmp_path / "ran")})
    with pytest.raises(DataError, match=WEIGHTS_FILE):
        load_checkpoint(saved)
    assert not (tmp_path / "ran").exists()


def test_weights_with_nan_are_refused(saved: Path) -> None:
    state = dict(net().state_dict())
    state["opcode_embedding.weight"] = torch.full_like(state["opcode_embedding.weight"], torch.nan)
    replace_weights(saved, state)
    with pytest.raises(DataError, match=r"opcode_embedding\.weight: NaN or infinite"):
        load_checkpoint(saved)
