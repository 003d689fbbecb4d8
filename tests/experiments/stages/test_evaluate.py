"""Which test kernels the stage takes for seen."""

from __future__ import annotations

from pathlib import Path

from costbench.datasets.splits import Split
from costbench.datasets.storage import write_shard
from costbench.datasets.tile_kernels import CompiledPrograms, TileShard, shard_path
from costbench.experiments.stages.evaluate import _seen
from costbench.target import load_target
from tests.datasets.tile_columns import metadata, tile_columns


def test_kernels_of_training_programs_are_seen(tmp_path: Path) -> None:
    programs = {"a": [0, 1, 255], "b": [1, 4], "c": [0, 1, 2], "v": [2]}
    for name, fingerprints in programs.items():
        columns = tile_columns([2] * len(fingerprints), fingerprints=fingerprints)
        write_shard(shard_path(tmp_path, "tpu_v3", name), columns, metadata(name, "F"))
    seen = _seen(Split("random", ("a", "b"), ("v",), ("c",)), tmp_path, "tpu_v3")
    # A fingerprint of zeros is as long as any other; 2 occurs in validation only.
    assert seen == {"00" * 16, "01" * 16}
    shard = TileShard(
        shard_path(tmp_path, "tpu_v3", "c"),
        CompiledPrograms(tmp_path),
        load_target("tpu_v3").architecture,
    )
    assert [one in seen for one in shard.fingerprints()] == [True, True, False]
