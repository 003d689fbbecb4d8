from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.splits import Split
from costbench.datasets.storage import Shard, write_shard
from costbench.datasets.validation import dataset_card, leakage_audit
from costbench.errors import DataError
from tests.datasets.tile_columns import metadata, tile_columns

Make = Callable[..., Shard]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def write(
        program: str,
        fingerprints: list[int],
        default_ns: list[int],
        runs: list[int],
        chip: str = "tpu_v3",
    ) -> Shard:
        columns = tile_columns([2] * len(fingerprints), fingerprints=fingerprints)
        columns["kernel_default_ns"] = np.array(default_ns, np.int64)
        columns["kernel_runs"] = np.array(runs, np.int64)
        path = tmp_path / chip / f"{program}.shard"
        write_shard(path, columns, metadata(program, program.upper(), chip) | {"num_failed": 3})
        return Shard.open(path)

    return write


def test_leakage_by_count_and_by_runtime(make: Make) -> None:
    shards = [
        make("a", [1, 2, 3], [10, 10, 10], [1, 1, 1]),
        make("b", [4], [10], [1]),
        make("c", [2, 4, 5, 6], [100, 200, 300, 50], [1, 2, 1, 2]),
        make("d", [7], [1000], [1]),
        make("v", [1, 8], [10, 30], [1, 1]),
        make("x", [5, 6, 7], [1, 1, 1], [1, 1, 1]),  # dropped: what it has in common with c and d is no leak
    ]
    report = leakage_audit(Split("manual", ("a", "b"), ("v",), ("c", "d"), ("x",)), shards)
    # Of c, 2 and 4 occur in a and b: 100 + 2 * 200 of 100 + 400 + 300 + 100; nothing of d does.
    c, d = dict(report.by_program)["c"], dict(report.by_program)["d"]
    assert (c.kernels, c.leaked_kernels, c.runtime_ns, c.leaked_runtime_ns) == (4, 2, 900, 500)
    assert (d.kernels, d.leaked_kernels, d.runtime_ns, d.leaked_runtime_ns) == (1, 0, 1000, 0)
    assert report.test.share_of_kernels == pytest.approx(2 / 5)
    assert report.test.share_of_runtime == pytest.approx(500 / 1900)
    assert report.validation.share_of_kernels == 0.5
    assert report.validation.share_of_runtime == 0.25
    content = json.loads(json.dumps(report.to_dict()))
    assert content["split"] == "manual"
    assert content["test"]["leaked_kernels"] == 2
    assert content["by_program"]["c"]["share_of_kernels"] == 0.5


def test_nothing_leaks_without_kernels_or_validation(make: Make) -> None:
    shards = [make("a", [1], [10], [1]), make("b", [], [], [])]
    report = leakage_audit(Split("random", ("a",), (), ("b",)), shards)
    assert (report.test.share_of_kernels, report.test.share_of_runtime) == (0.0, 0.0)
    assert report.validation.kernels == 0


def test_the_audit_needs_one_shard_per_program_of_one_chip(make: Make) -> None:
    a, b = make("a", [1], [10], [1]), make("b", [1], [10], [1])
    split = Split("random", ("a",), (), ("b",))
    with pytest.raises(DataError, match="test: no shard of b"):
        leakage_audit(split, [a])
    with pytest.raises(DataError, match="a second shard of a"):
        leakage_audit(split, [a, b, a])
    with pytest.raises(DataError, match="shards of tpu_v2, tpu_v3"):
        leakage_audit(split, [a, make("b", [1], [10], [1], chip="tpu_v2")])


def test_the_card_counts_and_describes(make: Make) -> None:
    shards = [
        make("a", [1, 2], [10, 20], [1, 4]),
        make("b", [2, 3, 4], [30, 40, 50], [1, 1, 1]),
        make("a", [1], [99], [1], chip="tpu_v2"),
    ]
    card = dataset_card(shards)
    assert list(card) == ["tpu_v2", "tpu_v3"]
    chip = card["tpu_v3"]
    assert isinstance(chip, dict)
    assert (chip["programs"], chip["applications"], chip["kernels"], chip["unique_kernels"]) == (2, 2, 5, 4)
    assert (chip["configs"], chip["failed"], chip["device_seconds"]) == (10, 6, 0.0)
    spread = chip["distributions"]
    assert spread["default_runtime_ns"] == {"min": 10, "p10": 10, "median": 30, "p90": 40, "max": 50}
    assert spread["runs_per_program"]["max"] == 4
    # Kernel i has i + 1 inputs and two instructions.
    assert spread["nodes_per_kernel"] == {"min": 3, "p10": 3, "median": 4, "p90": 4, "max": 5}
    assert spread["configs_per_kernel"]["median"] == 2
    assert json.dumps(card)


def test_a_card_of_nothing(make: Make) -> None:
    assert dataset_card([]) == {}
    empty = dataset_card([make("a", [], [], [])])["tpu_v3"]
    assert isinstance(empty, dict)
    assert empty["kernels"] == 0
    assert empty["distributions"]["runtime_ns"] == {}
