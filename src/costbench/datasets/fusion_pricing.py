"""Running fused kernels: each at the tile size that the compiler of the chip chooses, many in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from costbench.compiler.kernel import Kernel
from costbench.compiler.loop_nest import LoopNest, Lowering
from costbench.compiler.tiling import nest_tile_space
from costbench.datasets.kernel_columns import digests_of, kernel_columns
from costbench.datasets.records import AnyArray
from costbench.datasets.tile_model import TileModel, TileModelOn
from costbench.hardware.device import Device
from costbench.target import Target

_BATCH = 512


@dataclass(eq=False)
class PricedKernels:
    """Kernels that ran on one chip.

    Attributes:
        batches: columns of the record type FUSION, in the order in which kernels came.
        num_failed: compiles that failed.
        num_too_large: kernels of which no tile fits the scratchpad, which the compiler would not fuse.
        device_seconds: accelerator time charged.
    """

    batches: list[dict[str, AnyArray]] = field(default_factory=list)
    num_failed: int = 0
    num_too_large: int = 0
    device_seconds: float = 0.0


class FusionPricing:
    """Prices kernels as they come, holding no more than a batch of them.

    Args:
        lowering: of the program that the kernels are views of.
        targets: the chips.
        model_on: the compiler's tile model for a chip, which chooses.
        seed: of the devices' noise.

    Attributes:
        num_kernels: kernels that were added.
    """

    def __init__(
        self, lowering: Lowering, targets: Sequence[Target], model_on: TileModelOn, seed: int
    ) -> None:
        self._lowering = lowering
        self._devices = [Device(target, seed) for target in targets]
        self._models = [model_on(target.architecture) for target in targets]
        self._priced = [PricedKernels() for _ in targets]
        self._kernels: list[Kernel] = []
        self._names: list[str] = []
        self._runs: list[int] = []
        self.num_kernels = 0

    def add(self, kernel: Kernel, fingerprint: str, default_runs: int) -> None:
        """One more kernel, which runs so often in one run of the program under the default config."""
        self._kernels.append(kernel)
        self._names.append(fingerprint)
        self._runs.append(default_runs)
        self.num_kernels += 1
        if len(self._kernels) >= _BATCH:
            self._flush()

    def finish(self) -> list[PricedKernels]:
        """What ran on each chip."""
        self._flush()
        return self._priced

    def _flush(self) -> None:
        nests = [self._lowering.loop_nest(kernel) for kernel in self._kernels]
        for device, model, priced in zip(self._devices, self._models, self._priced, strict=True):
            self._price(nests, device, model, priced)
        self._kernels, self._names, self._runs = [], [], []

    def _price(
        self, nests: Sequence[LoopNest], device: Device, model: TileModel, priced: PricedKernels
    ) -> None:
        spaces = [nest_tile_space(nest, device.target.architecture) for nest in nests]
        fitting = [place for place, space in enumerate(spaces) if space.has_legal_tile]
        priced.num_too_large += len(spaces) - len(fitting)
        extents = [model.choose(spaces[place]) for place in fitting]
        names = [self._names[place] for place in fitting]
        measured = device.measure_kernels([nests[place] for place in fitting], extents, names)
        ran = np.flatnonzero(~measured.failed)
        priced.num_failed += len(fitting) - len(ran)
        priced.device_seconds += measured.seconds
        kept = [fitting[number] for number in ran]
        dropped = sorted(set(range(len(spaces))) - set(kept))
        priced.batches.append(
            {
                **kernel_columns([self._kernels[p] for p in kept], [self._names[p] for p in kept]),
                "kernel_default_runs": np.array([self._runs[p] for p in kept], dtype=np.int64),
                "kernel_space_size": np.array([spaces[p].size for p in kept], dtype=np.int64),
                "kernel_tile": np.array([spaces[fitting[n]].number(extents[n]) for n in ran], dtype=np.int64),
                "kernel_runtime_ns": measured.runtime_ns[ran],
                "dropped_fingerprint": digests_of([self._names[p] for p in dropped]),
            }
        )
