from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from costbench.models.layout.inputs import LayoutScaling, layout_inputs
from costbench.models.spec import LayoutNetSpec
from costbench.training.layout.module import KEPT_CONFIGS, HistoricalParts, LayoutModule
from costbench.training.layout.source import LayoutBatch
from costbench.training.spec import LayoutTrainSpec, SegmentSpec
from tests.models.layout.graphs import network_on, random_graph

SPEC = LayoutNetSpec(hidden=16, opcode_embedding=8, part_nodes=20)
NET, INPUTS = network_on(random_graph(30, 60, 9, 40), SPEC)


def batch(rows: list[int], segment: float) -> LayoutBatch:
    options = INPUTS.option_rows(np.array(rows))
    return LayoutBatch(INPUTS, np.array(rows), options, torch.ones(len(rows)), 0, segment)


def test_with_the_same_weights_scores_are_those_of_the_whole_graph() -> None:
    parts = HistoricalParts(dropout=0.0)
    for segment in (0.0, 0.5, 0.9):
        one = batch([0, 3, 7], segment)
        torch.testing.assert_close(parts.scores(NET, one, key=1), NET(INPUTS, one.options))
    assert len(parts) == 3


def test_other_parts_stay_as_they_were() -> None:
    parts = HistoricalParts(dropout=0.0)
    one = batch([0, 3], 0.0)
    before = parts.scores(NET, one, key=1)
    net, _ = network_on(random_graph(30, 60, 9, 40), SPEC)
    with torch.no_grad():
        net.layers[-1].bias.add_(0.1)
    stale, fresh = parts.scores(net, one, key=1), net(INPUTS, one.options)
    assert not torch.allclose(stale, fresh)
    assert not torch.allclose(stale, before)


def test_gradients_go_through_the_trained_part_alone() -> None:
    parts = HistoricalParts(dropout=0.0)
    NET.zero_grad()
    parts.scores(NET, batch([0, 3, 5], 0.4), key=1).sum().backward()
    used = set(np.unique(INPUTS.opcodes[20:40].numpy()).tolist())
    gradient = NET.opcode_embedding.weight.grad
    assert gradient is not None
    assert set(torch.nonzero(gradient.abs().sum(dim=1))[:, 0].tolist()) <= used


def test_left_out_parts_are_made_up_for() -> None:
    """The mean over many draws of what is left out is the pooled sum without dropout."""
    parts = HistoricalParts(dropout=0.5)
    seen = []

    def score(states: torch.Tensor) -> torch.Tensor:
        seen.append(states.detach())
        return states[:, 0]

    net, _ = network_on(random_graph(30, 60, 9, 40), SPEC)
    net.score = score  # type: ignore[method-assign]
    draw = np.random.default_rng(0)
    for key in range(400):
        parts.scores(net, batch([0, 3], float(draw.random())), key=key)
    mean = torch.stack(seen).mean(dim=0)
    HistoricalParts(dropout=0.0).scores(net, batch([0, 3], 0.0), key=0)
    torch.testing.assert_close(mean, seen[-1], rtol=0.15, atol=0.02)


def test_memory_is_bounded() -> None:
    assert KEPT_CONFIGS <= 1 << 14


def on_device(name: str, spec: LayoutTrainSpec) -> list[torch.Tensor]:
    """Returns the loss of a step and its gradients, computed on a device."""
    graph, device = random_graph(30, 60, 9, 40), torch.device(name)
    net, _ = network_on(graph, spec.net)
    inputs = layout_inputs(graph, LayoutScaling.fit([graph]), spec.net, device)
    rows = np.arange(8)
    runtime_ns = torch.from_numpy(graph.runtime_ns[rows].astype(np.float64)).to(device)
    one = LayoutBatch(inputs, rows, inputs.option_rows(rows), runtime_ns, 0, 0.4)
    module = LayoutModule(net.to(device), spec)
    loss = module.batch_loss((one,))
    loss.backward()
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    return [tensor.detach().cpu() for tensor in (loss, *gradients)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize(
    "spec",
    [
        LayoutTrainSpec(net=SPEC),
        LayoutTrainSpec(net=replace(SPEC, part_nodes=0), segments=SegmentSpec(nodes=25)),
        LayoutTrainSpec(net=SPEC, segments=SegmentSpec(historical=True, dropout=0.5)),
        LayoutTrainSpec(net=replace(SPEC, encoder="gcn", options="scaled"), loss="listmle"),
        LayoutTrainSpec(net=replace(SPEC, encoder="pyg.GATv2Conv"), loss="mse"),
        LayoutTrainSpec(net=replace(SPEC, across_configs="softmax", set_size=4)),
    ],
    ids=["whole", "segments", "historical", "gcn", "pyg", "across"],
)
def test_steps_are_the_same_on_a_gpu(spec: LayoutTrainSpec) -> None:
    on_cpu, on_gpu = on_device("cpu", spec), on_device("cuda", spec)
    assert len(on_gpu) == len(on_cpu) > 5
    for mine, other in zip(on_gpu, on_cpu, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
