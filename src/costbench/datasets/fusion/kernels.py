"""Reads the kernels of a fusion data set: those of all parts of a program, one after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.datasets.fusion.shards import fusion_part_path
from costbench.datasets.storage import Shard
from costbench.datasets.tile.kernels import CompiledPrograms, MeasuredKernel, checked_space, kernel_view
from costbench.target import Architecture


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
        parts: of the program on a chip, as returned by `fusion_parts`, at least one.
        programs: of the same data set.
        architecture: of the chip.
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
        shard, place = self._parts[part], index - int(self._starts[part])
        view = kernel_view(shard, place, self._programs.module(self.program))
        space = checked_space(
            shard, place, self._programs.lowering(self.program).loop_nest(view), self._architecture
        )
        ids = np.asarray(shard["kernel_tile"][place : place + 1])
        runtime_ns = np.asarray(shard["kernel_runtime_ns"][place : place + 1])
        return MeasuredKernel(
            kernel=view,
            fingerprint=bytes(shard["kernel_fingerprint"][place]).hex(),
            runs=int(shard["kernel_default_runs"][place]),
            space=space,
            default_ns=int(runtime_ns[0]),
            tile_ids=ids,
            tile_sizes=space.decode(ids),
            runtime_ns=runtime_ns,
        )
