from __future__ import annotations

import numpy as np
import torch

from costbench.models.spec import LayoutNetSpec
from costbench.training.layout.module import KEPT_CONFIGS, HistoricalParts
from costbench.training.layout.source import LayoutBatch
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
