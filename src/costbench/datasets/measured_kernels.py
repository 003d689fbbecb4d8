"""Reads the kernels of tile and fusion samples: views of compiled programs with their measured tiles.

Shards hold only references into compiled programs. This module resolves them and keeps only the most recently
used programs, so that memory does not grow with the data set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from costbench.arrays import I64, AnyArray
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.lowering.loop_nest import Lowering
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import TileSpace, nest_tile_space
from costbench.datasets.record_types import TILE
from costbench.datasets.records import digests_of
from costbench.datasets.storage import Shard
from costbench.errors import DataError
from costbench.hlo.module import HloModule
from costbench.hlo.reader import read_module
from costbench.target import Architecture


def shard_path(folder: Path, chip: str, program: str) -> Path:
    """Returns the path of the tile shard of a program on a chip."""
    return folder / "tile" / chip / f"{program}.arrow"


def fusion_part_path(folder: Path, chip: str, program: str, part: int) -> Path:
    """Returns the path of a part of a program's fusion samples on a chip."""
    return folder / "fusion" / chip / f"{program}.part{part:04d}.arrow"


def compiled_program_path(folder: Path, program: str) -> Path:
    """Returns the path of the compiled program that shards refer to."""
    return folder / "programs" / f"{program}.hlo.pb.zst"


class CompiledPrograms:
    """Cache of a data set's compiled programs by name, with the most recently used ones in memory.

    Args:
        folder: folder of the data set.
        capacity: number of programs in memory.
    """

    def __init__(self, folder: Path, capacity: int = 8) -> None:
        @lru_cache(max(1, capacity))
        def lowering(program: str) -> Lowering:
            return Lowering(read_module(compiled_program_path(folder, program)))

        self._lowering = lowering

    def module(self, program: str) -> HloModule:
        """Returns the compiled program, from memory or its file.

        Raises:
            HloError: if its file is missing or broken.
        """
        return self.lowering(program).module

    def lowering(self, program: str) -> Lowering:
        """Returns the lowering of a program, which keeps what its kernels share; errors as `module`."""
        return self._lowering(program)


@dataclass(frozen=True, eq=False)
class MeasuredKernel:
    """One kernel of a shard with all its measured tiles.

    Attributes:
        kernel: kernel as a view of the compiled program.
        fingerprint: fingerprint of the kernel, 32 hexadecimal digits.
        runs: number of executions in one run of the program.
        space: tile space of the kernel.
        default_ns: measured runtime of the compiler's default tile.
        tile_ids: numbers of the tile sizes in the tile space, int64 [n].
        tile_sizes: tile sizes as bounds.
        runtime_ns: measured runtime of each tile size, int64 [n].
    """

    kernel: Kernel
    fingerprint: str
    runs: int
    space: TileSpace
    default_ns: int
    tile_ids: I64
    tile_sizes: TileSizes
    runtime_ns: I64


