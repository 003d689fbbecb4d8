"""Computes the dataset card, and the counts of programs and samples that lpm2021's Table 1 prints.

Shards are read one at a time, and only counts and streaming histograms remain, so a card of 200 million
kernels takes no more memory than one of a thousand.

A histogram has two sets of bins. Fine bins are the upper bits of a float64 (exponent, 10 bits of mantissa),
so whole numbers below 2,048 have bins of their own and larger ones are exact to 0.1%; quantiles are computed
from these. Coarse bins are equal steps of the logarithm, the same ones for every data set; figures show
these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from costbench.arrays import AnyArray
from costbench.datasets.leakage import ProgramShards, fingerprints
from costbench.datasets.splits import Split
from costbench.datasets.storage import Shard

QUANTILES = (("min", 0.0), ("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("max", 1.0))
_DROPPED_BITS = 42
_ONE = int(np.float64(1.0).view(np.int64)) >> _DROPPED_BITS
_NUM_FINE = (int(np.float64(2.0**63).view(np.int64)) >> _DROPPED_BITS) - _ONE + 1
_DECADES = 19


class LogHistogram:
    """Histogram of numbers from 1 to 2^63.

    Args:
        bins_per_decade: coarse bins in a factor of ten; bin i holds 10^(i/b) up to, without, 10^((i+1)/b).
    """

    def __init__(self, bins_per_decade: int = 10) -> None:
        self.bins_per_decade = bins_per_decade
        self._edges = 10.0 ** (np.arange(1, _DECADES * bins_per_decade) / bins_per_decade)
        self._coarse = np.zeros(len(self._edges) + 1, np.int64)
        self._fine = np.zeros(_NUM_FINE, np.int64)
        self._sum = 0.0
        self._min, self._max = math.inf, -math.inf

    def add(self, values: npt.ArrayLike) -> None:
        """Counts the numbers of an array of any shape; those below 1, which do not occur, count as 1."""
        array = np.maximum(np.asarray(values, dtype=np.float64).reshape(-1), 1.0)
        if not len(array):
            return
        fine = (array.view(np.int64) >> _DROPPED_BITS) - _ONE
        self._fine += np.bincount(fine, minlength=_NUM_FINE)
        coarse = np.searchsorted(self._edges, array, side="right")
        self._coarse += np.bincount(coarse, minlength=len(self._coarse))
        self._sum += float(array.sum())
        self._min, self._max = min(self._min, float(array.min())), max(self._max, float(array.max()))

    @property
    def count(self) -> int:
        """Number of numbers that were counted."""
        return int(self._coarse.sum())

    def quantile(self, share: float) -> float:
        """Returns the number that `share` (0 to 1) of the numbers do not exceed, to 0.1%; exact at 0 and 1.

        It is the lower end of a fine bin, the smaller one if the quantile lies between two; NaN without
        numbers.
        """
        if not self.count:
            return math.nan
        if share in (0.0, 1.0):
            return self._max if share else self._min
        rank = math.floor(share * (self.count - 1))
        index = int(np.searchsorted(np.cumsum(self._fine), rank, side="right"))
        lower = float(np.int64((index + _ONE) << _DROPPED_BITS).view(np.float64))
        return max(lower, self._min)

    def to_dict(self) -> dict[str, object]:
        """Returns quantiles and mean by name, and the coarse counts.

        These go from the first to the last that is not 0: bin `first + i` has `counts[i]`. Without numbers,
        `counts` is empty and the only key.
        """
        used = np.flatnonzero(self._coarse)
        if not len(used):
            return {"bins_per_decade": self.bins_per_decade, "first": 0, "counts": []}
        quantiles = {name: self.quantile(share) for name, share in QUANTILES}
        return {
            "bins_per_decade": self.bins_per_decade,
            "first": int(used[0]),
            "counts": self._coarse[used[0] : used[-1] + 1].tolist(),
            **{name: int(q) if q == int(q) else round(q, 6) for name, q in quantiles.items()},
            "mean": round(self._sum / self.count, 6),
        }


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
            application = applications.setdefault(str(shard.metadata.get("application", "")), {})
            for name, count in {"programs": int(part == 0), **counts}.items():
                application[name] = application.get(name, 0) + count
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
            name: {key: counts[key] for key in shown} for name, counts in sorted(applications.items())
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
    count = 0
    for turn in range(passes):
        parts = [np.empty(0, "S16")]
        for path in paths:
            shard = Shard.open(path)
            # Fingerprints are uniformly distributed, so their first two bytes divide kernels evenly.
            leading = np.ascontiguousarray(shard["kernel_fingerprint"][:, :2]).view("<u2").reshape(-1)
            parts.append(fingerprints(shard)[leading % passes == turn])
        count += len(np.unique(np.concatenate(parts)))
    return count


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
