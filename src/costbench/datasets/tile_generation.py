"""Generates tile shards: compiles a program; enumerates, samples and measures the tile sizes of its kernels.

A shard is one program on one chip. It depends only on the program, the chip and the parameters; a program is
compiled once for all chips.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from costbench.arrays import I64, AnyArray
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel_arrays import kernel_arrays
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.program import UniqueKernel
from costbench.compiler.tile_space import nest_tile_space
from costbench.datasets.generation import ProgramTask, Shards, SharedProgram
from costbench.datasets.measured_kernels import compiled_program_path, kernel_columns, shard_path
from costbench.datasets.record_types import TILE
from costbench.datasets.records import offsets_of
from costbench.datasets.storage import write_shard
from costbench.errors import SpaceTooLargeError
from costbench.hardware.device import Device
from costbench.rng import stream
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
class TileTask(ProgramTask):
    """The tile shards of one program, one a chip."""

    params: TileParams
    task = "tile"
    version = 2

    def shards(self, target: Target) -> tuple[Path, ...]:
        """Returns the path of the shard of a chip."""
        return (shard_path(self.folder, target.name, self.name),)

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
        program = (shared or SharedProgram()).compile(self.program, self.name, path)
        kernels = [(u, program.lowering.loop_nest(u.kernel)) for u in program.unique_kernels]
        for target in self.targets:
            self.entry(target).get(Shards, partial(self._make_shard, target, kernels))

    def _make_shard(self, target: Target, kernels: Sequence[tuple[UniqueKernel, LoopNest]]) -> Shards:
        device, model = Device(target, self.params.seed), AnalyticalModel(target.architecture)
        measured = [_measure_sample(unique, nest, device, model, self.params) for unique, nest in kernels]
        samples = [sample for sample in measured if sample is not None]
        limit = self.params.max_kernels_per_program
        if limit and len(samples) > limit:
            weights = [-sample.default_ns * sample.unique.runs_per_program for sample in samples]
            samples = [samples[i] for i in sorted(np.argsort(weights, kind="stable")[:limit].tolist())]
        num_failed, seconds = sum(s.num_failed for s in samples), sum(s.seconds for s in samples)
        metadata = self.metadata(target, num_failed, seconds)
        write_shard(shard_path(self.folder, target.name, self.name), _columns(samples), metadata, TILE)
        summary = self.summary(metadata, len(samples), sum(len(sample.tile_ids) for sample in samples))
        return Shards(self.entry(target).key, (summary,))


@dataclass(frozen=True, eq=False)
class _KernelSample:
    """Measured tiles of one kernel.

    Attributes:
        unique: the kernel, with its executions in one run of the program.
        space_size: number of tile sizes to choose from.
        default_ns: runtime of the compiler's default tile.
        tile_ids: numbers of the measured tiles, int64 [n].
        runtime_ns: their runtimes, int64 [n].
        num_failed: number of compiles that failed.
        seconds: accelerator time charged.
    """

    unique: UniqueKernel
    space_size: int
    default_ns: int
    tile_ids: I64
    runtime_ns: I64
    num_failed: int
    seconds: float


def _measure_sample(
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
    ids = space.sample(rng, params.max_tiles_per_kernel)
    if len(ids) >= params.max_tiles_per_kernel and default not in ids:
        # The default replaces another tile of a full sample.
        ids = np.delete(ids, rng.integers(len(ids)))
    ids = np.union1d(ids, np.array([default], dtype=np.int64))
    measured = device.measure_nest(space.nest, space.extents(ids))
    ran = ~measured.failed
    if ran.sum() < 2:
        return None
    ids, runtime_ns = ids[ran], measured.runtime_ns[ran]
    at_default = np.flatnonzero(ids == default)
    if len(at_default) == 0:
        # Where the default fails, the compiler falls back to its next choice among the tiles that run.
        at_default = np.argmin(model.predict(unique.kernel, space.decode(ids)), keepdims=True)
    return _KernelSample(
        unique=unique,
        space_size=space.size,
        default_ns=int(runtime_ns[at_default[0]]),
        tile_ids=ids,
        runtime_ns=runtime_ns,
        num_failed=int(measured.failed.sum()),
        seconds=measured.seconds,
    )


def _columns(samples: Sequence[_KernelSample]) -> dict[str, AnyArray]:
    kernels = [s.unique.kernel for s in samples]
    positions = kernel_arrays(kernel.positions for kernel in kernels)
    computations = np.array([k.computation for k in kernels], dtype=np.int64)
    empty = np.zeros(0, dtype=np.int64)
    return {
        **kernel_columns(positions, computations, [s.unique.fingerprint for s in samples]),
        "kernel_runs": np.array([s.unique.runs_per_program for s in samples], dtype=np.int64),
        "kernel_space_size": np.array([s.space_size for s in samples], dtype=np.int64),
        "kernel_default_ns": np.array([s.default_ns for s in samples], dtype=np.int64),
        "config_offsets": offsets_of(len(s.tile_ids) for s in samples),
        "config_tile": np.concatenate([empty, *(s.tile_ids for s in samples)]),
        "config_runtime_ns": np.concatenate([empty, *(s.runtime_ns for s in samples)]),
    }
