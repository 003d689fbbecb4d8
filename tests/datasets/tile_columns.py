"""Small columns of tile and fusion shards, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costbench.arrays import AnyArray


def tile_columns(
    configs: Sequence[int] = (3, 2), *, seed: int = 0, fingerprints: Sequence[int] | None = None
) -> dict[str, AnyArray]:
    """Columns of one kernel per entry of `configs`, each with that many measured tiles.

    Kernel i has i + 1 inputs, two instructions and one output; its fingerprint is `fingerprints[i]` repeated.
    """
    generator = np.random.default_rng(seed)
    k, c = len(configs), int(np.sum(configs, dtype=np.int64))
    inputs = np.arange(1, k + 1)
    columns: dict[str, AnyArray] = {
        "kernel_computation": np.zeros(k, np.int32),
        "kernel_inputs_offsets": offsets(inputs),
        "kernel_inputs": np.arange(inputs.sum(), dtype=np.int32),
        "kernel_instructions_offsets": offsets([2] * k),
        "kernel_instructions": np.arange(2 * k, dtype=np.int32) + 100,
        "kernel_outputs_offsets": offsets([1] * k),
        "kernel_outputs": np.arange(k, dtype=np.int32) * 2 + 101,
        "kernel_fingerprint": np.array(fingerprints or range(k)).astype(np.uint8).repeat(16).reshape(k, 16),
        "kernel_runs": generator.integers(1, 9, k),
        "kernel_space_size": generator.integers(100, 10**9, k),
        "kernel_default_ns": generator.integers(1000, 2000, k),
        "config_offsets": offsets(configs),
        "config_tile": generator.integers(0, 100, c),
        "config_runtime_ns": generator.integers(1000, 10**6, c),
    }
    return columns


def fusion_columns(
    fingerprints: Sequence[int], default_runs: Sequence[int], runtime_ns: Sequence[int]
) -> dict[str, AnyArray]:
    """Columns of one kernel per entry, shaped as those of `tile_columns`, each at tile 0 of 5."""
    k = len(fingerprints)
    columns = tile_columns([1] * k, fingerprints=fingerprints)
    shared = {key: column for key, column in columns.items() if key not in _TILE_ONLY}
    return shared | {
        "kernel_default_runs": np.array(default_runs, np.int64),
        "kernel_space_size": np.full(k, 5),
        "kernel_tile": np.zeros(k, np.int64),
        "kernel_runtime_ns": np.array(runtime_ns, np.int64),
        "dropped_fingerprint": np.zeros((0, 16), np.uint8),
    }


_TILE_ONLY = {"kernel_runs", "kernel_default_ns", "config_offsets", "config_tile", "config_runtime_ns"}


def offsets(lengths: Sequence[int] | AnyArray) -> AnyArray:
    """Where parts of these lengths begin and end."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def metadata(
    program: str = "resnet", application: str = "ResNet v1", chip: str = "tpu_v3"
) -> dict[str, object]:
    """What a generator says of a shard."""
    return {"program": program, "application": application, "chip": chip, "task": "tile"}
