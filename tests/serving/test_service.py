"""The service answers as the model does, and refuses what the model was not made for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tile_space import tile_space
from costbench.errors import ChoiceError, DataError, TargetError
from costbench.models.checkpoint import load_checkpoint
from costbench.serving.requests import read_kernel, read_tiles
from costbench.serving.service import CostService, load_service
from costbench.target import load_target
from tests.experiments.finished_cells import finish_cell
from tests.serving.test_requests import GOOD, TEXT

INFEED = "HloModule m\nENTRY e { a = f32[2] parameter(0) b = token[] infeed(a) }"
ARCHITECTURE = load_target("tpu_v2").architecture


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_answers_are_the_models(task: str, tmp_path: Path) -> None:
    folder = finish_cell(tmp_path / "cell", task, "key", 0.5)
    kernel = read_kernel(TEXT, "request 0")
    model = load_checkpoint(folder)
    service = load_service(folder, task, "tpu_v2")
    if task == "tile":
        tiles = [GOOD, {"output_bounds": [16, 1], "kernel_bounds": [64, 1]}]
        row = {"kernel": TEXT, "tiles": tiles, "chip": "tpu_v2"}
        expected = model.predict(kernel, read_tiles(tiles, loop_nest(kernel), "")).tolist()
        assert service.answer([row, row]) == [{"costs": expected}] * 2
        assert len(set(expected)) == 2
    else:
        space = tile_space(kernel, ARCHITECTURE)
        chosen = space.nest.tile_sizes(AnalyticalModel(ARCHITECTURE).choose(space)[None])
        (answer,) = service.answer([{"kernel": TEXT, "chip": None}])
        assert answer == {"runtime_ns": pytest.approx(model.predict(kernel, chosen)[0])}
        assert answer["runtime_ns"] > 0
    assert service.answer([]) == []


def test_a_model_of_ours_is_a_model_too() -> None:
    """Whatever prices tile sizes can be served."""
    service = CostService(AnalyticalModel(ARCHITECTURE), "tile", "tpu_v2")
    (answer,) = service.answer([{"kernel": TEXT, "tiles": [GOOD]}])
    assert np.isfinite(answer["costs"]).all()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"kernel": TEXT, "tiles": [GOOD], "chip": "tpu_v9"}, "request 1.chip: is 'tpu_v9' (expected tpu_v2"),
        ({"tiles": [GOOD]}, "request 1.kernel: is None"),
        ({"kernel": TEXT}, "request 1.tiles: is None"),
        ({"kernel": INFEED, "tiles": [GOOD]}, "request 1."),
    ],
)  # fmt: skip
def test_errors_name_the_request(row: dict[str, object], message: str) -> None:
    service = CostService(AnalyticalModel(ARCHITECTURE), "tile", "tpu_v2")
    with pytest.raises(DataError) as raised:
        service.answer([{"kernel": TEXT, "tiles": [GOOD]}, row])
    assert str(raised.value).startswith(message)


def test_fused_kernels_are_priced_at_the_compilers_tile() -> None:
    service = CostService(AnalyticalModel(ARCHITECTURE), "fusion", "tpu_v2")
    with pytest.raises(DataError, match=r"request 0\.tiles: given"):
        service.answer([{"kernel": TEXT, "tiles": [GOOD]}])


def test_unknown_tasks_and_chips_are_errors() -> None:
    model = AnalyticalModel(ARCHITECTURE)
    with pytest.raises(ChoiceError, match="layout"):
        CostService(model, "layout", "tpu_v2")
    with pytest.raises(TargetError, match="tpu_v9"):
        CostService(model, "tile", "tpu_v9")
