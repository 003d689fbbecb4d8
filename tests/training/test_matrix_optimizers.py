from __future__ import annotations

import copy
import math
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from costbench.models.graph_batch import Collator, FeatureScaling
from costbench.models.learned import LearnedCostNet
from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.reductions import REDUCTIONS
from costbench.models.spec import NetSpec
from costbench.training.batches import BatchPlan, PlannedBatches
from costbench.training.lightning_module import MATRIX_OPTIMIZERS, CostModelModule
from costbench.training.losses import LOSSES
from costbench.training.matrix_optimizer import MatrixOptimizer, matrices_of
from costbench.training.spec import OptimizerSpec, TrainSpec
from tests.training.kernel_list import small_kernels


class SmallNet(nn.Module):
    """An embedding, a matrix, a bias, and a layer with one output."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.layer = nn.Linear(4, 6)
        self.cost = nn.Linear(6, 1, bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        return self.cost(torch.relu(self.layer(self.embedding(codes)))).squeeze(-1)


def small_net() -> SmallNet:
    torch.manual_seed(0)
    return SmallNet()


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    codes, wanted = torch.arange(5), torch.linspace(-1.0, 1.0, 5)
    for _ in range(steps):
        optimizer.zero_grad()
        (net(codes) - wanted).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("optimizer", MATRIX_OPTIMIZERS.values(), ids=MATRIX_OPTIMIZERS)
def test_what_is_no_matrix_steps_as_by_adam(optimizer: type[MatrixOptimizer]) -> None:
    """With the matrix held still in both, all else is moved alike, bit for bit."""
    nets = [small_net() for _ in range(2)]
    for net in nets:
        net.layer.weight.requires_grad_(False)
    train(nets[0], torch.optim.AdamW(nets[0].parameters(), lr=0.01, weight_decay=0.1, fused=True), 5)
    train(nets[1], optimizer(nets[1], lr=0.01, weight_decay=0.1), 5)
    for adam, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(adam, other)
    assert not torch.equal(nets[1].embedding.weight, small_net().embedding.weight)


def test_embeddings_biases_and_single_rows_are_no_matrices() -> None:
    net = small_net()
    assert [id(weight) for weight in matrices_of(net)] == [id(net.layer.weight)]


@pytest.mark.parametrize("optimizer", MATRIX_OPTIMIZERS.values(), ids=MATRIX_OPTIMIZERS)
@pytest.mark.parametrize("stopped_after", [1, 3, 10, 13])
def test_a_restored_optimiser_goes_on_as_if_it_had_not_stopped(
    optimizer: type[MatrixOptimizer], stopped_after: int
) -> None:
    whole = small_net()
    train(whole, optimizer(whole, lr=0.02, weight_decay=0.1), 25)
    stopped = small_net()
    first = optimizer(stopped, lr=0.02, weight_decay=0.1)
    train(stopped, first, stopped_after)
    second = optimizer(stopped, lr=0.5, weight_decay=0.0)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(stopped, second, 25 - stopped_after)
    for expected, weight in zip(whole.parameters(), stopped.parameters(), strict=True):
        assert torch.equal(expected, weight)


@pytest.mark.parametrize("optimizer", MATRIX_OPTIMIZERS.values(), ids=MATRIX_OPTIMIZERS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_steps_go_on_where_gradients_are_not_finite(optimizer: type[MatrixOptimizer], value: float) -> None:
    """The loss, which is not finite either, is reported at the end of the epoch."""
    net = small_net()
    steps = optimizer(net, lr=0.02, weight_decay=0.1)
    train(net, steps, 3)
    for _ in range(10):
        net.layer.weight.grad = torch.full_like(net.layer.weight, value)
        steps.step()
    assert not torch.isfinite(net.layer.weight).any()


@pytest.mark.parametrize("method", ["adam", "muon", "soap"])
@pytest.mark.parametrize("reduction", sorted(REDUCTIONS))
@pytest.mark.parametrize("encoder", sorted(ENCODERS))
def test_every_network_overfits_one_kernel_by_every_optimiser(
    encoder: str, reduction: str, method: Literal["adam", "muon", "soap"]
) -> None:
    """Eight decisions of a kernel come to be in the order of their runtimes."""
    kernels = small_kernels(3, num_kernels=4, num_configs=8)
    kernel = kernels[3]
    net_spec = NetSpec(encoder=encoder, reduction=reduction, hidden=8, opcode_embedding=4, gat_heads=2)
    spec = TrainSpec(net=net_spec, optimizer=OptimizerSpec(method=method, learning_rate=5e-3))
    scaling = FeatureScaling.fit([kernel])
    net = LearnedCostNet(net_spec, scaling.sizes, seed=1)
    batches = PlannedBatches(kernels, Collator(scaling, net_spec.max_neighbors))
    batch = batches[BatchPlan((3,), (np.arange(8),))]
    optimizer = CostModelModule(net, LOSSES["hinge"], spec).configure_optimizers()
    slower = batch.runtime_ns[0].argsort()
    ordered = net(batch)[0][slower]
    for _ in range(200):
        if bool((ordered.diff() > 0.0).all()):
            break
        optimizer.zero_grad()
        LOSSES["hinge"].function(net(batch).float(), batch.runtime_ns, batch.mask).backward()
        optimizer.step()
        ordered = net(batch)[0][slower]
    assert bool((ordered.diff() > 0.0).all()), ordered.tolist()