class MeasuredKernels:
    """The kernels of a program's tile or fusion samples on a chip, by position.

    Args:
        shards: shard of tiles, or parts of fusion samples (`fusion_parts`); at least one.
        programs: compiled programs of the same data set.
        architecture: architecture of the chip.
    """

    def __init__(
        self, shards: Sequence[Shard], programs: CompiledPrograms, architecture: Architecture
    ) -> None:
        self._shards = tuple(shards)
        self._starts = np.cumsum([0, *(shard.num_kernels for shard in shards)])
        self._programs = programs
        self._architecture = architecture
        self.program = str(shards[0].metadata["program"])
        self.application = str(shards[0].metadata["application"])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def num_configs(self) -> I64:
        """Returns the number of measured tiles of each kernel, int64 [k]."""
        counts = [
            np.diff(shard["config_offsets"]) if shard.record is TILE else np.ones(shard.num_kernels, np.int64)
            for shard in self._shards
        ]
        return np.concatenate(counts)

    def fingerprints(self) -> tuple[str, ...]:
        """Returns the fingerprint of each kernel."""
        return tuple(bytes(row).hex() for shard in self._shards for row in shard["kernel_fingerprint"])

    def kernel(self, index: int) -> MeasuredKernel:
        """Reads one kernel; of fusion samples, `runs` counts those under the default config, maybe none.

        Raises:
            DataError: if the stored tiles do not fit the kernel's tile space.
        """
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        shard, row = self._shards[part], index - int(self._starts[part])
        is_tile = shard.record is TILE
        lowering = self._programs.lowering(self.program)
        view = kernel_view(shard, row, lowering.module)
        space = nest_tile_space(lowering.loop_nest(view), self._architecture)
        measured_size = int(shard["kernel_space_size"][row])
        if space.size != measured_size:
            raise DataError(
                f"kernel {row} has {space.size} tile sizes",
                where=shard.path,
                field="kernel_space_size",
                expected=f"{measured_size}, as when it was measured; generate again",
            )
        # A kernel of fusion samples ran with one tile, which the compiler chose.
        first, last = shard["config_offsets"][row : row + 2].tolist() if is_tile else (row, row + 1)
        ids = np.asarray(shard["config_tile" if is_tile else "kernel_tile"][first:last])
        runtime_ns = np.asarray(shard[shard.record.runtime][first:last])
        return MeasuredKernel(
            kernel=view,
            fingerprint=bytes(shard["kernel_fingerprint"][row]).hex(),
            runs=int(shard["kernel_runs" if is_tile else "kernel_default_runs"][row]),
            space=space,
            default_ns=int(shard["kernel_default_ns"][row] if is_tile else runtime_ns[0]),
            tile_ids=ids,
            tile_sizes=space.decode(ids),
            runtime_ns=runtime_ns,
        )


def kernel_view(shard: Shard, index: int, module: HloModule) -> Kernel:
    """Returns the kernel that a tile or fusion shard refers to.

    Args:
        shard: tile or fusion shard.
        index: index of the kernel in it.
        module: compiled program of the shard.
    """

    def positions(part: str) -> tuple[int, ...]:
        first, last = shard[f"kernel_{part}_offsets"][index : index + 2]
        return tuple(shard[f"kernel_{part}"][int(first) : int(last)].tolist())

    return Kernel(
        module=module,
        computation=int(shard["kernel_computation"][index]),
        instructions=positions("instructions"),
        inputs=positions("inputs"),
        outputs=positions("outputs"),
    )


def fusion_parts(folder: Path, chip: str, program: str) -> tuple[Shard, ...]:
    """Opens all parts of a program's fusion samples on a chip; empty where there are no samples.

    Raises:
        DataError: for a damaged part, or if the last one is missing.
    """
    parts: list[Shard] = []
    while not (parts and parts[-1].metadata["last"]):
        path = fusion_part_path(folder, chip, program, len(parts))
        if not parts and not path.exists():
            break
        parts.append(Shard.open(path))
    return tuple(parts)


def kernel_columns(
    kernels: KernelArrays, computations: I64, fingerprints: Sequence[str]
) -> dict[str, AnyArray]:
    """Returns the columns that say which kernels a shard is about (see `record_types`).

    Args:
        kernels: k kernels as arrays of positions.
        computations: position of the computation that each belongs to, int64 [k].
        fingerprints: fingerprints of the kernels, 32 hexadecimal digits each.
    """
    columns: dict[str, AnyArray] = {
        "kernel_computation": computations.astype(np.int32),
        "kernel_fingerprint": digests_of(fingerprints),
    }
    for part, offsets, positions in (
        ("inputs", kernels.inputs_offsets, kernels.inputs),
        ("instructions", kernels.instructions_offsets, kernels.instructions),
        ("outputs", kernels.outputs_offsets, kernels.outputs),
    ):
        columns[f"kernel_{part}_offsets"] = offsets
        columns[f"kernel_{part}"] = positions.astype(np.int32)
    return columns
