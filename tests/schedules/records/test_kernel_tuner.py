from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.artifacts import write_json
from costbench.errors import DataError
from costbench.rng import stream
from costbench.search.space import Seen, VectorSearchSpace
from costbench.search.strategies import STRATEGIES
from costbench_schedules.records.kernel_tuner import read_kernel_tuner

VALUES: dict[str, list[Any]] = {"block": [16, 32, 64], "unroll": [1, 2], "padding": ["none", "full"]}


def cache_file() -> dict[str, Any]:
    """A file in Kernel Tuner's format: all but one configuration, one of them a failure."""
    cache = {}
    for block, unroll, padding in itertools.product(*VALUES.values()):
        if (block, unroll, padding) == (64, 2, "full"):
            continue
        time: float | str = block / 16 + unroll + len(padding) / 10
        entry: dict[str, Any] = {"block": block, "unroll": unroll, "padding": padding, "time": time}
        entry |= {"times": [time, 1.5 * time, 1.5 * time], "compile_time": 200.0, "benchmark_time": 50.0}
        if (block, unroll) == (64, 1) and padding == "none":
            entry["time"] = "RuntimeFailedConfig"
            del entry["times"]
        cache[f"{block},{unroll},{padding}"] = entry | {"verification_time": 0, "timestamp": "2024-01-01"}
    return {
        "schema_version": "1.1.0",
        "device_name": "A4000",
        "kernel_name": "convolution",
        "problem_size": [4096, 4096],
        "tune_params_keys": list(VALUES),
        "tune_params": VALUES,
        "objective": "time",
        "cache": cache,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_json(tmp_path / "cache.json", cache_file())
    return tmp_path / "cache.json"


def test_measurements_are_those_of_the_file(path: Path) -> None:
    device = read_kernel_tuner(path)
    assert (device.device, device.kernel) == ("A4000", "convolution")
    space = device.space
    rows = np.array([[0, 0, 0], [2, 0, 0], [1, 1, 1]], dtype=np.int16)
    measurement = device.measure(space, rows)
    assert space.choices(rows[2]) == {"block": 32, "unroll": 2, "padding": "full"}
    assert measurement.runtime_ns.tolist() == [2_400_000, 0, 4_400_000]
    assert measurement.reasons == ("", "RuntimeFailedConfig", "")
    np.testing.assert_allclose(measurement.run_seconds, [0.25, 0, 0.25])
    np.testing.assert_allclose(measurement.spread, [0.5, 0, 0.5])


def test_what_the_file_does_not_have_is_refused(path: Path) -> None:
    device = read_kernel_tuner(path)
    missing = np.array([[2, 1, 1]], dtype=np.int16)
    assert not device.space.legal(missing)[0]
    with pytest.raises(DataError, match="was not recorded"):
        device.measure(device.space, missing)
    with pytest.raises(DataError, match="another file"):
        device.measure(read_kernel_tuner(path).space, missing)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_strategies_search_the_file(path: Path, name: str) -> None:
    device = read_kernel_tuner(path)
    space = VectorSearchSpace(device.space)
    proposals = STRATEGIES[name](space, stream(0, name), space.draw(stream(0, "start"), 2, Seen()))
    seen, best = Seen(), np.inf
    rows = next(proposals)
    while len(seen) < 11:
        seen.add(rows)
        measurement = device.measure(device.space, rows)
        scores = np.where(measurement.failed, np.inf, measurement.runtime_ns)
        best = min(best, float(scores.min()))
        try:
            rows = proposals.send(scores)
        except StopIteration:
            break
    assert best == 2_400_000


def test_neighbours_differ_in_one_parameter(path: Path) -> None:
    space = read_kernel_tuner(path).space
    moved = space.neighbours(space.default, stream(0, "near"), 50)
    assert np.all(np.count_nonzero(moved != space.default, axis=1) == 1)
    assert space.legal(moved).all()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cache": {}}, "cache"),
        ({"objective": "energy"}, "objective"),
        ({"tune_params": {"block": [16]}}, "tune_params"),
        ({"cache": {"8,1,none": {"block": 8, "unroll": 1, "padding": "none", "time": 1}}}, "cache.8,1,none"),
        ({"cache": {"k": {"block": 16, "unroll": 1, "padding": "none", "time": -1}}}, "cache.k"),
        ({"cache": {"k": {"block": 16, "unroll": 1, "padding": "none", "time": None}}}, "cache.k"),
    ],
)
def test_impossible_files_are_named(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    write_json(tmp_path / "bad.json", cache_file() | change)
    with pytest.raises(DataError) as error:
        read_kernel_tuner(tmp_path / "bad.json")
    assert error.value.field == field
    assert error.value.where is not None
    assert error.value.where.endswith("bad.json")


def test_another_file_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "other.json", {"cache": {}})
    with pytest.raises(DataError, match="no cache file"):
        read_kernel_tuner(tmp_path / "other.json")
