"""Audits a split for leakage: counts the test kernels that also occur in training programs.

A split over programs does not separate kernels: similar models share layers, and an optimiser updates all
weights in the same way. The audit counts the test kernels whose fingerprint also occurs in a training
program, so that this number can be reported beside a result; `common_fingerprints` returns them, so that
metrics can be computed without them. Shards are read one at a time, so memory holds the fingerprints of one
set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from costbench.datasets.splits import Split
from costbench.datasets.storage import Shard, list_shards
from costbench.errors import DataError
from costbench.tasks import TASKS

ProgramShards = Mapping[str, Sequence[Path]]
"""Name of a program -> its shards of one task and chip, one or several parts."""
Fingerprints = npt.NDArray[np.bytes_]
"""Fingerprints as 16-byte strings, which sort and compare fast, [k]."""


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
        """Leaked kernels divided by all kernels, 0 to 1; 0 without kernels."""
        return self.leaked_kernels / self.kernels if self.kernels else 0.0

    @property
    def share_of_runtime(self) -> float:
        """Runtime of leaked kernels divided by that of all kernels, 0 to 1; 0 without kernels."""
        return self.leaked_runtime_ns / self.runtime_ns if self.runtime_ns else 0.0

    def to_dict(self) -> dict[str, float]:
        """Returns counts and shares, for reports."""
        shares = {"share_of_kernels": self.share_of_kernels, "share_of_runtime": self.share_of_runtime}
        return asdict(self) | shares


@dataclass(frozen=True, slots=True)
class LeakageReport:
    """Leakage of one split.

    Attributes:
        split: name of the split.
        test: leakage of the test programs.
        validation: leakage of the validation programs.
        by_program: leakage of each test program, sorted by name.
    """

    split: str
    test: Leakage
    validation: Leakage
    by_program: tuple[tuple[str, Leakage], ...]

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON."""
        return {
            "split": self.split,
            "test": self.test.to_dict(),
            "validation": self.validation.to_dict(),
            "by_program": {name: leakage.to_dict() for name, leakage in self.by_program},
        }


def shards_by_program(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Returns the shards below a folder of one task and chip, by the program named in their metadata.

    Raises:
        DataError: if there is no such folder, a shard is damaged, or they are of several chips.
    """
    shards: dict[str, list[Path]] = {}
    chips: set[str] = set()
    for path in list_shards(folder):
        metadata = Shard.open(path).metadata
        shards.setdefault(str(metadata["program"]), []).append(path)
        chips.add(str(metadata["chip"]))
    if len(chips) > 1:
        raise DataError(f"shards of {', '.join(sorted(chips))}", where=folder, expected="one chip")
    return {name: tuple(paths) for name, paths in sorted(shards.items())}


def leakage_audit(split: Split, shards: ProgramShards) -> LeakageReport:
    """Counts kernels of test and validation programs that occur in training programs, by fingerprint.

    Args:
        split: programs by set.
        shards: shards of one task and chip (fingerprints do not depend on the chip, runtimes do). Programs of
            the split without samples of the task count nothing; those that the split drops are ignored.

    Raises:
        DataError: if a shard is damaged or holds no kernels.
    """
    sets = split.restricted(shards)
    training = [path for name in sets["train"] for path in shards[name]]
    leaks: dict[str, dict[str, Leakage]] = {}
    for part in ("test", "validation"):
        watched = [path for name in sets[part] for path in shards[name]]
        common = common_fingerprints(watched, training)
        leaks[part] = {name: _sum(_leakage(path, common) for path in shards[name]) for name in sets[part]}
    return LeakageReport(
        split=split.name,
        test=_sum(leaks["test"].values()),
        validation=_sum(leaks["validation"].values()),
        by_program=tuple(leaks["test"].items()),
    )


def pool_leakage(name: str, reports: Sequence[LeakageReport]) -> LeakageReport:
    """Returns the audit of several splits with different test programs, such as folds, taken together.

    Args:
        name: name of the splits together.
        reports: audits of the splits; a kernel is compared with the training programs of the same split.
    """
    return LeakageReport(
        split=name,
        test=_sum(report.test for report in reports),
        validation=_sum(report.validation for report in reports),
        by_program=tuple(sorted(program for report in reports for program in report.by_program)),
    )


def common_fingerprints(watched: Iterable[Path], training: Iterable[Path]) -> Fingerprints:
    """Returns the sorted fingerprints of kernels in the shards `watched` that also occur in `training`.

    Holds the fingerprints of `watched` in memory, and of `training` one shard's at a time.

    Raises:
        DataError: if a shard is damaged or holds no kernels.
    """
    parts = [fingerprints(Shard.open(path)) for path in watched]
    unique = np.unique(np.concatenate([np.empty(0, "S16"), *parts]))
    seen = np.zeros(len(unique), bool)
    for path in training if len(unique) else ():
        trained = fingerprints(Shard.open(path))
        indices = np.minimum(np.searchsorted(unique, trained), len(unique) - 1)
        seen[indices[unique[indices] == trained]] = True
    return unique[seen]


def fingerprints(shard: Shard) -> Fingerprints:
    """Returns the fingerprints of a shard's kernels, [k]. Raises: DataError, if it holds no kernels."""
    return np.ascontiguousarray(shard["kernel_fingerprint"]).view("S16").reshape(-1)


def _leakage(path: Path, common: Fingerprints) -> Leakage:
    shard = Shard.open(path)
    runtime_ns, runs = TASKS[shard.record.name].default_columns
    runtime = shard[runtime_ns] * shard[runs]
    leaked = np.isin(fingerprints(shard), common)
    return Leakage(
        kernels=len(runtime),
        leaked_kernels=int(leaked.sum()),
        runtime_ns=int(runtime.sum()),
        leaked_runtime_ns=int(runtime[leaked].sum()),
    )


def _sum(parts: Iterable[Leakage]) -> Leakage:
    return Leakage(*(sum(counts) for counts in zip((0, 0, 0, 0), *map(astuple, parts), strict=True)))
