"""Generates fusion shards: fuses a program in thousands of ways and measures every distinct kernel once.

Configs are drawn at random (lpm2021, section 4), after the default. Each cuts the program into kernels; new
ones are run at the tile size that the compiler's own model estimates to be fastest.

A program's kernels are stored in parts, so that memory never holds all of them. A part covers consecutive
configs and holds the kernels that first occur in them, one shard per chip. Parts are written in order, and
the last one is marked as the last, so the parts on disk are always a prefix of the data set. A config's draw
depends on its number alone: a killed run continues after the last complete part and ends with the same bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import AnyArray
from costbench.compiler.fusion.space import CutKernels, FusionSpace
from costbench.compiler.kernel_arrays import select_kernels
from costbench.compiler.kernel_hashes import SeenHashes
from costbench.compiler.program import PreparedProgram
from costbench.datasets.fusion_pricing import FusionPricing, NewKernels
from costbench.datasets.generation import ProgramTask, Shards, SharedProgram
from costbench.datasets.measured_kernels import compiled_program_path, fusion_part_path
from costbench.datasets.record_types import FUSION
from costbench.datasets.storage import Shard, write_shard
from costbench.errors import DataError
from costbench.rng import stream
from costbench.target import Target

KERNELS_PER_PART = 100_000
_GROUPS_REMEMBERED = 4_000_000


@dataclass(frozen=True)
class FusionParams:
    """How many configs of a program are tried.

    Attributes:
        max_configs: fusion configs per program, the default among them (the papers: 50,000).
        max_kernels_per_program: number of different kernels after which no further config is tried; 0 for no
            limit.
        max_seconds_per_program: seconds after which no further config is tried; 0 for no limit. Such a limit
            makes the data depend on the speed of the machine; shards record how many configs were tried.
        max_instructions: instructions above which a program is left out; 0 for no limit.
        seed: seed of the draws and of the device's noise.
    """

    max_configs: int = 1000
    max_kernels_per_program: int = 0
    max_seconds_per_program: float = 0.0
    max_instructions: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_configs < 1:
            raise ValueError("max_configs: at least 1, the default")
        if min(self.max_kernels_per_program, self.max_seconds_per_program, self.max_instructions) < 0:
            raise ValueError("max_kernels_per_program, max_seconds_per_program, max_instructions: at least 0")


@dataclass(frozen=True)
class FusionTask(ProgramTask):
    """The fusion shards of one program; its chips share the kernels and differ in the runtimes."""

    params: FusionParams
    task = "fusion"
    version = 1

    def shards(self, target: Target) -> list[Path]:
        """Returns the paths of the parts that exist, or else of the first part."""
        finished = finished_parts(self.folder, target.name, self.name, self.key(target))
        parts = range(max(1, len(finished)))
        return [fusion_part_path(self.folder, target.name, self.name, part) for part in parts]

    def make(self, shared: SharedProgram | None = None) -> None:
        """Draws configs, cuts out their kernels, measures the new ones and writes them, part by part.

        Raises:
            HloError: if the program cannot be read.
            UnsupportedKernelError: for a kernel that cannot be lowered or priced; none is skipped silently.
            DataError: if a file cannot be written.
        """
        # Which kernels there are does not depend on the chips, so those that are there already stay.
        missing = tuple(target for target in self.targets if self.entry(target).read(Shards) is None)
        if not missing:
            return
        for target in missing:
            self.entry(target).begin()
        path = compiled_program_path(self.folder, self.name)
        program = (shared or SharedProgram()).compile(self.program, self.name, path)
        search = _Search(replace(self, targets=missing), program)
        while not search.complete:
            search.make_part()
        for target in missing:
            entry = self.entry(target)
            parts = finished_parts(self.folder, target.name, self.name, self.key(target))
            summaries = (self.summary(part.metadata, part.num_kernels, part.num_configs) for part in parts)
            entry.keep(Shards(entry.key, tuple(summaries)))


class _Search:
    """Tries the configs of one program in order, starting after those that the parts on disk cover.

    Attributes:
        complete: whether the last part is written.
    """

    def __init__(self, task: FusionTask, program: PreparedProgram) -> None:
        self._task, self._program, self._space = task, program, FusionSpace(program)
        keys = {target.name: task.key(target) for target in task.targets}
        progress = progress_of(task.folder, keys, task.name)
        self._part, self._config = progress.parts, progress.num_configs
        self.complete = progress.complete
        self._known = set(progress.fingerprints)
        # Hashes are quick to compare but not stored; after a restart, known kernels are found by fingerprint.
        self._met, self._met_groups = SeenHashes(), SeenHashes(_GROUPS_REMEMBERED)
        self._deadline = time.monotonic() + (task.params.max_seconds_per_program or float("inf"))

    def make_part(self) -> None:
        """Tries configs until a part is full or the search ends, and writes it."""
        task = self._task
        pricing = FusionPricing(self._program.lowering, task.targets, task.params.seed)
        while not self._is_over() and pricing.num_kernels < KERNELS_PER_PART:
            self._try(self._config, pricing)
            self._config += 1
        self.complete = self._is_over()
        for target, priced in zip(task.targets, pricing.finish(), strict=True):
            metadata = {
                **task.metadata(target, priced.num_failed, priced.device_seconds),
                "part": self._part,
                "last": self.complete,
                "num_configs": self._config,
                "num_too_large": priced.num_too_large,
            }
            path = fusion_part_path(task.folder, target.name, task.name, self._part)
            write_shard(path, concatenate_columns(priced.batches), metadata, FUSION)
        self._part += 1

    def _is_over(self) -> bool:
        params = self._task.params
        return (
            self._config >= params.max_configs
            or 0 < params.max_kernels_per_program <= len(self._known)
            or time.monotonic() > self._deadline
        )

    def _try(self, number: int, pricing: FusionPricing) -> None:
        """Adds those kernels of a config to the pricing that are new."""
        rng = stream(self._task.params.seed, "fusion", self._task.name, number)
        config = self._space.sample(rng, 1)[0] if number else self._space.default
        # For the default config all kernels are cut, since their executions are counted.
        cuts = self._space.cut(config, self._met_groups if number else None)
        runs = count_executions(cuts) if number == 0 else {}
        for cut in cuts:
            fresh = self._met.add(cut.hashes)
            if not len(fresh):
                continue
            kernels = select_kernels(cut.arrays, fresh)
            names, unknown = [], []
            for index, fingerprint in enumerate(self._space.fingerprints.kernels(cut.computation, kernels)):
                if fingerprint not in self._known:
                    self._known.add(fingerprint)
                    names.append(fingerprint.hex())
                    unknown.append(index)
            if len(unknown) < len(fresh):
                kernels, fresh = select_kernels(kernels, np.array(unknown, dtype=np.int64)), fresh[unknown]
            default_runs = tuple(runs.get(quick_hash, 0) for quick_hash in cut.hashes[fresh].tolist())
            pricing.add(NewKernels(cut.computation, kernels, tuple(names), default_runs))


def count_executions(cuts: Sequence[CutKernels]) -> dict[int, int]:
    """Returns how often the kernels of each hash run in one run of the program."""
    runs: Counter[int] = Counter()
    for cut in cuts:
        for quick_hash in cut.hashes.tolist():
            runs[quick_hash] += cut.trip_count
    return dict(runs)


@dataclass(frozen=True)
class Progress:
    """What the parts on disk cover.

    Attributes:
        parts: number of finished parts.
        num_configs: number of configs that they cover.
        complete: whether they include the last part.
        fingerprints: fingerprints of all their kernels, 16 bytes each.
    """

    parts: int
    num_configs: int
    complete: bool
    fingerprints: frozenset[bytes]


def finished_parts(folder: Path, chip: str, program: str, key: str) -> list[Shard]:
    """Returns the parts of a program on a chip that were made from the same inputs, in order."""
    parts: list[Shard] = []
    while not (parts and parts[-1].metadata["last"]):
        try:
            shard = Shard.open(fusion_part_path(folder, chip, program, len(parts)))
        except DataError:
            break
        if shard.metadata.get("key") != key:
            break
        parts.append(shard)
    return parts


def progress_of(folder: Path, keys: Mapping[str, str], program: str) -> Progress:
    """Returns what the parts of a program that exist on all chips cover; `keys` are those of the chips."""
    by_chip = [finished_parts(folder, chip, program, key) for chip, key in keys.items()]
    parts = min(len(shards) for shards in by_chip)
    last: dict[str, Any] = dict(by_chip[0][parts - 1].metadata) if parts else {}
    fingerprints = {
        bytes(row)
        for shards in by_chip
        for shard in shards[:parts]
        for column in ("kernel_fingerprint", "dropped_fingerprint")
        for row in np.asarray(shard[column])
    }
    return Progress(
        parts, int(last.get("num_configs", 0)), bool(last.get("last", False)), frozenset(fingerprints)
    )


def concatenate_columns(batches: Sequence[dict[str, AnyArray]]) -> dict[str, AnyArray]:
    """Concatenates the columns of several batches of kernels."""
    columns: dict[str, AnyArray] = {}
    for column in FUSION.columns:
        parts = [np.asarray(batch[column.key]) for batch in batches]
        if column.offsets_into is not None:
            starts = np.cumsum([0, *(int(part[-1]) for part in parts[:-1])])
            shifted = [part[1:] + start for part, start in zip(parts, starts, strict=False)]
            parts = [np.zeros(1, dtype=column.dtype), *shifted]
        empty = np.zeros((0, *(int(size) for size in column.shape[1:])), dtype=column.dtype)
        columns[column.key] = np.concatenate([empty, *parts]).astype(column.dtype, copy=False)
    return columns
