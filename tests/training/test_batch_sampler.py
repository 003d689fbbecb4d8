from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from costbench.arrays import I64
from costbench.errors import DataError, ParamsError
from costbench.features.packed_kernels import FeatureExtremes, PackedKernels
from costbench.models.batch.graph_batch import FeatureScaling, KernelSamples
from costbench.params import parse
from costbench.rng import stream
from costbench.training.batch_sampler import BatchPlan, BatchSampler, choose_configs
from costbench.training.spec import BatchSpec


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
