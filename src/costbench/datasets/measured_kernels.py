"""Reads the kernels of a tile data set: views of compiled programs with their measured tiles.

Shards hold only references into compiled programs. This module resolves them and keeps only the most recently
used programs, so that memory does not grow with the data set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.arrays import I64, AnyArray
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.lowering.loop_nest import LoopNest, Lowering
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import TileSpace, nest_tile_space
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
        self._folder = folder
        self._capacity = max(1, capacity)
        self._programs: OrderedDict[str, tuple[HloModule, Lowering]] = OrderedDict()

    def module(self, program: str) -> HloModule:
        """Returns the compiled program, from memory or its file.

        Raises:
            HloError: if its file is missing or broken.
        """
        return self._program(program)[0]

    def lowering(self, program: str) -> Lowering:
        """Returns the lowering of a program, which keeps what its kernels share."""
        return self._program(program)[1]

    def _program(self, program: str) -> tuple[HloModule, Lowering]:
        if program not in self._programs:
            module = read_module(compiled_program_path(self._folder, program))
            self._programs[program] = (module, Lowering(module))
            if len(self._programs) > self._capacity:
                self._programs.popitem(last=False)
        self._programs.move_to_end(program)
        return self._programs[program]


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


class TileShard:
    """The kernels of one shard, by position.

    Args:
        path: path of the shard.
        programs: compiled programs of the same data set.
        architecture: architecture of the shard's chip.
    """

    def __init__(self, path: Path, programs: CompiledPrograms, architecture: Architecture) -> None:
        self._shard = Shard.open(path)
        self._programs = programs
        self._architecture = architecture
        self.path = path
        self.program = str(self._shard.metadata["program"])
        self.application = str(self._shard.metadata["application"])

    def __len__(self) -> int:
        return len(self._shard["kernel_runs"])

    def num_configs(self) -> I64:
        """Measured tiles of each kernel, int64 [k]."""
        return np.diff(self._shard["config_offsets"])

    def fingerprints(self) -> tuple[str, ...]:
        """Fingerprint of each kernel."""
        return tuple(bytes(row).hex() for row in self._shard["kernel_fingerprint"])

    def kernel(self, index: int) -> MeasuredKernel:
        """Reads one kernel.

        Raises:
            DataError: if the stored tiles do not fit the kernel's tile space.
        """
        shard = self._shard
        view = kernel_view(shard, index, self._programs.module(self.program))
        first, last = (int(o) for o in shard["config_offsets"][index : index + 2])
        ids = np.asarray(shard["config_tile"][first:last])
        space = checked_space(
            shard, index, self._programs.lowering(self.program).loop_nest(view), self._architecture
        )
        return MeasuredKernel(
            kernel=view,
            fingerprint=bytes(shard["kernel_fingerprint"][index]).hex(),
            runs=int(shard["kernel_runs"][index]),
            space=space,
            default_ns=int(shard["kernel_default_ns"][index]),
            tile_ids=ids,
            tile_sizes=space.decode(ids),
            runtime_ns=np.asarray(shard["config_runtime_ns"][first:last]),
        )


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


def checked_space(shard: Shard, index: int, nest: LoopNest, architecture: Architecture) -> TileSpace:
    """Returns the tile space of a lowered kernel of a shard.

    Raises:
        DataError: if its size differs from that at the time of the measurement.
    """
    space = nest_tile_space(nest, architecture)
    measured = int(shard["kernel_space_size"][index])
    if space.size != measured:
        raise DataError(
            f"kernel {index} has {space.size} tile sizes",
            where=shard.path,
            field="kernel_space_size",
            expected=f"{measured}, as when it was measured; generate again",
        )
    return space


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


class FusionKernels:
    """The kernels that occur in a program's fusion configs, each at the tile size the compiler chose.

    Args:
        parts: parts of a program on a chip, as returned by `fusion_parts`, at least one.
        programs: compiled programs of the same data set.
        architecture: architecture of the chip.
    """

    def __init__(
        self, parts: tuple[Shard, ...], programs: CompiledPrograms, architecture: Architecture
    ) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(shard.num_kernels for shard in parts)])
        self._programs = programs
        self._architecture = architecture
        self.program = str(parts[0].metadata["program"])
        self.application = str(parts[0].metadata["application"])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def kernel(self, index: int) -> MeasuredKernel:
        """Reads one kernel; `runs` counts its executions under the default config, 0 if it is not in it.

        Raises:
            DataError: if the stored tile does not fit the kernel's tile space.
        """
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        shard, row = self._parts[part], index - int(self._starts[part])
        view = kernel_view(shard, row, self._programs.module(self.program))
        space = checked_space(
            shard, row, self._programs.lowering(self.program).loop_nest(view), self._architecture
        )
        ids = np.asarray(shard["kernel_tile"][row : row + 1])
        runtime_ns = np.asarray(shard["kernel_runtime_ns"][row : row + 1])
        return MeasuredKernel(
            kernel=view,
            fingerprint=bytes(shard["kernel_fingerprint"][row]).hex(),
            runs=int(shard["kernel_default_runs"][row]),
            space=space,
            default_ns=int(runtime_ns[0]),
            tile_ids=ids,
            tile_sizes=space.decode(ids),
            runtime_ns=runtime_ns,
        )
