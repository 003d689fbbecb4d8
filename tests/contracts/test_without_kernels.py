"""Where the package of compiled kernels is missing, plain networks train and predict, and say so once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.synthetic_kernels import kernel_samples
from costbench.models.checkpoint import load_checkpoint
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch, pack_samples
from costbench.models.learned import LearnedCostNet, find_kernels
from costbench.models.networks import reductions
from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.reductions import REDUCTIONS, Head, segment_sum
from costbench.models.spec import NetSpec
from costbench.training.fit import fit
from costbench.training.spec import BatchSpec, TrainSpec
from tests.training.kernel_list import KernelList

SAMPLES = [kernel_samples(seed, nodes, 6) for seed, nodes in enumerate((3, 8, 5))]


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python finds no package `costbench_kernels`."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "costbench_kernels"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "costbench_kernels", None)
    find_kernels.cache_clear()
    yield
    find_kernels.cache_clear()


def batch(scaling: FeatureScaling) -> GraphBatch:
    return Collator(scaling, 20).collate(pack_samples(SAMPLES))


@pytest.mark.usefixtures("without_kernels")
def test_models_train_and_predict(tmp_path: Path) -> None:
    spec = TrainSpec(net=NetSpec(hidden=16), epochs=1, batch=BatchSpec(kernels=2, configs=4, per_epoch=2))
    result = fit(spec, KernelList(SAMPLES), KernelList(SAMPLES), tmp_path)
    assert result.computed_by == "plain"
    model = load_checkpoint(tmp_path)
    (costs,) = model.predict_kernels(SAMPLES[:1])
    assert np.isfinite(costs).all()
    assert model.net.computed_by == "plain"


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("encoder", sorted(ENCODERS))
@pytest.mark.parametrize("reduction", sorted(REDUCTIONS))
def test_every_network_runs_plain(encoder: str, reduction: str) -> None:
    scaling = FeatureScaling.fit(SAMPLES)
    net = LearnedCostNet(NetSpec(encoder=encoder, reduction=reduction, hidden=16), scaling.sizes)
    assert bool(torch.isfinite(net(batch(scaling))).all())
    assert net.computed_by == "plain"


@pytest.mark.usefixtures("without_kernels")
def test_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    scaling = FeatureScaling.fit(SAMPLES)
    net = LearnedCostNet(NetSpec(hidden=16), scaling.sizes)
    with caplog.at_level(logging.INFO, "costbench"):
        net(batch(scaling))
        net(batch(scaling))
    assert len([record for record in caplog.records if "costbench_kernels" in record.getMessage()]) == 1


class _Mean(nn.Module):
    """A reduction that has no compiled twin: the mean over nodes of the head's costs."""

    def __init__(self, spec: NetSpec, joined: int) -> None:
        super().__init__()
        self.head = Head(spec.hidden, joined, spec)

    def forward(self, states: Tensor, joined: Tensor, of: GraphBatch) -> Tensor:
        costs = segment_sum(self.head(states, joined, of.kernel_of_node), of.kernel_of_node, of.num_kernels)
        return costs / costs.new_tensor(of.node_counts).view(-1, 1)


def test_a_reduction_without_kernels_falls_back_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("costbench_kernels")
    monkeypatch.setattr(reductions, "REDUCTIONS", {**REDUCTIONS, "node-mean": _Mean})
    scaling = FeatureScaling.fit(SAMPLES)
    net = LearnedCostNet(NetSpec(reduction="node-mean", hidden=16), scaling.sizes)
    with caplog.at_level(logging.INFO, "costbench"):
        assert bool(torch.isfinite(net(batch(scaling))).all())
        net(batch(scaling))
    assert net.computed_by == "plain"
    assert len([record for record in caplog.records if "node-mean" in record.getMessage()]) == 1
