"""Generates fusion shards: fuses a program in thousands of ways and measures every distinct kernel once.

Configs are drawn at random (lpm2021, section 4), after the default. Each cuts the program into kernels; new
ones are run at the tile size that the compiler's own model estimates to be fastest. A config's draw depends
on its number alone, and parts of the data set end between two configs, so a killed run continues after the
last complete part and ends with the same bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from costbench.arrays import I64
from costbench.artifacts import digest_bytes
from costbench.compiler.fusion.space import CutKernels, FusionSpace
from costbench.compiler.kernel_arrays import select_kernels
from costbench.compiler.kernel_hashes import SeenHashes
from costbench.compiler.program import PreparedProgram
from costbench.datasets.fusion.pricing import FoundKernels, FusionPricing, PricedKernels
from costbench.datasets.fusion.shards import (
    finished_parts,
    fusion_part_path,
    progress_of,
    write_part,
)
from costbench.datasets.generation import Shards, ShardSummary, SharedProgram, shard_key, summaries_of
from costbench.datasets.record_types import FUSION_GENERATOR_VERSION
from costbench.datasets.tile.kernels import compiled_program_path
from costbench.rng import stream
from costbench.store import Entry, key_of
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
class FusionTask:
    """The fusion shards of one program; a `Task` of `costbench.datasets.generation`.

    Attributes:
        name: of the program.
        application: that the program belongs to.
        program: bytes of its HLO module, plain or zstd.
        targets: the chips; they share the kernels and differ in the runtimes.
        params: of the fusion task.
        folder: of the data set.
        code: digest of the code that makes them.
    """

    name: str
    application: str
    program: bytes
    targets: tuple[Target, ...]
    params: FusionParams
    folder: Path
    code: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the parts that exist, or else of the first part of each chip."""
        return tuple(path for target in self.targets for path in self._parts(target))

    def _parts(self, target: Target) -> list[Path]:
        finished = finished_parts(self.folder, target.name, self.name, self.key)
        parts = range(max(1, len(finished)))
        return [fusion_part_path(self.folder, target.name, self.name, part) for part in parts]

    @property
    def group(self) -> str:
        """Key of the compiled program, which other tasks of the data set share."""
        return str(compiled_program_path(self.folder, self.name))

    @property
    def weight(self) -> int:
        """Work estimate, which grows with the size of the program."""
        return len(self.program)

    @property
    def key(self) -> str:
        """Digest of all inputs but the code; parts of the same key are of the same samples."""
        return shard_key(self.program, self.targets, self.params, FUSION_GENERATOR_VERSION)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Where the store keeps the parts, one entry a chip."""
        return tuple(map(self._entry, self.targets))

    def _entry(self, target: Target) -> Entry:
        parts, compiled = self._parts(target), compiled_program_path(self.folder, self.name)
        note = parts[0].with_name(f"{self.name}.json")
        return Entry(note, key_of(self.key, self.code), (*parts, compiled))

    def make(self, shared: SharedProgram | None = None) -> None:
        """Draws configs, cuts out their kernels, measures the new ones and writes them, part by part.

        Raises:
            HloError: if the program cannot be read.
            UnsupportedKernelError: for a kernel that cannot be lowered or priced; none is skipped silently.
            DataError: if a file cannot be written.
        """
        if summaries_of(self) is not None:
            return
        for entry in self.entries:
            entry.begin()
        path = compiled_program_path(self.folder, self.name)
        program = (shared or SharedProgram()).prepared(self.program, self.name, path)
        search = _Search(self, program)
        while not search.complete:
            search.make_part()
        for target in self.targets:
            entry = self._entry(target)
            entry.keep(Shards(entry.key, self._summaries(target)))

    def _summaries(self, target: Target) -> tuple[ShardSummary, ...]:
        return tuple(
            ShardSummary(
                task="fusion",
                name=self.name,
                chip=target.name,
                num_kernels=part.num_kernels,
                num_samples=part.num_configs,
                num_failed=int(part.metadata["num_failed"]),
                device_seconds=float(part.metadata["device_seconds"]),
            )
            for part in finished_parts(self.folder, target.name, self.name, self.key)
        )


class _Search:
    """Tries the configs of one program in order, starting after those that the parts on disk cover.

    Attributes:
        complete: whether the last part is written.
    """

    def __init__(self, task: FusionTask, program: PreparedProgram) -> None:
        self._task, self._program, self._space = task, program, FusionSpace(program)
        chips = [target.name for target in task.targets]
        before = progress_of(task.folder, chips, task.name, task.key)
        self._part, self._config = before.parts, before.num_configs
        self.complete = before.complete
        self._known = set(before.fingerprints)
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
            path = fusion_part_path(task.folder, target.name, task.name, self._part)
            write_part(path, priced.batches, self._metadata(target, priced))
        self._part += 1

    def _is_over(self) -> bool:
        params = self._task.params
        return (
            self._config >= params.max_configs
            or 0 < params.max_kernels_per_program <= len(self._known)
            or time.monotonic() > self._deadline
        )

    def _try(self, number: int, pricing: FusionPricing) -> None:
        rng = stream(self._task.params.seed, "fusion", self._task.name, number)
        config = self._space.sample(rng, 1)[0] if number else self._space.default
        # For the default config all kernels are cut, since their executions are counted.
        cuts = self._space.cut(config, self._met_groups if number else None)
        runs = executions(cuts) if number == 0 else {}
        for cut in cuts:
            fresh = self._met.add(cut.hashes)
            if len(fresh):
                self._add(cut, fresh, runs, pricing)

    def _add(self, cut: CutKernels, fresh: I64, runs: dict[int, int], pricing: FusionPricing) -> None:
        """Adds kernels whose fingerprints are new to the pricing."""
        kernels = select_kernels(cut.arrays, fresh)
        names, new = [], []
        for number, stored in enumerate(self._space.fingerprints.kernels(cut.computation, kernels)):
            if stored not in self._known:
                self._known.add(stored)
                names.append(stored.hex())
                new.append(number)
        if len(new) < len(fresh):
            kernels, fresh = select_kernels(kernels, np.array(new, dtype=np.int64)), fresh[new]
        default_runs = [runs.get(quick_hash, 0) for quick_hash in cut.hashes[fresh].tolist()]
        pricing.add(FoundKernels(cut.computation, kernels, tuple(names), tuple(default_runs)))

    def _metadata(self, target: Target, priced: PricedKernels) -> dict[str, object]:
        task = self._task
        return {
            "key": task.key,
            "task": "fusion",
            "program": task.name,
            "application": task.application,
            "program_sha256": digest_bytes(task.program),
            "chip": target.name,
            "generator_version": FUSION_GENERATOR_VERSION,
            "params": asdict(task.params),
            "part": self._part,
            "last": self.complete,
            "num_configs": self._config,
            "num_failed": priced.num_failed,
            "num_too_large": priced.num_too_large,
            "device_seconds": round(priced.device_seconds, 9),
        }


def executions(cuts: Sequence[CutKernels]) -> dict[int, int]:
    """Returns how often the kernels of each hash run in one run of the program."""
    runs: Counter[int] = Counter()
    for cut in cuts:
        for quick_hash in cut.hashes.tolist():
            runs[quick_hash] += cut.trip_count
    return dict(runs)
