from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch

from costbench.models.layout import segments
from costbench.models.layout.inputs import split_into_parts
from costbench.models.layout.segments import build_segment, segment_scores
from costbench.models.spec import LayoutNetSpec
from tests.models.layout.graphs import network_on, random_graph
from tests.models.layout.test_network import scores_and_gradients

SMALL = {"hidden": 16, "opcode_embedding": 8}
SPECS = [
    LayoutNetSpec(**SMALL),
    LayoutNetSpec(**SMALL, pooling=("configurable-mean",)),
    LayoutNetSpec(**SMALL, encoder="gcn", pooling=("mean", "max"), residual=False),
    LayoutNetSpec(**SMALL, encoder="none"),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.encoder)
def test_forward_is_the_whole_graph(spec: LayoutNetSpec) -> None:
    net, inputs = network_on(random_graph(12, 90, 9, 6), spec)
    options = inputs.option_rows(np.arange(6))
    inside = np.arange(90) // 30 == 1
    found = segment_scores(net, inputs, options, build_segment(inputs, inside))
    torch.testing.assert_close(found, net(inputs, options), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.encoder)
def test_a_segment_of_all_nodes_has_the_gradient_of_the_whole_graph(spec: LayoutNetSpec) -> None:
    net, inputs = network_on(random_graph(13, 60, 9, 6), spec)
    options = inputs.option_rows(np.arange(6))
    segment = build_segment(inputs, np.ones(60, dtype=bool))
    found = scores_and_gradients(net, segment_scores(net, inputs, options, segment))
    wanted = scores_and_gradients(net, net(inputs, options))
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        scale = float(value.abs().max())
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4 * max(scale, 1e-6), msg=name)


def test_other_nodes_are_constants() -> None:
    """By hand, layer by layer on dense matrices: states outside are detached after every layer."""
    spec = LayoutNetSpec(**SMALL, pooling=("mean",), encoder_layers=2)
    net, inputs = network_on(random_graph(14, 60, 9, 6), spec)
    options = inputs.option_rows(np.arange(6))
    inside = np.arange(60) >= 35
    found = scores_and_gradients(net, segment_scores(net, inputs, options, build_segment(inputs, inside)))

    mask = torch.from_numpy(inside)[:, None, None]

    def cut(states: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, states, states.detach())

    terms = net.node_terms(inputs, np.arange(60))[:, None].expand(-1, 6, -1)
    layouts = net.option_terms(inputs.options)[options.t()]
    ids = torch.from_numpy(inputs.view.configurable)
    states = cut(net.input_states(terms + torch.zeros_like(terms).index_copy(0, ids, layouts)))
    for layer in net.layers:
        sums = layer.bias
        for part, matrix in zip(layer.parts, inputs.plan.matrices, strict=True):
            dense = torch.from_numpy(matrix.toarray())
            sums = sums + part(torch.einsum("ij,jch->ich", dense, states))
        states = cut(states + torch.relu(sums))
    wanted = scores_and_gradients(net, net.score(states.mean(dim=0)))
    whole = scores_and_gradients(net, net(inputs, options))
    for name, value in wanted.items():
        scale = float(value.abs().max())
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4 * max(scale, 1e-6), msg=name)
    assert not torch.allclose(whole["layers.0.bias"], wanted["layers.0.bias"], rtol=1e-2)


def test_a_part_is_a_graph_of_its_own() -> None:
    spec = LayoutNetSpec(**SMALL, part_nodes=20)
    net, inputs = network_on(random_graph(15, 60, 9, 6), spec)
    options = inputs.option_rows(np.arange(6))
    parts = split_into_parts(inputs, spec)
    assert len(parts) == 5
    with torch.no_grad():
        total = torch.zeros(6, 16)
        for part in parts:
            fixed = net.fixed_part(part.inputs)
            states = net.varying_states(part.inputs, fixed, part.options(options))
            total += states.sum(dim=0) + fixed.last.sum(dim=0)
        whole = net.fixed_part(inputs)
        wanted = net.varying_states(inputs, whole, options).sum(dim=0) + whole.last.sum(dim=0)
    torch.testing.assert_close(total, wanted)


def test_a_step_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its states are freed with its gradient, without a collection: no collector sees cycles of autograd."""
    kept: list[weakref.ref[torch.Tensor]] = []
    make = segments._KnownStep

    def watched(*values: Any) -> object:
        kept.extend(weakref.ref(value) for value in values if isinstance(value, torch.Tensor))
        return make(*values)

    monkeypatch.setattr(segments, "_KnownStep", watched)
    net, inputs = network_on(random_graph(15, 60, 9, 6), SPECS[0])
    inside = np.arange(60) >= 35
    scores = segment_scores(net, inputs, inputs.option_rows(np.arange(6)), build_segment(inputs, inside))
    assert any(ref() is not None for ref in kept)
    scores.sum().backward()
    del scores
    assert [ref() for ref in kept if ref() is not None] == []
