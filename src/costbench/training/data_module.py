"""The Lightning data module: batches for training and validation, built from batch plans.

Reading and collating a batch takes a millisecond, so everything happens in the training
process; worker processes are for sources that are slow to read.
"""

from __future__ import annotations

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Dataset

from costbench import rng
from costbench.errors import DataError
from costbench.models.batch.graph_batch import Collator, GraphBatch
from costbench.training.batch_sampler import (
    BatchPlan,
    BatchSampler,
    SampleSource,
    choose_configs,
)
from costbench.training.spec import BatchSpec, ValidationSpec


class PlannedBatches(Dataset[GraphBatch]):
    """A data set indexed by batch plans: `batches[plan]` reads and collates one batch."""

    def __init__(self, source: SampleSource, collator: Collator) -> None:
        self._source = source
        self._collator = collator

    def __getitem__(self, plan: BatchPlan) -> GraphBatch:
        return self._collator.collate(self._source.pack(plan.kernels, plan.configs), even=True)


class KernelDataModule(pl.LightningDataModule):
    """Training and validation batches of two sources, scaled alike.

    Args:
        train: training kernels, with the sampler that plans their batches.
        validation: validation kernels, with the plans of their batches.
        collator: scalers and neighbour limit of the network.
        num_workers: processes that read and collate; 0 is this one.
    """

    def __init__(
        self,
        train: tuple[SampleSource, BatchSampler],
        validation: tuple[SampleSource, list[BatchPlan]],
        collator: Collator,
        *,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self._train = train
        self._validation = validation
        self._collator = collator
        self._num_workers = num_workers

    def train_dataloader(self) -> DataLoader[GraphBatch]:
        """Batches of the current epoch."""
        source, sampler = self._train
        return self._loader(source, sampler)

    def val_dataloader(self) -> DataLoader[GraphBatch]:
        """The same validation batches every epoch."""
        return self._loader(*self._validation)

    def transfer_batch_to_device(self, batch: GraphBatch, device: torch.device, _index: int) -> GraphBatch:
        """Move a batch, which is built on the CPU, to `device`."""
        return batch if device.type == "cpu" else batch.to(device)

    def _loader(self, source: SampleSource, plans: BatchSampler | list[BatchPlan]) -> DataLoader[GraphBatch]:
        batches = PlannedBatches(source, self._collator)
        return DataLoader(batches, batch_size=None, sampler=plans, num_workers=self._num_workers)


def validation_plans(
    source: SampleSource, spec: ValidationSpec, batch: BatchSpec, seed: int, *, min_configs: int = 2
) -> list[BatchPlan]:
    """Plan the batches of validation, of kernels with at least `min_configs` decisions (ranking needs 2).

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
    chosen = usable[choose_configs(draw, len(usable), spec.kernels)]
    configs = {int(k): choose_configs(draw, source.num_configs(int(k)), spec.configs) for k in chosen}
    # Padding is smallest when kernels of a batch have about equally many decisions.
    ordered = sorted(configs, key=lambda kernel: (len(configs[kernel]), kernel))
    starts = range(0, len(ordered), batch.kernels)
    groups = [sorted(ordered[start : start + batch.kernels]) for start in starts]
    return [BatchPlan(tuple(group), tuple(configs[kernel] for kernel in group)) for group in groups]
