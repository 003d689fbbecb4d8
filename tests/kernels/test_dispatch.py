"""Compiled networks against plain ones, through the door that training takes: costs and gradients."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.models.execution import apply_execution
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch, pack_samples
from costbench.models.learned import LearnedCostNet
from costbench.models.networks.cost_network import CostNetwork
from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.graphsage import RESIDUAL_HOPS
from costbench.models.networks.reductions import REDUCTIONS
from costbench.models.spec import Execution, NetSpec
from costbench_kernels.dispatch import MAX_WIDTH, compiled_forward

RESIDUAL = [(f"residual.{hop}", "column-wise") for hop in sorted(RESIDUAL_HOPS)]
CELLS = [*product(("gat", "graphsage", "none"), sorted(REDUCTIONS)), *RESIDUAL]
SAMPLES = [kernel_samples(seed, nodes, 100) for seed, nodes in enumerate((1, 2, 6, 19, 40))]
SCALING = FeatureScaling.fit(SAMPLES)
SEED = 2


def batch(decisions: int) -> GraphBatch:
    """As training collates it: large batches come with padding."""
    chosen = [sample.select(torch.arange(decisions).numpy()) for sample in SAMPLES]
    return Collator(SCALING, 20).collate(pack_samples(chosen), even=True)


def costs_and_gradients(net: LearnedCostNet, given: GraphBatch) -> list[torch.Tensor]:
    """By name of parameter; costs of padding are left out."""
    torch.manual_seed(0)
    pull = torch.randn(given.mask.shape, generator=torch.Generator().manual_seed(0))
    costs = net(given) * given.mask
    gradients = torch.autograd.grad((costs * pull.to(costs)).sum(), list(net.parameters()))
    return [costs.detach(), *gradients]


def doubles(given: GraphBatch) -> GraphBatch:
    names = ("node_features", "static_features", "config_features")
    return replace(given, **{name: getattr(given, name).double() for name in names})


def largest_difference(spec: NetSpec, decisions: int) -> float:
    """Of costs and gradients, compiled in float32 to plain in float64, as a share of the rounding of float32.

    Differences are relative to the largest number of a tensor, gradients also to the largest of all: those of
    attention nearly cancel out, so that of some weights only the rounding of far larger numbers is left. With
    these weights no rectifier's input is 0 but for rounding, where gradients jump in plain networks as well.
    """
    net, given = LearnedCostNet(spec, SCALING.sizes, seed=SEED), batch(decisions)
    with apply_execution(Execution()):
        assert compiled_forward(net, given) is not None
        compiled = costs_and_gradients(net, given)
    net.double()
    assert compiled_forward(net, doubles(given)) is None
    plain = costs_and_gradients(net, doubles(given))
    largest = max(float(tensor.abs().max()) for tensor in plain[1:])
    return max(
        float((mine - other).abs().max()) / (2e-5 * float(other.abs().max()) + 2e-6 * largest)
        for mine, other in zip(compiled, plain, strict=True)
    )


@pytest.mark.parametrize(("encoder", "reduction"), CELLS)
@pytest.mark.parametrize("decisions", [1, 7, 32, 100])
def test_compiled_networks_equal_plain_ones(encoder: str, reduction: str, decisions: int) -> None:
    assert largest_difference(NetSpec(encoder=encoder, reduction=reduction, hidden=32), decisions) <= 1


@pytest.mark.parametrize(
    "changes",
    [
        {"directed": False},
        {"l2_normalize": True},
        {"module_layers": 1},
        {"decision_features": "kernel", "static_features": "node"},
        {"decision_features": "kernel", "static_features": "kernel", "kernel_layers": 2},
        {"aggregation": "sum", "columns": ("sum", "max", "mean"), "node_final_layers": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("encoder", "reduction"),
    [
        ("graphsage", "column-wise"),
        ("gat", "per-node"),
        ("none", "lstm"),
        ("graphsage", "transformer"),
        ("residual.graphsage", "column-wise"),
        ("residual.gcn", "column-wise"),
    ],
)
def test_layers_between_kernels_equal_plain_ones(
    encoder: str, reduction: str, changes: dict[str, Any]
) -> None:
    assert largest_difference(NetSpec(encoder=encoder, reduction=reduction, hidden=16, **changes), 7) <= 1


@pytest.mark.parametrize(("encoder", "reduction"), CELLS)
def test_costs_are_the_same_bits_where_nothing_is_kept_for_gradients(encoder: str, reduction: str) -> None:
    spec = NetSpec(encoder=encoder, reduction=reduction, hidden=16)
    net = LearnedCostNet(spec, SCALING.sizes, seed=1)
    with torch.inference_mode():
        predicted = net(batch(7))
    assert torch.equal(predicted, net(batch(7)).detach())


@pytest.mark.parametrize(("encoder", "reduction"), [("graphsage", "column-wise"), ("gat", "lstm")])
@pytest.mark.parametrize("module_layers", [0, 1])
def test_dropout_zeroes_states_in_training_only(encoder: str, reduction: str, module_layers: int) -> None:
    spec = NetSpec(encoder=encoder, reduction=reduction, hidden=16, dropout=0.5, module_layers=module_layers)
    net, given = LearnedCostNet(spec, SCALING.sizes, seed=1), batch(7)
    torch.manual_seed(0)
    first, again = net(given), net(given)
    assert not torch.equal(first, again)
    net.eval()
    assert torch.equal(net(given), net(given))


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden": 24},
        {"hidden": MAX_WIDTH + 16},
        {"biases": True},
        {"aggregation": "max"},
        {"reduction": "lstm", "lstm_layers": 2},
        {"reduction": "lstm", "lstm_width": 20},
    ],
    ids=str,
)
def test_other_networks_have_no_kernels(changes: dict[str, Any]) -> None:
    net = CostNetwork(NetSpec(**({"hidden": 16} | changes)), SCALING.sizes)
    assert compiled_forward(net, batch(1)) is None


def test_other_types_devices_and_settings_have_no_kernels() -> None:
    net, given = CostNetwork(NetSpec(hidden=16), SCALING.sizes), batch(1)
    assert compiled_forward(net, given) is not None
    assert compiled_forward(net, doubles(given)) is None
    assert compiled_forward(net, replace(given, node_features=given.node_features.to("meta"))) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled_forward(net, given) is None
    with apply_execution(Execution(compiled=False)):
        assert compiled_forward(net, given) is None
    assert compiled_forward(net.double(), given) is None


def test_every_encoder_and_reduction_is_covered() -> None:
    assert {name for name, _ in CELLS} == {*ENCODERS, *(name for name, _ in RESIDUAL)}
    assert {name for _, name in CELLS} == set(REDUCTIONS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.filterwarnings("ignore:RNN module weights are not part")
@pytest.mark.parametrize(("encoder", "reduction"), CELLS)
def test_networks_are_the_same_on_a_gpu(encoder: str, reduction: str) -> None:
    spec = NetSpec(encoder=encoder, reduction=reduction, hidden=32)
    net, given = LearnedCostNet(spec, SCALING.sizes, seed=1).double(), doubles(batch(7))
    on_cpu = costs_and_gradients(net, given)
    on_gpu = costs_and_gradients(net.cuda(), given.to("cuda"))
    for mine, other in zip(on_gpu, on_cpu, strict=True):
        torch.testing.assert_close(mine.cpu(), other, rtol=1e-9, atol=1e-9)
