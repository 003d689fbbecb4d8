"""The summary of a finished shard, which every stage that makes shards logs."""

from __future__ import annotations

from dataclasses import dataclass

from costbench.store import KeyedResult


@dataclass(frozen=True)
class ShardSummary:
    """How much a shard holds, and what it cost to measure.

    Attributes:
        task: what is decided: `tile`, `fusion` or `layout`.
        name: of the program.
        chip: it ran on.
        num_kernels: unique kernels that have samples.
        num_samples: decisions that ran.
        num_failed: compiles that failed.
        device_seconds: accelerator time charged.
    """

    task: str
    name: str
    chip: str
    num_kernels: int
    num_samples: int
    num_failed: int
    device_seconds: float


@dataclass(frozen=True)
class Shards(KeyedResult):
    """Finished shards, as the store keeps them.

    Attributes:
        summaries: one a shard, in the order of their paths.
    """

    summaries: tuple[ShardSummary, ...]
