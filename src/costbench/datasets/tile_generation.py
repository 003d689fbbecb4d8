"""Generates tile shards: compiles a program; enumerates, samples and measures the tile sizes of its kernels.

A shard is one program on one chip. It depends only on the program, the chip and the parameters; a program is
compiled once for all chips.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from costbench.arrays import I64, AnyArray
from costbench.artifacts import digest_bytes
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel_arrays import kernel_arrays
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.program import UniqueKernel
from costbench.compiler.tile_space import nest_tile_space
from costbench.datasets.generation import Shards, ShardSummary, SharedProgram, shard_key
from costbench.datasets.measured_kernels import compiled_program_path, kernel_columns, shard_path
from costbench.datasets.record_types import TILE, TILE_GENERATOR_VERSION
from costbench.datasets.records import offsets_of
from costbench.datasets.storage import write_shard
from costbench.errors import SpaceTooLargeError
from costbench.hardware.device import Device
from costbench.rng import stream
from costbench.store import Entry, key_of
from costbench.target import Target

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TileParams:
    """How many tiles of how many kernels are measured.

    Attributes:
        max_tiles_per_kernel: tile sizes sampled per kernel, including the compiler's default.
        max_kernels_per_program: unique kernels kept per program, largest share of runtime first; 0 for all.
        seed: seed of sampling and of the device's noise.
    """

    max_tiles_per_kernel: int = 1000
    max_kernels_per_program: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_tiles_per_kernel < 2:
            raise ValueError("max_tiles_per_kernel: at least 2 are needed to compare")
        if self.max_kernels_per_program < 0:
            raise ValueError("max_kernels_per_program: at least 0")


@dataclass(frozen=True)
class TileTask:
    """The tile shards of one program; a `Task` of `costbench.datasets.generation`.

    Attributes:
        name: of the program.
        application: that the program belongs to.
        program: bytes of its HLO module, plain or zstd.
        targets: the chips, one shard each.
        params: of the tile task.
        folder: of the data set.
        code: digest of the code that makes them.
    """

    name: str
    application: str
    program: bytes
    targets: tuple[Target, ...]
    params: TileParams
    folder: Path
    code: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the shards, in the order of the chips."""
        return tuple(shard_path(self.folder, target.name, self.name) for target in self.targets)

    @property
    def group(self) -> str:
        """Key of the compiled program, which other tasks of the data set share."""
        return str(compiled_program_path(self.folder, self.name))

    @property
    def weight(self) -> int:
        """Work estimate, which grows with the size of the program."""
        return len(self.program)

    def key(self, target: Target) -> str:
        """Digest of all inputs but the code."""
        return shard_key(self.program, [target], self.params, TILE_GENERATOR_VERSION)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Where the store keeps the shards, in the order of the chips."""
        return tuple(map(self._entry, self.targets))

    def _entry(self, target: Target) -> Entry:
        path = shard_path(self.folder, target.name, self.name)
        compiled = compiled_program_path(self.folder, self.name)
        return Entry(path.with_suffix(".json"), key_of(self.key(target), self.code), (path, compiled))

    def make(self, shared: SharedProgram | None = None) -> None:
        """Compiles once; enumerates, samples, measures and writes for every chip.

        Raises:
            HloError: if the program cannot be read.
            UnsupportedKernelError: for a kernel that cannot be lowered or priced, or of which no tile fits
                the scratchpad; none is skipped silently. One with too many tile sizes to number is left
                out with a warning.
            DataError: if a file cannot be written.
        """
        path = compiled_program_path(self.folder, self.name)
        program = (shared or SharedProgram()).prepared(self.program, self.name, path)
        kernels = [(u, program.lowering.loop_nest(u.kernel)) for u in program.unique_kernels]
        for target in self.targets:
            self._entry(target).get(Shards, partial(self._make_shard, target, kernels))

    def _make_shard(self, target: Target, kernels: Sequence[tuple[UniqueKernel, LoopNest]]) -> Shards:
        device, model = Device(target, self.params.seed), AnalyticalModel(target.architecture)
        found = (_sample_kernel(unique, nest, device, model, self.params) for unique, nest in kernels)
        samples = [sample for sample in found if sample is not None]
        samples = _most_important(samples, self.params.max_kernels_per_program)
        path = shard_path(self.folder, target.name, self.name)
        metadata = _metadata(self, target, samples)
        write_shard(path, _columns(samples), metadata, TILE)
        summary = ShardSummary(
            task="tile",
            name=self.name,
            chip=target.name,
            num_kernels=len(samples),
            num_samples=sum(len(sample.ids) for sample in samples),
            num_failed=sum(sample.num_failed for sample in samples),
            device_seconds=float(str(metadata["device_seconds"])),
        )
        return Shards(self._entry(target).key, (summary,))


@dataclass(frozen=True, eq=False)
class _KernelSample:
    unique: UniqueKernel
    space_size: int
    default_ns: int
    ids: I64
    runtime_ns: I64
    num_failed: int
    seconds: float


def _sample_kernel(
    unique: UniqueKernel, nest: LoopNest, device: Device, model: AnalyticalModel, params: TileParams
) -> _KernelSample | None:
    """Returns measured tiles of a kernel, the default among them; None where there is nothing to choose.

    A kernel with more tile sizes than can be numbered is left out, too, with a warning.
    """
    try:
        space = nest_tile_space(nest, device.target.architecture)
    except SpaceTooLargeError as error:
        _LOG.warning("%s; the kernel is left out", error)
        return None
    if space.size < 2:
        return None
    default = space.number(model.choose(space))
    rng = stream(params.seed, "tiles", unique.fingerprint)
    ids = _with_default(space.sample(rng, params.max_tiles_per_kernel), default, rng, params)
    measured = device.measure_nest(space.nest, space.extents(ids))
    kept = ~measured.failed
    if kept.sum() < 2:
        return None
    ids, runtime = ids[kept], measured.runtime_ns[kept]
    at_default = np.flatnonzero(ids == default)
    if len(at_default) == 0:
        # Where the default fails, the compiler falls back to its next choice among the tiles that run.
        at_default = np.argmin(model.predict(unique.kernel, space.decode(ids)), keepdims=True)
    default_ns = int(runtime[at_default[0]])
    return _KernelSample(
        unique, space.size, default_ns, ids, runtime, int(measured.failed.sum()), measured.seconds
    )


def _with_default(ids: I64, default: int, rng: np.random.Generator, params: TileParams) -> I64:
    """Returns the drawn tiles with the default, which replaces another one if the sample is full."""
    if len(ids) >= params.max_tiles_per_kernel and default not in ids:
        ids = np.delete(ids, rng.integers(len(ids)))
    return np.union1d(ids, np.array([default], dtype=np.int64))


def _most_important(samples: list[_KernelSample], limit: int) -> list[_KernelSample]:
    if not limit or len(samples) <= limit:
        return samples
    weight = [-s.default_ns * s.unique.runs_per_program for s in samples]
    kept = sorted(np.argsort(weight, kind="stable")[:limit].tolist())
    return [samples[i] for i in kept]


def _columns(samples: Sequence[_KernelSample]) -> Mapping[str, AnyArray]:
    kernels = [s.unique.kernel for s in samples]
    positions = kernel_arrays((k.instructions, k.inputs, k.outputs) for k in kernels)
    computations = np.array([k.computation for k in kernels], dtype=np.int64)
    return {
        **kernel_columns(positions, computations, [s.unique.fingerprint for s in samples]),
        "kernel_runs": np.array([s.unique.runs_per_program for s in samples], dtype=np.int64),
        "kernel_space_size": np.array([s.space_size for s in samples], dtype=np.int64),
        "kernel_default_ns": np.array([s.default_ns for s in samples], dtype=np.int64),
        "config_offsets": offsets_of(len(s.ids) for s in samples),
        "config_tile": _joined([s.ids for s in samples]),
        "config_runtime_ns": _joined([s.runtime_ns for s in samples]),
    }


def _joined(arrays: Sequence[I64]) -> I64:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _metadata(task: TileTask, target: Target, samples: Sequence[_KernelSample]) -> dict[str, object]:
    return {
        "key": task.key(target),
        "task": "tile",
        "program": task.name,
        "application": task.application,
        "program_sha256": digest_bytes(task.program),
        "chip": target.name,
        "generator_version": TILE_GENERATOR_VERSION,
        "params": asdict(task.params),
        "num_failed": sum(s.num_failed for s in samples),
        "device_seconds": round(sum(s.seconds for s in samples), 9),
    }
