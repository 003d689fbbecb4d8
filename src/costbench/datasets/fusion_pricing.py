"""Measures fused kernels in batches, each at the tile size that the compiler of the chip chooses."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from costbench.arrays import I64, AnyArray
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel_arrays import KernelArrays, concatenate_kernels, select_kernels
from costbench.compiler.lowering.loop_nest import LoopNest, Lowering
from costbench.compiler.tile_space import KernelBatch, nest_tile_space
from costbench.datasets.measured_kernels import kernel_columns
from costbench.datasets.records import digests_of
from costbench.errors import SpaceTooLargeError
from costbench.hardware.device import Device, measure_batch
from costbench.hlo.memo import Memo
from costbench.target import Target

_BATCH = 512
_LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class PricedKernels:
    """Kernels that ran on one chip.

    Attributes:
        batches: columns of the record type `FUSION`, in the order in which kernels were added.
        num_failed: number of compiles that failed.
        num_too_large: number of kernels of which no tile fits; the compiler would not fuse these.
        device_seconds: accelerator time charged.
    """

    batches: list[dict[str, AnyArray]] = field(default_factory=list)
    num_failed: int = 0
    num_too_large: int = 0
    device_seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class NewKernels:
    """k kernels of one computation that wait to be priced.

    Attributes:
        computation: position of the computation in the module.
        kernels: kernels as arrays of positions.
        names: fingerprints of the kernels, 32 hexadecimal digits each.
        default_runs: executions of each in one run of the program under the default config.
    """

    computation: int
    kernels: KernelArrays
    names: tuple[str, ...]
    default_runs: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names)

    def part(self, start: int, end: int) -> NewKernels:
        """Returns the kernels from `start` up to `end`."""
        kernels = select_kernels(self.kernels, np.arange(start, end))
        return NewKernels(self.computation, kernels, self.names[start:end], self.default_runs[start:end])


class _Outcome:
    """Results of n kernels on a chip; every array has the shape [n].

    Attributes:
        fits: whether any tile fits; if not, the other entries of the kernel are undefined.
        tile: number of the tile that the compiler chose.
        space_size: number of tile sizes to choose from.
        runtime_ns: runtime of the fastest run, 0 where the compile failed.
        run_seconds: accelerator time of all runs of the kernel.
    """

    def __init__(self, count: int) -> None:
        self.fits = np.zeros(count, dtype=bool)
        self.tile, self.space_size, self.runtime_ns = np.zeros((3, count), dtype=np.int64)
        self.run_seconds = np.zeros(count)


class FusionPricing:
    """Prices kernels as they are added, holding at most one batch of them.

    Args:
        lowering: lowering of the program that the kernels are views of.
        targets: chips; each kernel runs at the tile size that the compiler chooses for the chip.
        seed: seed of the devices' noise.

    Attributes:
        num_kernels: number of kernels added so far.
    """

    def __init__(self, lowering: Lowering, targets: Sequence[Target], seed: int) -> None:
        self._lowering = lowering
        self._devices = [Device(target, seed) for target in targets]
        self._models = [AnalyticalModel(target.architecture) for target in targets]
        self._priced = [PricedKernels() for _ in targets]
        self._waiting: list[NewKernels] = []
        self._num_waiting = 0
        self.num_kernels = 0

    def add(self, kernels: NewKernels) -> None:
        """Adds kernels."""
        self.num_kernels += len(kernels)
        start = 0
        while start < len(kernels):
            batch = kernels.part(start, min(len(kernels), start + _BATCH - self._num_waiting))
            self._waiting.append(batch)
            self._num_waiting += len(batch)
            start += len(batch)
            if self._num_waiting >= _BATCH:
                self._flush()

    def finish(self) -> list[PricedKernels]:
        """Prices the kernels left and returns the results of each chip."""
        self._flush()
        return self._priced

    def _flush(self) -> None:
        waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        computations = np.repeat([new.computation for new in waiting], [len(new) for new in waiting])
        kernels = concatenate_kernels([new.kernels for new in waiting])
        names = [name for new in waiting for name in new.names]
        runs = np.array([run for new in waiting for run in new.default_runs], dtype=np.int64)
        outcomes = [_Outcome(len(names)) for _ in self._devices]
        for computation in np.unique(computations).tolist():
            indices = np.flatnonzero(computations == computation)
            batch = KernelBatch(self._lowering.lower(computation, select_kernels(kernels, indices)))
            self._run(batch, indices, names, outcomes)
        for outcome, priced in zip(outcomes, self._priced, strict=True):
            ran = outcome.fits & (outcome.runtime_ns > 0)
            ran_indices, dropped_indices = np.flatnonzero(ran), np.flatnonzero(~ran)
            priced.num_too_large += int(np.count_nonzero(~outcome.fits))
            priced.num_failed += int(np.count_nonzero(outcome.fits & ~ran))
            priced.device_seconds += float(outcome.run_seconds[outcome.fits].sum())
            columns = kernel_columns(
                select_kernels(kernels, ran_indices),
                computations[ran_indices],
                [names[p] for p in ran_indices],
            )
            priced.batches.append(
                {
                    **columns,
                    "kernel_default_runs": runs[ran_indices],
                    "kernel_space_size": outcome.space_size[ran_indices],
                    "kernel_tile": outcome.tile[ran_indices],
                    "kernel_runtime_ns": outcome.runtime_ns[ran_indices],
                    "dropped_fingerprint": digests_of([names[p] for p in dropped_indices]),
                }
            )

    def _run(
        self, batch: KernelBatch, indices: I64, names: Sequence[str], outcomes: Sequence[_Outcome]
    ) -> None:
        """Runs the kernels of a batch; `indices` are their rows in the outcomes."""
        nests: Memo[int, LoopNest] = Memo(batch.lowered.nest)
        for device, model, outcome in zip(self._devices, self._models, outcomes, strict=True):
            fits = batch.smallest_fits(device.target.architecture.scratchpad_bytes)
            fitting = np.flatnonzero(fits)
            if len(fitting):
                extents, rows = model.choose_each(batch, fitting), indices[fitting]
                measured = measure_batch(device, batch.lowered, fitting, extents, [names[p] for p in rows])
                outcome.fits[rows] = True
                outcome.tile[rows], outcome.space_size[rows] = batch.numbered(fitting, extents)
                outcome.runtime_ns[rows] = measured.runtime_ns
                outcome.run_seconds[rows] = measured.run_seconds
            for number in np.flatnonzero(~fits).tolist():
                _run_alone(nests[number], device, model, outcome, indices[number])


def _run_alone(nest: LoopNest, device: Device, model: AnalyticalModel, outcome: _Outcome, index: int) -> None:
    """Runs a kernel whose smallest tile does not fit; in rare cases, a larger one does.

    A kernel with more tile sizes than can be numbered is left out with a warning, as if no tile fitted.
    """
    try:
        space = nest_tile_space(nest, device.target.architecture)
    except SpaceTooLargeError as error:
        _LOG.warning("%s; the kernel is left out", error)
        return
    if not space.has_legal_tile:
        return
    extents = model.choose(space)
    measured = device.measure_nest(nest, extents[None])
    outcome.fits[index] = True
    outcome.tile[index], outcome.space_size[index] = space.number(extents), space.size
    outcome.runtime_ns[index], outcome.run_seconds[index] = measured.runtime_ns[0], measured.run_seconds[0]
