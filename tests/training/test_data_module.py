from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.errors import DataError
from costbench.models.batch.graph_batch import Collator, FeatureScaling
from costbench.training.batch_sampler import BatchPlan, BatchSampler
from costbench.training.data_module import (
    KernelDataModule,
    PlannedBatches,
    ValidationSpec,
    validation_plans,
)
from costbench.training.spec import BatchSpec
from tests.training.kernel_list import KernelList, small_kernels

SOURCE = small_kernels(0, num_kernels=9)
COLLATOR = Collator(FeatureScaling.fit(SOURCE), 20)
BATCH = BatchSpec(kernels=4, configs=6, per_epoch=3)


def test_a_plan_becomes_the_batch_it_names() -> None:
    plan = BatchPlan((2, 0), (np.array([1, 3, 4]), np.array([0, 19])))
    batch = PlannedBatches(SOURCE, COLLATOR)[plan]
    assert batch.node_counts == (SOURCE[2].graph.num_nodes, SOURCE[0].graph.num_nodes)
    assert batch.runtime_ns[0].tolist() == SOURCE[2].runtime_ns[[1, 3, 4]].tolist()
    assert batch.mask.tolist() == [[True] * 3, [True, True, False]]


# JAX, if another test has loaded it into this process, warns of every fork; the worker here never calls it.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.parametrize("num_workers", [0, 1])
def test_loaders_follow_their_plans(num_workers: int) -> None:
    sampler = BatchSampler(SOURCE, BATCH, 0)
    plans = validation_plans(SOURCE, ValidationSpec(), BATCH, 0)
    module = KernelDataModule((SOURCE, sampler), (SOURCE, plans), COLLATOR, num_workers=num_workers)
    batches = list(module.train_dataloader())
    planned = [PlannedBatches(SOURCE, COLLATOR)[plan] for plan in sampler]
    assert len(batches) == 3
    for found, expected in zip(batches, planned, strict=True):
        assert torch.equal(found.config_features, expected.config_features)
        assert torch.equal(found.edges.message, expected.edges.message)
    assert len(list(module.val_dataloader())) == len(plans)


def test_batches_stay_where_the_network_is() -> None:
    module = KernelDataModule((SOURCE, BatchSampler(SOURCE, BATCH, 0)), (SOURCE, []), COLLATOR)
    batch = COLLATOR([SOURCE[0]])
    assert module.transfer_batch_to_device(batch, torch.device("cpu"), 0) is batch
    assert module.transfer_batch_to_device(batch, torch.device("meta"), 0).mask.device.type == "meta"


def test_validation_reads_every_kernel_once_up_to_its_limits() -> None:
    plans = validation_plans(SOURCE, ValidationSpec(configs=7), BATCH, 0)
    kernels = [kernel for plan in plans for kernel in plan.kernels]
    assert sorted(kernels) == list(range(9))
    assert [len(plan.kernels) for plan in plans] == [4, 4, 1]
    assert {len(configs) for plan in plans for configs in plan.configs} == {7}
    few = validation_plans(SOURCE, ValidationSpec(kernels=5), BATCH, 0)
    assert sum(len(plan.kernels) for plan in few) == 5


def test_validation_is_the_same_in_every_epoch_and_run() -> None:
    first, second = (validation_plans(SOURCE, ValidationSpec(configs=7), BATCH, 3) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.kernels == other.kernels
        for left, right in zip(one.configs, other.configs, strict=True):
            np.testing.assert_array_equal(left, right)


def test_validation_needs_kernels_that_can_be_ranked() -> None:
    single = KernelList([kernel_samples(0, num_nodes=2, num_configs=1)])
    with pytest.raises(DataError, match="no validation kernel has 2 or more decisions"):
        validation_plans(single, ValidationSpec(), BATCH, 0)
    mixed = KernelList([*single, kernel_samples(1, num_nodes=2, num_configs=3)])
    assert [plan.kernels for plan in validation_plans(mixed, ValidationSpec(), BATCH, 0)] == [(1,)]
    both = validation_plans(mixed, ValidationSpec(), BATCH, 0, min_configs=1)
    assert sorted(kernel for plan in both for kernel in plan.kernels) == [0, 1]


@pytest.mark.parametrize("values", [{"kernels": 0}, {"configs": 0}])
def test_impossible_validation_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be 1 of 1 or more"):
        ValidationSpec(**values)
