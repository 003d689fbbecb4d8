"""The card and the counts on shards that can be counted by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.datasets import card as card_module
from costbench.datasets.card import LogHistogram, dataset_card, set_counts
from costbench.datasets.record_types import FUSION
from costbench.datasets.splits import Split
from costbench.datasets.storage import write_shard
from tests.datasets.tile_columns import fusion_columns, metadata, tile_columns


def _tile(
    folder: Path,
    program: str,
    runtimes: Sequence[Sequence[int]],
    fingerprints: Sequence[int],
    application: str = "A",
) -> Path:
    columns = tile_columns([len(times) for times in runtimes], fingerprints=fingerprints)
    columns["config_runtime_ns"] = np.array([t for times in runtimes for t in times], np.int64)
    path = folder / f"{program}.arrow"
    write_shard(path, columns, metadata(program, application) | {"num_failed": 3, "device_seconds": 0.5})
    return path


def _fusion(folder: Path, name: str, runs: Sequence[int], runtime: Sequence[int], tried: int) -> Path:
    columns = fusion_columns(list(range(len(runs))), runs, runtime)
    path = folder / f"{name}.arrow"
    write_shard(path, columns, metadata("p", "A") | {"num_configs": tried}, FUSION)
    return path


def test_a_tile_card(tmp_path: Path) -> None:
    a = _tile(tmp_path, "a", [[10, 20, 5], [7]], [1, 2])
    b = _tile(tmp_path, "b", [[100, 100]], [2], "B")
    card: dict[str, Any] = dataset_card({"a": (a,), "b": (b,)})
    counts = ("programs", "applications", "kernels", "unique_kernels", "configs", "failed", "device_seconds")
    assert tuple(card[name] for name in counts) == (2, 2, 3, 2, 6, 6, 1.0)
    assert card["by_application"] == {
        "A": {"programs": 1, "kernels": 2, "configs": 4},
        "B": {"programs": 1, "kernels": 1, "configs": 2},
    }
    spread = card["distributions"]
    # Kernel i of a shard has i + 1 inputs and two instructions: 3, 4 and 3 nodes.
    assert (spread["nodes_per_kernel"]["max"], spread["nodes_per_kernel"]["mean"]) == (4, round(10 / 3, 6))
    assert spread["configs_per_kernel"]["median"] == 2
    assert spread["runtime_ns"]["min"] == 5
    assert spread["runtime_ns"]["max"] == 100
    # Slowest over fastest: 20 / 5, one tile only, two equal ones.
    assert (spread["runtime_spread"]["max"], spread["runtime_spread"]["median"]) == (4, 1)
    assert sum(spread["runtime_spread"]["counts"]) == 3
    assert json.dumps(card)


def test_a_fusion_card_of_parts(tmp_path: Path) -> None:
    parts = (_fusion(tmp_path, "p.0", [1, 0], [4_999, 5_000], 3), _fusion(tmp_path, "p.1", [3], [10], 7))
    card: dict[str, Any] = dataset_card({"p": parts})
    assert (card["programs"], card["kernels"], card["configs"], card["fast_kernels"]) == (1, 3, 3, 2)
    assert card["by_application"] == {"A": {"programs": 1, "kernels": 3, "configs": 3}}
    # The second part ends after the seventh config, the first one after the third.
    assert card["tried_configs"] == 7
    # Kernels that only other fusions make do not run in the program: one run, and three.
    assert sum(card["distributions"]["runs_per_program"]["counts"]) == 2
    assert card["distributions"]["runs_per_program"]["max"] == 3


def test_unique_kernels_do_not_depend_on_the_number_of_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = _tile(tmp_path, "a", [[1]] * 40, list(range(40)))
    b = _tile(tmp_path, "b", [[1]] * 40, list(range(20, 60)))
    assert dataset_card({"a": (a,), "b": (b,)})["unique_kernels"] == 60
    monkeypatch.setattr(card_module, "_UNIQUE_AT_ONCE", 7)
    assert dataset_card({"a": (a,), "b": (b,)})["unique_kernels"] == 60


def test_kernels_without_samples(tmp_path: Path) -> None:
    a = _tile(tmp_path, "a", [[], [3, 9], []], [1, 2, 3])
    empty = _tile(tmp_path, "b", [], [])
    card: dict[str, Any] = dataset_card({"a": (a,), "b": (empty,)})
    assert sum(card["distributions"]["runtime_spread"]["counts"]) == 1
    assert card["distributions"]["runtime_spread"]["max"] == 3
    assert dataset_card({})["kernels"] == 0


def test_counts_of_sets(tmp_path: Path) -> None:
    a = _tile(tmp_path, "a", [[1, 2], [3]], [1, 2])
    b = _tile(tmp_path, "b", [[1, 2, 3]], [1])
    split = Split("random", ("a",), (), ("b", "without samples"), ("gone",))
    assert set_counts(split, {"a": (a,), "b": (b,)}) == {
        "train": {"programs": 1, "kernels": 2, "samples": 3},
        "validation": {"programs": 0, "kernels": 0, "samples": 0},
        "test": {"programs": 1, "kernels": 1, "samples": 3},
        "dropped": {"programs": 0, "kernels": 0, "samples": 0},
    }


def test_counts_by_hand() -> None:
    histogram = LogHistogram(1)
    histogram.add([1, 9, 10])
    histogram.add(np.array([[99, 100], [5_000, 1]]))
    assert histogram.to_dict() == {
        "bins_per_decade": 1,
        "first": 0,
        "counts": [3, 2, 1, 1],
        "min": 1,
        "p10": 1,
        "median": 10,
        "p90": 100,
        "max": 5_000,
        "mean": round(5_220 / 7, 6),
    }


def test_empty_bins_before_the_first_are_left_out() -> None:
    histogram = LogHistogram(2)
    histogram.add([1_000, 100_000])
    content = histogram.to_dict()
    # 1,000 is 10^(6/2), 100,000 is 10^(10/2).
    assert (content["first"], content["counts"]) == (6, [1, 0, 0, 0, 1])


def test_nothing_counted() -> None:
    histogram = LogHistogram()
    histogram.add([])
    assert histogram.to_dict() == {"bins_per_decade": 10, "first": 0, "counts": []}
    assert math.isnan(histogram.quantile(0.5))


def test_ratios_are_numbers_too() -> None:
    histogram = LogHistogram()
    histogram.add([1.0, 1.5, 2.25])
    assert histogram.quantile(0.5) == 1.5
    assert histogram.to_dict()["max"] == 2.25


@given(st.lists(st.integers(1, 2**62), min_size=1), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
def test_quantiles_are_those_of_sorting_to_a_thousandth(values: list[int], share: float) -> None:
    histogram = LogHistogram(5)
    half = len(values) // 2
    histogram.add(values[:half])
    histogram.add(values[half:])
    wanted = float(sorted(values)[math.floor(share * (len(values) - 1))])
    assert histogram.quantile(share) == pytest.approx(wanted, rel=1e-3)
    assert sum(histogram.to_dict()["counts"]) == len(values)  # type: ignore[call-overload]


@given(st.lists(st.integers(1, 2_047), min_size=1))
def test_small_whole_numbers_are_exact(values: list[int]) -> None:
    histogram = LogHistogram()
    histogram.add(values)
    assert histogram.quantile(0.5) == sorted(values)[(len(values) - 1) // 2]
    assert histogram.to_dict()["mean"] == round(sum(values) / len(values), 6)
