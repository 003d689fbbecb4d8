from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import AnyArray
from costbench.datasets.fusion.shards import (
    finished_parts,
    fusion_part_path,
    joined,
    progress_of,
    write_part,
)
from costbench.datasets.record_types import FUSION
from costbench.datasets.records import check_columns
from costbench.datasets.storage import verify_shard

CHIPS = ("tpu_v2", "tpu_v3")


def batch(*lengths: int, first: int = 0) -> dict[str, AnyArray]:
    """Kernels with so many instructions each; the number of a kernel is its fingerprint's first byte."""
    k = len(lengths)
    digests = np.zeros((k, 16), np.uint8)
    digests[:, 0] = np.arange(first, first + k)
    columns: dict[str, AnyArray] = {
        "kernel_computation": np.zeros(k, np.int32),
        "kernel_fingerprint": digests,
    }
    for part, sizes in (("instructions", lengths), ("inputs", [1] * k), ("outputs", [1] * k)):
        columns[f"kernel_{part}_offsets"] = np.cumsum([0, *sizes]).astype(np.int64)
        columns[f"kernel_{part}"] = np.arange(sum(sizes), dtype=np.int32) + first
    for key in ("default_runs", "space_size", "tile", "runtime_ns"):
        columns[f"kernel_{key}"] = np.arange(first, first + k, dtype=np.int64) + 1
    columns["dropped_fingerprint"] = np.full((1 if k else 0, 16), 200 + first, np.uint8)
    return columns


def metadata(part: int, num_configs: int, *, last: bool = False, key: str = "k") -> dict[str, object]:
    return {"key": key, "part": part, "last": last, "num_configs": num_configs}


def test_batches_are_laid_end_to_end() -> None:
    columns = joined([batch(2, 3), batch(), batch(1, first=2)])
    check_columns(FUSION, columns, Path("x.arrow"))
    assert columns["kernel_instructions_offsets"].tolist() == [0, 2, 5, 6]
    assert columns["kernel_instructions"].tolist() == [0, 1, 2, 3, 4, 2]
    assert columns["kernel_runtime_ns"].tolist() == [1, 2, 3]
    assert columns["kernel_fingerprint"][:, 0].tolist() == [0, 1, 2]
    assert columns["dropped_fingerprint"][:, 0].tolist() == [200, 202]


def test_no_batch_is_a_part_without_kernels(tmp_path: Path) -> None:
    write_part(tmp_path / "x.arrow", [], metadata(0, 5, last=True))
    shard = verify_shard(tmp_path / "x.arrow")
    assert (shard.num_kernels, shard.num_configs) == (0, 0)


def write(folder: Path, chip: str, part: int, **more: object) -> None:
    content = {**metadata(part, 10 * (part + 1)), **more}
    write_part(fusion_part_path(folder, chip, "p", part), [batch(1, 2, first=2 * part)], content)


def test_progress_reaches_as_far_as_the_chip_that_lags_behind(tmp_path: Path) -> None:
    for chip, parts in zip(CHIPS, (3, 2), strict=True):
        for part in range(parts):
            write(tmp_path, chip, part, last=part == 2)
    progress = progress_of(tmp_path, CHIPS, "p", "k")
    assert (progress.parts, progress.num_configs, progress.complete) == (2, 20, False)
    assert {digest[0] for digest in progress.fingerprints} == {0, 1, 2, 3, 200, 202}
    write(tmp_path, CHIPS[1], 2, last=True)
    assert progress_of(tmp_path, CHIPS, "p", "k").complete


def test_what_other_inputs_made_does_not_count_nor_what_comes_after_it(tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path, CHIPS[0], part)
    write(tmp_path, CHIPS[0], 1, key="other")
    assert len(finished_parts(tmp_path, CHIPS[0], "p", "k")) == 1
    assert finished_parts(tmp_path, CHIPS[0], "q", "k") == []
    assert progress_of(tmp_path, CHIPS[:1], "q", "k").num_configs == 0


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_part_ends_what_is_there(tmp_path: Path, damage: str) -> None:
    for part in range(3):
        write(tmp_path, CHIPS[0], part)
    path = fusion_part_path(tmp_path, CHIPS[0], "p", 1)
    path.write_bytes(path.read_bytes()[:-8]) if damage == "cut" else path.unlink()
    assert len(finished_parts(tmp_path, CHIPS[0], "p", "k")) == 1
