"""What a data set holds and what leaks: the dataset card and the audit of test kernels seen in training.

A split over programs does not keep kernels apart: models of one kind share layers, and every optimiser
updates its weights alike. The audit counts the test kernels whose fingerprint also occurs in a training
program, so that a result can be read with that number beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from costbench.datasets.splits import Split
from costbench.datasets.storage import Shard
from costbench.errors import DataError

_QUANTILES = (("min", 0.0), ("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("max", 1.0))


@dataclass(frozen=True, slots=True)
class Leakage:
    """Kernels of one set that also occur in training.

    Attributes:
        kernels: unique kernels of the set, counted per program.
        leaked_kernels: those whose fingerprint occurs in a training program.
        runtime_ns: runtime of the set's kernels with their default decisions, executions counted.
        leaked_runtime_ns: that of the leaked ones.
    """

    kernels: int
    leaked_kernels: int
    runtime_ns: int
    leaked_runtime_ns: int

    @property
    def share_of_kernels(self) -> float:
        """Leaked kernels in all kernels, 0 to 1; 0 without kernels."""
        return self.leaked_kernels / self.kernels if self.kernels else 0.0

    @property
    def share_of_runtime(self) -> float:
        """Runtime of leaked kernels in the runtime of all, 0 to 1; 0 without kernels."""
        return self.leaked_runtime_ns / self.runtime_ns if self.runtime_ns else 0.0

    def to_dict(self) -> dict[str, float]:
        """Counts and shares, for reports."""
        shares = {"share_of_kernels": self.share_of_kernels, "share_of_runtime": self.share_of_runtime}
        return asdict(self) | shares


@dataclass(frozen=True, slots=True)
class LeakageReport:
    """What a split leaks from training.

    Attributes:
        split: its name.
        test: kernels of the test programs.
        validation: kernels of the validation programs.
        by_program: of each test program, sorted by name.
    """

    split: str
    test: Leakage
    validation: Leakage
    by_program: tuple[tuple[str, Leakage], ...]

    def to_dict(self) -> dict[str, object]:
        """For a JSON file."""
        return {
            "split": self.split,
            "test": self.test.to_dict(),
            "validation": self.validation.to_dict(),
            "by_program": {name: leakage.to_dict() for name, leakage in self.by_program},
        }


def leakage_audit(split: Split, shards: Sequence[Shard]) -> LeakageReport:
    """Counts kernels of test and validation programs that occur in training programs, by fingerprint.

    Args:
        split: the programs by set.
        shards: one per program, all of one chip (fingerprints do not depend on it, runtimes do); shards of
            programs that the split drops are passed over.

    Raises:
        DataError: if shards are of several chips, if a program has two, or if one of the split has none.
    """
    by_program = _by_program(shards)
    for part in ("train", "validation", "test"):
        missing = sorted(set(split.sets()[part]) - by_program.keys())
        if missing:
            raise DataError(f"no shard of {', '.join(missing)}", where=f"split {split.name}", field=part)
    seen = np.unique(np.concatenate([_fingerprints(by_program[name]) for name in split.train]))
    per_test = tuple((name, _leakage(by_program[name], seen)) for name in split.test)
    validation = [_leakage(by_program[name], seen) for name in split.validation]
    return LeakageReport(split.name, _sum(leakage for _, leakage in per_test), _sum(validation), per_test)


def dataset_card(shards: Sequence[Shard]) -> dict[str, object]:
    """What a data set holds, chip by chip and over all: counts and distributions.

    Returns:
        for each chip: programs, applications, kernels, unique_kernels (by fingerprint), configs, failed,
        device_seconds, and under `distributions` the minimum, tenths, median and maximum over kernels of
        tile_space_size, configs_per_kernel, nodes_per_kernel (inputs and instructions), default_runtime_ns
        and runs_per_program, and over configs of runtime_ns.
    """
    chips = sorted({str(shard.metadata["chip"]) for shard in shards})
    return {chip: _card([shard for shard in shards if shard.metadata["chip"] == chip]) for chip in chips}


def _by_program(shards: Sequence[Shard]) -> dict[str, Shard]:
    chips = {str(shard.metadata["chip"]) for shard in shards}
    if len(chips) > 1:
        raise DataError(f"shards of {', '.join(sorted(chips))}", where="leakage audit", expected="one chip")
    by_program: dict[str, Shard] = {}
    for shard in shards:
        name = str(shard.metadata["program"])
        if name in by_program:
            raise DataError(f"a second shard of {name}", where=shard.path, expected="one per program")
        by_program[name] = shard
    return by_program


def _fingerprints(shard: Shard) -> npt.NDArray[np.void]:
    """Fingerprints as opaque 16-byte values, [k]."""
    return np.ascontiguousarray(shard["kernel_fingerprint"]).view("V16").reshape(-1)


def _leakage(shard: Shard, seen: npt.NDArray[np.void]) -> Leakage:
    # What the program spends on each kernel without any tuning.
    runtime = shard["kernel_default_ns"] * shard["kernel_runs"]
    leaked = np.isin(_fingerprints(shard), seen)
    return Leakage(
        kernels=len(runtime),
        leaked_kernels=int(leaked.sum()),
        runtime_ns=int(runtime.sum()),
        leaked_runtime_ns=int(runtime[leaked].sum()),
    )


def _sum(parts: Iterable[Leakage]) -> Leakage:
    kernels = leaked_kernels = runtime_ns = leaked_runtime_ns = 0
    for part in parts:
        kernels += part.kernels
        leaked_kernels += part.leaked_kernels
        runtime_ns += part.runtime_ns
        leaked_runtime_ns += part.leaked_runtime_ns
    return Leakage(kernels, leaked_kernels, runtime_ns, leaked_runtime_ns)


def _card(shards: Sequence[Shard]) -> dict[str, object]:
    fingerprints = np.concatenate([_fingerprints(shard) for shard in shards])
    nodes = [
        np.diff(shard["kernel_inputs_offsets"]) + np.diff(shard["kernel_instructions_offsets"])
        for shard in shards
    ]
    distributions = {
        "tile_space_size": [shard["kernel_space_size"] for shard in shards],
        "configs_per_kernel": [np.diff(shard["config_offsets"]) for shard in shards],
        "nodes_per_kernel": nodes,
        "default_runtime_ns": [shard["kernel_default_ns"] for shard in shards],
        "runs_per_program": [shard["kernel_runs"] for shard in shards],
        "runtime_ns": [shard["config_runtime_ns"] for shard in shards],
    }
    return {
        "programs": len(shards),
        "applications": len({str(shard.metadata.get("application", "")) for shard in shards}),
        "kernels": len(fingerprints),
        "unique_kernels": len(np.unique(fingerprints)),
        "configs": sum(shard.num_configs for shard in shards),
        "failed": sum(int(shard.metadata.get("num_failed", 0)) for shard in shards),
        "device_seconds": round(sum(float(shard.metadata.get("device_seconds", 0.0)) for shard in shards), 6),
        "distributions": {name: _quantiles(values) for name, values in distributions.items()},
    }


def _quantiles(parts: Sequence[npt.NDArray[np.int64]]) -> dict[str, int]:
    values = np.concatenate(parts)
    if len(values) == 0:
        return {}
    # Values that occur, not means of two of them.
    found = np.quantile(values, [share for _, share in _QUANTILES], method="lower")
    return {name: int(value) for (name, _), value in zip(_QUANTILES, found, strict=True)}
