"""Batches drawn evenly from all applications, and the data set that reads and collates them.

Applications differ hundredfold in their number of kernels, and kernels in their number of decisions, so
uniform draws would train on a few applications alone (lpm2021, section 4, 'Imbalances'). Here every slot of a
batch takes the next application of a shuffled deck, then the next kernel of that application's deck, then
decisions of that kernel without replacement. An epoch depends on the seed and its number only, so training
can resume at any epoch.

Reading and collating a batch takes a millisecond, so it happens in the training process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np
from torch.utils.data import Dataset, Sampler

from costbench import rng
from costbench.arrays import I64
from costbench.errors import DataError
from costbench.features.packed_kernels import FeatureExtremes, PackedKernels
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch, KernelSamples
from costbench.training.spec import BatchSpec, ValidationSpec

_Card = TypeVar("_Card")


class SampleSource(Protocol):
    """Kernels with measured decisions, read one at a time."""

    def __len__(self) -> int:
        """Returns the number of kernels."""
        ...

    def __getitem__(self, index: int) -> KernelSamples:
        """Returns a kernel with all its decisions."""
        ...

    def pack(self, kernels: Sequence[int], configs: Sequence[I64]) -> PackedKernels:
        """Reads some kernels, each with some of its decisions, by index."""
        ...

    def scaled(self, scaling: FeatureScaling) -> SampleSource:
        """Returns a source of the same kernels, whose `pack` may return scaled features."""
        ...

    def extremes(self) -> Iterable[FeatureExtremes]:
        """Returns the extremes of the features of all kernels, part by part."""
        ...

    def application(self, index: int) -> str:
        """Returns the application of kernel `index` without reading the kernel."""
        ...

    def num_configs(self, index: int) -> int:
        """Returns the number of measured decisions of kernel `index` without reading the kernel."""
        ...


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Indices of a batch's kernels in the source, and for each the indices of its decisions, ascending."""

    kernels: tuple[int, ...]
    configs: tuple[I64, ...]


class BatchSampler(Sampler[BatchPlan]):
    """Plans the batches of one epoch after another.

    Args:
        source: kernels to draw from; only counts and applications are read.
        spec: how batches are drawn.
        seed: seed of all draws.
        min_configs: kernels with fewer decisions are left out (2 for a loss over pairs).
        rank: number of this process among several that train together; each draws its own batches.

    Raises:
        DataError: if no kernel has enough decisions.
    """

    def __init__(
        self, source: SampleSource, spec: BatchSpec, seed: int, *, min_configs: int = 1, rank: int = 0
    ) -> None:
        self._spec = spec
        self._names: tuple[str | int, ...] = ("batches", rank) if rank else ("batches",)
        self._seed = seed
        self._epoch = 0
        self._num_configs = [source.num_configs(index) for index in range(len(source))]
        self._usable = [index for index, count in enumerate(self._num_configs) if count >= min_configs]
        if not self._usable:
            raise DataError(
                f"none of {len(source)} kernels has {min_configs} or more decisions", field="kernels"
            )
        self._by_application: dict[str, list[int]] = {}
        for index in self._usable:
            self._by_application.setdefault(source.application(index), []).append(index)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that iteration draws. Lightning calls this before every epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._spec.per_epoch

    def __iter__(self) -> Iterator[BatchPlan]:
        draw = rng.stream(self._seed, *self._names, self._epoch)
        kernels = self._evenly(draw) if self._spec.balanced else self._proportionally(draw)
        for _ in range(len(self)):
            batch_kernels = list(islice(kernels, self._spec.kernels))
            configs = [choose_configs(draw, self._num_configs[k], self._spec.configs) for k in batch_kernels]
            # Sorted by index, since the source then reads one shard after another.
            order = sorted(range(len(batch_kernels)), key=batch_kernels.__getitem__)
            yield BatchPlan(tuple(batch_kernels[k] for k in order), tuple(configs[k] for k in order))

    def _evenly(self, draw: np.random.Generator) -> Iterator[int]:
        applications = sorted(self._by_application)
        decks = {name: _deck(draw, self._by_application[name]) for name in applications}
        for name in _deck(draw, applications):
            yield next(decks[name])

    def _proportionally(self, draw: np.random.Generator) -> Iterator[int]:
        bounds = np.cumsum([self._num_configs[index] for index in self._usable])
        while True:
            yield self._usable[int(np.searchsorted(bounds, draw.integers(bounds[-1]), side="right"))]


def _deck(draw: np.random.Generator, cards: Sequence[_Card]) -> Iterator[_Card]:
    """Yields the cards in random order for ever, each once per round."""
    while True:
        for index in draw.permutation(len(cards)).tolist():
            yield cards[index]


def choose_configs(draw: np.random.Generator, available: int, count: int) -> I64:
    """Draws `count` different indices below `available`, ascending; all of them if there are no more."""
    if available <= count:
        return np.arange(available)
    return np.sort(draw.choice(available, size=count, replace=False)).astype(np.int64)


class PlannedBatches(Dataset[GraphBatch]):
    """A data set indexed by batch plans: `batches[plan]` reads and collates one batch.

    Args:
        source: kernels.
        collator: scalers and neighbour limit of the network.
    """

    def __init__(self, source: SampleSource, collator: Collator) -> None:
        self._source = source
        self._collator = collator

    def __getitem__(self, plan: BatchPlan) -> GraphBatch:
        return self._collator.collate(self._source.pack(plan.kernels, plan.configs), even=True)


def validation_plans(
    source: SampleSource, spec: ValidationSpec, batch: BatchSpec, seed: int, *, min_configs: int = 2
) -> list[BatchPlan]:
    """Plans the batches of validation, of kernels with at least `min_configs` decisions (ranking needs 2).

    Kernels with similar numbers of decisions share a batch.

    Raises:
        DataError: if there is no such kernel.
    """
    draw = rng.stream(seed, "validation")
    usable = np.array(
        [index for index in range(len(source)) if source.num_configs(index) >= min_configs], np.int64
    )
    if not len(usable):
        raise DataError(f"no validation kernel has {min_configs} or more decisions", field="kernels")
    kernels = usable[choose_configs(draw, len(usable), spec.kernels)]
    configs = {int(k): choose_configs(draw, source.num_configs(int(k)), spec.configs) for k in kernels}
    # Padding is smallest when kernels of a batch have about equally many decisions.
    ordered = sorted(configs, key=lambda kernel: (len(configs[kernel]), kernel))
    starts = range(0, len(ordered), batch.kernels)
    groups = [sorted(ordered[start : start + batch.kernels]) for start in starts]
    return [BatchPlan(tuple(group), tuple(configs[kernel] for kernel in group)) for group in groups]
