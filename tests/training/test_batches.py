from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from benchmarks.synthetic_kernels import kernel_samples
from costbench.arrays import I64
from costbench.errors import DataError, ParamsError
from costbench.features.packed_kernels import FeatureExtremes, PackedKernels
from costbench.models.graph_batch import Collator, FeatureScaling, KernelSamples
from costbench.params import parse
from costbench.rng import stream
from costbench.training.batches import (
    BatchPlan,
    BatchSampler,
    PlannedBatches,
    ValidationSpec,
    choose_configs,
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
    planned = PlannedBatches(SOURCE, COLLATOR)
    batches = list(DataLoader(planned, sampler=sampler, batch_size=None, num_workers=num_workers))
    assert len(batches) == 3
    for batch, expected in zip(batches, (planned[plan] for plan in sampler), strict=True):
        assert torch.equal(batch.config_features, expected.config_features)
        assert torch.equal(batch.edges.message, expected.edges.message)
    assert len(list(DataLoader(planned, sampler=plans, batch_size=None))) == len(plans)


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


class Counts:
    """A source of which only the counts are known: reading a kernel would fail."""

    def __init__(self, kernels: list[tuple[str, int]]) -> None:
        self.kernels = kernels

    def __len__(self) -> int:
        return len(self.kernels)

    def __getitem__(self, index: int) -> KernelSamples:
        raise AssertionError("the sampler reads no kernels")

    def pack(self, kernels: Sequence[int], configs: Sequence[I64]) -> PackedKernels:
        raise AssertionError("the sampler reads no kernels")

    def scaled(self, scaling: FeatureScaling) -> Counts:
        raise AssertionError("the sampler reads no kernels")

    def extremes(self) -> Iterable[FeatureExtremes]:
        raise AssertionError("the sampler reads no kernels")

    def application(self, index: int) -> str:
        return self.kernels[index][0]

    def num_configs(self, index: int) -> int:
        return self.kernels[index][1]


UNEVEN = Counts([("big", 500)] * 90 + [("small", 10)] * 3 + [("single", 40)])
SPEC = BatchSpec(kernels=4, configs=16, per_epoch=30)


def plans(sampler: BatchSampler, epoch: int = 0) -> list[BatchPlan]:
    sampler.set_epoch(epoch)
    return list(sampler)


def same(left: list[BatchPlan], right: list[BatchPlan]) -> bool:
    return [p.kernels for p in left] == [p.kernels for p in right] and all(
        np.array_equal(a, b)
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one.configs, other.configs, strict=True)
    )


def drawn(sampler: BatchSampler) -> Counter[int]:
    return Counter(kernel for plan in plans(sampler) for kernel in plan.kernels)


def test_a_batch_reads_the_source_in_order() -> None:
    for plan in plans(BatchSampler(UNEVEN, SPEC, 0)):
        assert list(plan.kernels) == sorted(plan.kernels)
        assert [len(places) for places in plan.configs] == [
            min(16, UNEVEN.num_configs(kernel)) for kernel in plan.kernels
        ]


def test_applications_are_drawn_evenly_however_uneven_they_are() -> None:
    counts = Counter(UNEVEN.application(k) for k in drawn(BatchSampler(UNEVEN, SPEC, 0)).elements())
    # 120 draws over three applications.
    assert counts == {"big": 40, "small": 40, "single": 40}


def test_kernels_of_an_application_are_drawn_evenly() -> None:
    counts = drawn(BatchSampler(UNEVEN, SPEC, 0))
    assert sorted(counts[k] for k in (90, 91, 92)) == [13, 13, 14]
    assert max(counts[k] for k in range(90)) == 1


def test_unbalanced_draws_follow_the_number_of_decisions() -> None:
    spec = BatchSpec(kernels=10, configs=4, balanced=False, per_epoch=400)
    counts = drawn(BatchSampler(Counts([("a", 900), ("b", 90), ("b", 10)]), spec, 0))
    assert counts[0] / 4000 == pytest.approx(0.9, abs=0.02)
    assert counts[1] / 4000 == pytest.approx(0.09, abs=0.02)
    assert counts[2] / 4000 == pytest.approx(0.01, abs=0.01)


def test_decisions_are_different_and_ascending() -> None:
    for plan in plans(BatchSampler(UNEVEN, SPEC, 0)):
        for kernel, configs in zip(plan.kernels, plan.configs, strict=True):
            assert len(configs) == min(16, UNEVEN.num_configs(kernel))
            assert (np.diff(configs) > 0).all()
            assert 0 <= configs[0] <= configs[-1] < UNEVEN.num_configs(kernel)


def test_decisions_are_drawn_uniformly() -> None:
    draw = stream(0, "test")
    counts = np.zeros(20)
    for _ in range(3000):
        counts[choose_configs(draw, 20, 5)] += 1
    # Each with probability 1/4: 750 of 3,000, standard deviation 24.
    assert np.abs(counts - 750).max() < 100


def test_an_epoch_follows_from_seed_and_number() -> None:
    sampler = BatchSampler(UNEVEN, SPEC, 7)
    third = plans(sampler, epoch=3)
    plans(sampler, epoch=0)
    assert same(third, plans(sampler, epoch=3))
    assert same(third, plans(BatchSampler(UNEVEN, SPEC, 7), epoch=3))
    assert not same(third, plans(sampler, epoch=4))
    assert not same(third, plans(BatchSampler(UNEVEN, SPEC, 8), epoch=3))


def test_processes_that_train_together_draw_different_batches() -> None:
    assert not same(plans(BatchSampler(UNEVEN, SPEC, 0)), plans(BatchSampler(UNEVEN, SPEC, 0, rank=1)))


def test_length() -> None:
    sampler = BatchSampler(UNEVEN, SPEC, 0)
    assert len(sampler) == len(plans(sampler)) == 30


def test_kernels_with_too_few_decisions_are_left_out() -> None:
    source = Counts([("a", 1), ("b", 1), ("b", 2)])
    assert set(drawn(BatchSampler(source, SPEC, 0, min_configs=2))) == {2}
    assert set(drawn(BatchSampler(source, SPEC, 0))) == {0, 1, 2}
    with pytest.raises(DataError, match="none of 1 kernels has 2 or more decisions"):
        BatchSampler(Counts([("a", 1)]), SPEC, 0, min_configs=2)


@pytest.mark.parametrize("field", ["kernels", "configs", "per_epoch"])
def test_impossible_batches_are_refused(field: str) -> None:
    with pytest.raises(ParamsError, match=field):
        parse(BatchSpec, {field: 0}, where="params.yaml")
