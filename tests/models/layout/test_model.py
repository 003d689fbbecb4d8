from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.models.layout.inputs import LayoutScaling
from costbench.models.layout.model import MODEL_FILE, LayoutModel, load_layout_model, save_layout_model
from costbench.models.layout.network import LayoutNetwork
from costbench.models.model_files import WEIGHTS_FILE
from costbench.models.spec import LayoutNetSpec
from tests.checked_json import rewrite_json
from tests.models.layout.graphs import random_graph

GRAPH = random_graph(20, 40, 6, 12)


def saved(folder: Path) -> LayoutModel:
    scaling = LayoutScaling.fit([GRAPH])
    spec = LayoutNetSpec(hidden=8, opcode_embedding=4, pooling=("mean",))
    net = LayoutNetwork(spec, scaling.node.num_outputs, scaling.option.num_outputs, seed=3)
    save_layout_model(folder, net, scaling, "score", 7)
    return LayoutModel(net, scaling, "score", seed=7)


def test_a_loaded_model_predicts_the_same(tmp_path: Path) -> None:
    model = saved(tmp_path)
    loaded = load_layout_model(tmp_path)
    assert np.array_equal(loaded.predict(GRAPH), model.predict(GRAPH))
    assert (loaded.seed, loaded.predicts, loaded.net.spec) == (7, "score", model.net.spec)


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        saved(tmp_path / name)
    for file in (MODEL_FILE, WEIGHTS_FILE):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("file", [MODEL_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_damage_is_one_clear_error(tmp_path: Path, file: str, damage: str) -> None:
    saved(tmp_path)
    place = tmp_path / file
    if damage == "missing":
        place.unlink()
    else:
        place.write_bytes(place.read_bytes()[:-20])
    with pytest.raises(DataError, match=file):
        load_layout_model(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("format", "other"), ("predicts", "cost"), ("seed", "x"), ("scaling", []), ("net", {"hidden": 0})],
)
def test_a_wrong_description_names_the_field(tmp_path: Path, key: str, value: object) -> None:
    saved(tmp_path)
    rewrite_json(tmp_path / MODEL_FILE, lambda content: content.update({key: value}))
    with pytest.raises(DataError, match=key):
        load_layout_model(tmp_path)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    rewrite_json(tmp_path / MODEL_FILE, lambda content: content["net"].update(hidden=16))
    with pytest.raises(DataError, match="no weights of this network"):
        load_layout_model(tmp_path)
