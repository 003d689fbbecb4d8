"""Measures kernels of many layouts of a program on several chips, each kernel once.

A kernel runs at the tile size that the compiler chooses. Where the machine refuses a tile near the limit of
the scratchpad, the compiler tries the next smaller one; after `ATTEMPTS` tiles the kernel fails, and so does
one of which no tile fits the scratchpad.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costbench.arrays import F64, I64, U64
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel_hashes import UNKNOWN, HashNumbers
from costbench.compiler.layout.compile import CompiledPart, KernelPool, NewPart, PackedCompiler
from costbench.compiler.lowering.loop_nest import LoopNest, LoweredKernels
from costbench.compiler.tile_space import KernelBatch, TileSpace, nest_tile_space
from costbench.errors import SpaceTooLargeError, UnsupportedKernelError
from costbench.hardware.batches import measure_batch
from costbench.hardware.device import Device

ATTEMPTS = 3
"""Tiles that the compiler tries for a kernel before the program fails to compile."""


class KernelPrices:
    """Runtimes of a program's kernels, numbered in the order in which they are met.

    Args:
        compiler: of the program.
        devices: to measure on; kernels run at the tile sizes that the compiler chooses for their chips.
    """

    def __init__(self, compiler: PackedCompiler, devices: Sequence[Device]) -> None:
        self._devices = tuple(devices)
        self._models = [AnalyticalModel(device.target.architecture) for device in devices]
        self._pool = KernelPool(compiler.space.module, compiler.facts)
        self._numbers = HashNumbers()
        self._count = 0
        self._runtime_ns = np.zeros((0, len(self._devices)))

    def __len__(self) -> int:
        """Returns the number of kernels met so far."""
        return self._count

    def number(self, part: CompiledPart) -> I64:
        """Returns the numbers of a computation's kernels, int64 [k]; new ones wait to be measured."""
        numbers = self._numbers.find(part.hashes)
        if (numbers == UNKNOWN).any():
            assert isinstance(part, NewPart), "the kernels of a known computation are known"
            self._add(part, numbers)
            numbers = self._numbers.find(part.hashes)
        return numbers

    def runtimes(self, attempts: int | None = ATTEMPTS) -> F64:
        """Returns the runtimes of all kernels met so far in ns, [kernels, chips]; infinite where one failed.

        Args:
            attempts: tiles tried for each of the kernels that wait; None for no limit.

        Raises:
            UnsupportedKernelError: without a limit, for a kernel that cannot be lowered.
        """
        if len(self._pool):
            self._runtime_ns = np.concatenate([self._runtime_ns, self._priced(self._pool, attempts)])
        return self._runtime_ns

    def _priced(self, pool: KernelPool, attempts: int | None) -> F64:
        """Returns the runtimes of the kernels of a pool, [kernels, chips], and empties it."""
        try:
            lowered, names = pool.lower()
        except UnsupportedKernelError:
            if attempts is None:
                raise
            if len(pool) == 1:
                pool.take()
                return np.full((1, len(self._devices)), np.inf)
            return np.concatenate([self._priced(alone, attempts) for alone in pool.take()])
        found = [self._measured(number, lowered, names, attempts) for number in range(len(self._devices))]
        return np.stack(found, axis=1)

    def _add(self, part: NewPart, numbers: I64) -> None:
        hashes: U64
        hashes, places = np.unique(part.hashes[numbers == UNKNOWN], return_index=True)
        places = np.flatnonzero(numbers == UNKNOWN)[places]
        in_turn = np.argsort(places)
        for place in places[in_turn].tolist():
            self._pool.add(part, place)
        self._numbers.add(hashes[in_turn], np.arange(self._count, self._count + len(places)))
        self._count += len(places)

    def _measured(
        self, number: int, lowered: LoweredKernels, names: Sequence[str], attempts: int | None
    ) -> F64:
        """Returns the runtimes of kernels on one of the chips, [kernels]."""
        device, model = self._devices[number], self._models[number]
        batch = KernelBatch(lowered)
        runtime_ns = np.zeros(len(batch))
        fits = np.flatnonzero(batch.smallest_fits(device.target.architecture.scratchpad_bytes))
        if len(fits):
            extents = model.choose_each(batch, fits)
            measured = measure_batch(
                device, lowered, fits, extents, [names[place] for place in fits.tolist()]
            )
            runtime_ns[fits] = measured.runtime_ns
        for place in np.flatnonzero(runtime_ns == 0.0).tolist():
            runtime_ns[place] = measured_alone(lowered.nest(place), device, model, attempts)
        return runtime_ns


def measured_alone(nest: LoopNest, device: Device, model: AnalyticalModel, attempts: int | None) -> float:
    """Returns the runtime in ns at the first tile that compiles; infinite if no attempt does.

    Without a limit of attempts a kernel that fits in no tile gets as much scratchpad as it needs.

    Raises:
        SpaceTooLargeError: without a limit, for a kernel with more tile sizes than can be numbered.
    """
    try:
        space = nest_tile_space(nest, device.target.architecture)
        extents = model.choose(space)
    except SpaceTooLargeError:
        if attempts is None:
            raise
        return float("inf")
    except UnsupportedKernelError:
        return _measured_with_room(nest, device) if attempts is None else float("inf")
    tried = 0
    while attempts is None or tried < attempts:
        measured = device.measure_nest(space.nest, extents[None])
        if not measured.failed[0]:
            return float(measured.runtime_ns[0])
        smaller = _smaller(space, extents)
        if attempts is None and (smaller == extents).all():
            return _measured_with_room(nest, device)
        extents = smaller
        tried += 1
    return float("inf")


def _measured_with_room(nest: LoopNest, device: Device) -> float:
    """Returns the runtime in ns on the chip with twice the scratchpad, or as many times as are needed.

    Raises:
        SpaceTooLargeError: for a kernel with more tile sizes than can be numbered.
    """
    target = device.target
    larger = replace(target.architecture, scratchpad_bytes=2 * target.architecture.scratchpad_bytes)
    roomy = Device(replace(target, architecture=larger), device.seed)
    return measured_alone(nest, roomy, AnalyticalModel(larger), None)


def _smaller(space: TileSpace, extents: I64) -> I64:
    """Returns the tile with the longest loop cut one step more; the smallest tile never fails."""
    loop = int(np.argmax(extents))
    shorter = space.candidates[loop][space.candidates[loop] < extents[loop]]
    result = extents.copy()
    result[loop] = shorter[-1] if len(shorter) else extents[loop]
    return result
