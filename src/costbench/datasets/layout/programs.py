"""Reads layout shards as measured programs, the form in which TpuGraphs' files hold them.

`costbench.datasets.tpugraphs.raw` writes such a program as a raw file, `costbench.features.tpugraphs_graphs`
turns it into an `.npz` graph.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.arrays import I8
from costbench.compiler.fingerprints import module_fingerprint
from costbench.datasets.layout.columns import DEFAULT, LAYOUT
from costbench.datasets.storage import Shard
from costbench.datasets.tpugraphs.tuning import MAX_RANK, NUM_TENSORS, TuningProgram
from costbench.errors import DataError
from costbench.hlo.reader import module_from_bytes


def layout_shard_path(folder: Path, chip: str, program: str) -> Path:
    """Returns the path of the layout shard of a program on a chip."""
    return folder / "layout" / chip / f"{program}.arrow"


def open_layout_shard(path: Path) -> Shard:
    """Opens a layout shard. Raises: DataError, if it is not one, damaged or of another version."""
    shard = Shard.open(path)
    if shard.record is not LAYOUT:
        raise DataError(f"holds {shard.record.name} samples", where=path, expected="layout samples")
    return shard


def config_features(shard: Shard, start: int = 0, stop: int | None = None) -> I8:
    """Returns TpuGraphs' layout features of a range of configs, int8 [c, n, 18].

    Raises:
        DataError: if a config has an option that its node does not have.
    """
    first, end = shard["option_offsets"][:-1], shard["option_offsets"][1:]
    rows = first + shard["config_options"][start:stop]
    if (rows >= end).any():
        raise DataError("has an option that does not exist", where=shard.path, field="config_options")
    features: I8 = shard["option_layout"][rows]
    return features


def read_layout_program(path: Path) -> TuningProgram:
    """Returns the contents of a shard: program, configurable nodes, layouts and runtime of every config.

    Raises:
        DataError: if the file is not a layout shard or damaged.
        HloError: if its program cannot be read.
    """
    shard = open_layout_shard(path)
    module = module_from_bytes(shard["program"].tobytes(), where=str(path))
    ids = np.array(module.offsets)[shard["node_computation"]] + shard["node_position"]
    layouts = config_features(shard)
    return TuningProgram(
        module=module,
        node_config_ids=ids.astype(np.int64),
        minor_to_major=layouts.reshape(*layouts.shape[:2], NUM_TENSORS, MAX_RANK).astype(np.int64),
        runtime_ns=np.asarray(shard["config_runtime_ns"]),
        is_default=shard["config_source"] == DEFAULT,
        num_failed=int(shard.metadata["num_failed"]),
        fingerprint=int(module_fingerprint(module)[:16], 16),
    )
