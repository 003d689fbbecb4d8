"""Computes the dataset card, and the counts of programs and samples that lpm2021's Table 1 prints.

Shards are read one at a time, and only counts and histograms are kept, so a card of 200 million kernels takes
no more memory than one of a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from costbench.arrays import AnyArray
from costbench.datasets.histograms import LogHistogram
from costbench.datasets.splits import Split
from costbench.datasets.storage import Shard
from costbench.datasets.validation import ProgramShards, fingerprints

FAST_NS = 5_000
"""Half of the papers' fusion kernels are faster and left out of their main tables (lpm2021, section 4)."""
_UNIQUE_AT_ONCE = 1 << 22
_COUNTS, _TIMES = 5, 10
Quantity = tuple[int, Callable[[Shard], AnyArray]]


def dataset_card(shards: ProgramShards) -> dict[str, object]:
    """Returns the card of one task's samples on one chip.

    Returns:
        programs, applications, kernels, unique_kernels (by fingerprint), configs (samples), failed,
        device_seconds, fast_kernels (fusion: runtime below 5 us), tried_configs (fusion configurations that
        kernels are from), `by_application` (programs, kernels and configs of each), and `distributions`: for
        each quantity of the task (see `QUANTITIES`) the minimum, tenths, median, maximum and mean, and counts
        in logarithmic bins (see `LogHistogram.to_dict`).

    Raises:
        DataError: if a shard is damaged, or of a task that has no card.
    """
    totals = {"kernels": 0, "configs": 0, "failed": 0, "fast_kernels": 0, "tried_configs": 0}
    seconds = 0.0
    applications: dict[str, dict[str, int]] = {}
    histograms: dict[str, LogHistogram] = {}
    for program in shards.values():
        tried = 0
        for part, path in enumerate(program):
            shard = Shard.open(path)
            counts = _counts(shard)
            # The metadata of a part hold the number of configs tried up to its end.
            tried = max(tried, int(shard.metadata.get("num_configs", 0)))
            seconds += float(shard.metadata.get("device_seconds", 0.0))
            own = applications.setdefault(str(shard.metadata.get("application", "")), {})
            for name, count in {"programs": int(part == 0), **counts}.items():
                own[name] = own.get(name, 0) + count
            for name, count in counts.items():
                totals[name] += count
            for name, (bins, values) in QUANTITIES[shard.record.name].items():
                histograms.setdefault(name, LogHistogram(bins)).add(values(shard))
        totals["tried_configs"] += tried
    paths = [path for program in shards.values() for path in program]
    shown = ("programs", "kernels", "configs")
    return totals | {
        "programs": len(shards),
        "applications": len(applications),
        "unique_kernels": _count_unique(paths, totals["kernels"]),
        "device_seconds": round(seconds, 6),
        "by_application": {
            name: {key: own[key] for key in shown} for name, own in sorted(applications.items())
        },
        "distributions": {name: histogram.to_dict() for name, histogram in histograms.items()},
    }


def set_counts(split: Split, shards: ProgramShards) -> dict[str, dict[str, int]]:
    """Counts programs, kernels and samples of each set of a split as Table 1 of lpm2021 does.

    Kernels are counted once per program; a sample is a kernel at a tile size (tile), a kernel (fusion) or a
    program in a layout (layout).

    Raises:
        DataError: if a shard is damaged.
    """
    counts: dict[str, dict[str, int]] = {}
    for part, names in split.restricted(shards).items():
        opened = (Shard.open(path) for name in names for path in shards[name])
        sizes = [(shard.num_kernels, shard.num_configs) for shard in opened]
        counts[part] = {
            "programs": len(names),
            "kernels": sum(kernels for kernels, _ in sizes),
            "samples": sum(samples for _, samples in sizes),
        }
    return counts


def _counts(shard: Shard) -> dict[str, int]:
    timed = any(column.key == "kernel_runtime_ns" for column in shard.record.columns)
    return {
        "kernels": shard.num_kernels,
        "configs": shard.num_configs,
        "failed": int(shard.metadata.get("num_failed", 0)),
        "fast_kernels": int(np.count_nonzero(shard["kernel_runtime_ns"] < FAST_NS)) if timed else 0,
    }


def _count_unique(paths: Sequence[Path], kernels: int) -> int:
    """Counts distinct fingerprints, in several passes over the shards if one would need too much memory."""
    passes = -(-kernels // _UNIQUE_AT_ONCE)
    found = 0
    for turn in range(passes):
        parts = [np.empty(0, "S16")]
        for path in paths:
            shard = Shard.open(path)
            # Fingerprints are uniformly distributed, so their first two bytes divide kernels evenly.
            leading = np.ascontiguousarray(shard["kernel_fingerprint"][:, :2]).view("<u2").reshape(-1)
            parts.append(fingerprints(shard)[leading % passes == turn])
        found += len(np.unique(np.concatenate(parts)))
    return found


def _nodes(shard: Shard) -> AnyArray:
    return np.diff(shard["kernel_inputs_offsets"]) + np.diff(shard["kernel_instructions_offsets"])


def _tiles_per_kernel(shard: Shard) -> AnyArray:
    return np.diff(shard["config_offsets"])


def _spread_of_kernels(shard: Shard) -> AnyArray:
    """Returns the runtime of the slowest tile size over that of the fastest, for each kernel with samples."""
    runtime, offsets = shard["config_runtime_ns"], shard["config_offsets"]
    starts = offsets[:-1][np.diff(offsets) > 0]
    if not len(starts):
        return np.empty(0)
    return np.asarray(np.maximum.reduceat(runtime, starts) / np.minimum.reduceat(runtime, starts))


def _default_runs(shard: Shard) -> AnyArray:
    runs = shard["kernel_default_runs"]
    return np.asarray(runs[runs > 0])


def _spread_of_program(shard: Shard) -> AnyArray:
    runtime = shard["config_runtime_ns"]
    return np.array([runtime.max() / runtime.min()] if len(runtime) else [])


def _column(key: str) -> Callable[[Shard], AnyArray]:
    return lambda shard: shard[key]


QUANTITIES: Mapping[str, Mapping[str, Quantity]] = {
    "tile": {
        "tile_space_size": (_COUNTS, _column("kernel_space_size")),
        "configs_per_kernel": (_COUNTS, _tiles_per_kernel),
        "nodes_per_kernel": (_COUNTS, _nodes),
        "runs_per_program": (_COUNTS, _column("kernel_runs")),
        "default_runtime_ns": (_TIMES, _column("kernel_default_ns")),
        "runtime_ns": (_TIMES, _column("config_runtime_ns")),
        "runtime_spread": (_TIMES, _spread_of_kernels),
    },
    "fusion": {
        "tile_space_size": (_COUNTS, _column("kernel_space_size")),
        "nodes_per_kernel": (_COUNTS, _nodes),
        "runs_per_program": (_COUNTS, _default_runs),
        "runtime_ns": (_TIMES, _column("kernel_runtime_ns")),
    },
    "layout": {
        "configs_per_program": (_COUNTS, lambda shard: np.array([shard.num_configs])),
        "runtime_ns": (_TIMES, _column("config_runtime_ns")),
        "runtime_spread": (_TIMES, _spread_of_program),
    },
}
"""By task: name of a quantity -> coarse bins per decade, and its values in a shard. Spreads are of one
kernel's tile sizes, or of one program's layouts."""
