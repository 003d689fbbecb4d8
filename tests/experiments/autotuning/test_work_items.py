"""Which programs gain most, by hand; what the work items are is tested with the stage."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from costbench.experiments.autotuning.comparison import AutotuneTask
from costbench.experiments.autotuning.tile_comparison import AutotuneTileParams
from costbench.experiments.autotuning.work_items import (
    ChosenPrograms,
    FusionTuning,
    TuningItem,
    evenly_spaced,
    exhaustive_gain,
)
from costbench.features.feature_shards import FeatureShard
from costbench.params import parse


class Samples:
    """Two kernels: estimates choose the slowest of three tile sizes, and the faster of two."""

    def runs(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([10, 1])

    def runtime_ns(self, index: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([[30, 20, 60], [50, 40]][index])

    def analytical_ns(self, index: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([[2.0, 3.0, 1.0], [2.0, 1.0]][index])


def test_a_gain_by_hand() -> None:
    # 10 * 60 + 40 over 10 * 20 + 40.
    assert exhaustive_gain(cast(FeatureShard, Samples())) == pytest.approx(640 / 240)


def test_the_key_of_a_work_item_names_all_that_tells_it_from_others() -> None:
    task = AutotuneTask("tile", Path("f"), "p", "tpu_v3", {}, AutotuneTileParams())
    assert TuningItem("gains", "A", 5, task).name == "tile-gains-tpu_v3-p"


def test_params_are_read_from_a_file() -> None:
    section = {
        "programs": {"splits": ["random"], "chips": ["tpu_v3"], "max_instructions": 4000},
        "models": ["main-fusion"],
        "search": {"hardware_minutes": [1, 10], "charging": {"compile_s": 14.4}},
    }
    params = parse(FusionTuning, section, where="params.yaml")
    assert params.programs == ChosenPrograms(("random",), ("tpu_v3",), max_instructions=4000)
    assert params.search.charging.compile_s == 14.4
    assert params.search.repeats == 10


def test_programs_are_taken_at_equal_distances() -> None:
    assert list(evenly_spaced(range(10), 3)) == [0, 3, 6]
    assert list(evenly_spaced(range(3), 5)) == list(evenly_spaced(range(3), 0)) == [0, 1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"gains": -1},
        {"splits": ("random", "random")},
        {"splits": ("alphabetical",)},
        {"splits": ("folds", "fold1")},
        {"gain_splits": ("random",)},
        {"splits": ("folds",), "gain_splits": ("fold2",)},
    ],
    ids=str,
)
def test_impossible_choices(wrong: dict[str, object]) -> None:
    values: dict[str, object] = {"splits": ("random",), "chips": ("tpu_v3",)}
    with pytest.raises(ValueError, match=list(wrong)[-1]):
        ChosenPrograms(**{**values, **wrong})  # type: ignore[arg-type]
