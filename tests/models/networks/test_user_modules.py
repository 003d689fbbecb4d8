"""Modules of a user's own: what they see, how they are seeded, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.errors import ParamsError
from costbench.models.checkpoint import load_checkpoint, save_checkpoint
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch
from costbench.models.learned import LearnedCostNet
from costbench.models.networks.reductions import Pooled
from costbench.models.spec import InputSizes, NetSpec

SOURCE = '''
import torch
from torch import nn

class Sum(nn.Module):
    """Sums rows; no parameters, no widths."""
    def forward(self, x, index, dim_size):
        return x.new_zeros(dim_size, x.shape[1]).index_add(0, index, x)

class Counted(Sum):
    """Reads values while it is built, and in each batch."""
    def __init__(self):
        super().__init__()
        self.rate = torch.linspace(0.5, 1.0, 3)[1].item()
    def forward(self, x, index, dim_size):
        return self.rate * super().forward(x, index, 1 + int(index.max()))

class Scaled(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.factor = nn.Parameter(torch.full((1,), 0.5))
    def forward(self, states, batch):
        return self.factor * states

class Costs(nn.Module):
    def __init__(self, spec, joined):
        super().__init__()
        self.linear = nn.Linear(spec.hidden, 1)
    def forward(self, states, joined, batch):
        sums = states.new_zeros(batch.num_kernels, *states.shape[1:])
        sums = sums.index_add(0, batch.kernel_of_node, states)
        return self.linear(sums).squeeze(-1)

class Narrow(Scaled):
    def forward(self, states, batch):
        return states[..., 1:]

class Late(nn.Module):
    """Fails on real batches alone."""
    def __init__(self, in_channels, out_channels):
        super().__init__()
    def forward(self, x, edge_index):
        if len(x) > 2:
            raise KeyError("bond")
        return x
'''


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTBENCH_PROJECT", str(tmp_path))
    (tmp_path / "user_modules_under_test.py").write_text(SOURCE)


def named(name: str) -> str:
    return f"user_modules_under_test:{name}"


@pytest.fixture(scope="module")
def batch() -> GraphBatch:
    """Two kernels of six and four nodes with three decisions each."""
    return collated()


def collated() -> GraphBatch:
    samples = [kernel_samples(1, num_nodes=6, num_configs=3), kernel_samples(2, num_nodes=4, num_configs=3)]
    return Collator(FeatureScaling.fit(samples), 20)(samples)


def network(batch: GraphBatch, seed: int = 0, **spec: object) -> LearnedCostNet:
    sizes = InputSizes(
        batch.node_features.shape[-1], batch.config_features.shape[-1], batch.static_features.shape[-1]
    )
    return LearnedCostNet(NetSpec(hidden=16, encoder_layers=1, **spec), sizes, seed)  # type: ignore[arg-type]


def test_a_pooling_sees_the_nodes_of_one_kernel_and_decision(batch: GraphBatch) -> None:
    pooled = network(batch, reduction=named("Sum")).reduction
    assert isinstance(pooled, Pooled)
    states = torch.rand(10, 3, 16, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([states[:6].sum(dim=0), states[6:].sum(dim=0)])
    torch.testing.assert_close(pooled.pooling(states, batch), expected)


@pytest.mark.parametrize(
    "spec",
    [
        {"encoder": named("Scaled")},
        {"reduction": named("Costs")},
        {"reduction": named("Sum")},
        {"reduction": "torch_geometric.nn:SoftmaxAggregation(learn=True)"},
        {"encoder": named("Scaled"), "reduction": named("Sum"), "decision_features": "kernel"},
    ],
)
def test_a_network_with_own_modules_prices_all_decisions_and_follows_from_its_seed(
    batch: GraphBatch, spec: dict[str, object]
) -> None:
    first, again, other = (network(batch, seed, **spec) for seed in (3, 3, 4))
    costs = first(batch)
    assert costs.shape == (2, 3)
    assert first.computed_by == "plain"
    torch.testing.assert_close(again(batch), costs, rtol=0.0, atol=0.0)
    assert not torch.equal(other(batch), costs)
    costs.sum().backward()
    assert all(weight.grad is not None for weight in first.encoder.parameters())


def test_a_module_that_reads_values_comes_back(batch: GraphBatch, tmp_path: Path) -> None:
    samples = [kernel_samples(1, num_nodes=6, num_configs=3)]
    net = network(batch, reduction=named("Counted"))
    save_checkpoint(tmp_path / "model", net, FeatureScaling.fit(samples), "score")
    assert torch.equal(load_checkpoint(tmp_path / "model").net(batch), net(batch))


def test_weights_are_those_of_the_constructor(batch: GraphBatch) -> None:
    """Our own rules set vectors to zero, which would make this encoder return nothing."""
    (factor,) = network(batch, encoder=named("Scaled")).encoder.parameters()
    assert factor.tolist() == [0.5]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"encoder": named("Narrow")},
            r"encoder: .*:Narrow: gives \[10, 3, 15\], not \[10, 3, 16\] .expected My",
        ),
        (
            {"encoder": named("Late")},
            r"encoder: .*:Late: user_mod.*py, line \d+, in forward: KeyError: 'bond'",
        ),
    ],
)
def test_what_fails_on_a_batch_is_one_line(batch: GraphBatch, spec: dict[str, object], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        network(batch, **spec)(batch)
