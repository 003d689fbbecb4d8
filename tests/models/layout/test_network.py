from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.naive_layouts import NaiveLayoutNet, naive_batch
from costbench.errors import DataError
from costbench.models.layout import network
from costbench.models.layout.inputs import (
    NUM_AXES,
    NUM_AXIS_SLOTS,
    LayoutInputs,
    LayoutScaling,
    layout_inputs,
)
from costbench.models.layout.model import config_scores
from costbench.models.layout.network import LayoutNetwork, plain_scores
from costbench.models.layout.segments import build_segment, segment_scores
from costbench.models.spec import AcrossConfigs, LayoutNetSpec, Pooling
from tests.models.layout.graphs import chain, network_on, random_graph

SMALL = {"hidden": 16, "opcode_embedding": 8}
ALL: tuple[Pooling, ...] = get_args(Pooling)
SPECS = [
    LayoutNetSpec(**SMALL),
    LayoutNetSpec(**SMALL, pooling=("configurable-mean",)),
    LayoutNetSpec(**SMALL, pooling=ALL, options="scaled"),
    LayoutNetSpec(**SMALL, directed=False, residual=False, encoder_layers=1),
    LayoutNetSpec(**SMALL, encoder="gcn", pooling=ALL),
    LayoutNetSpec(**SMALL, encoder="gcn", pooling=("configurable-max",), encoder_layers=4),
    LayoutNetSpec(**SMALL, encoder="none", pooling=ALL),
    LayoutNetSpec(**SMALL, prune_hops=1, part_nodes=20, pooling=ALL),
    LayoutNetSpec(**SMALL, across_configs="softmax"),
]


def scores_and_gradients(net: LayoutNetwork, scores: Tensor) -> dict[str, Tensor]:
    """Scores, and the gradient of some function of them by each weight."""
    net.zero_grad()
    (scores * torch.arange(1.0, len(scores) + 1)).sum().backward()
    found = {name: weight.grad for name, weight in net.named_parameters()}
    return {"scores": scores.detach()} | {name: grad for name, grad in found.items() if grad is not None}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.encoder}-{len(spec.pooling)}")
def test_the_split_network_equals_the_plain_one(spec: LayoutNetSpec) -> None:
    graph = random_graph(5, 90, 7, 12)
    net, inputs = network_on(graph, spec)
    options = inputs.option_rows(np.arange(12))
    split = scores_and_gradients(net, net(inputs, options))
    plain = scores_and_gradients(net, plain_scores(net, inputs, options))
    assert split.keys() == plain.keys()
    assert split["scores"].std() > 1e-3
    for name, value in plain.items():
        scale = float(value.abs().max())
        torch.testing.assert_close(split[name], value, rtol=1e-4, atol=1e-4 * max(scale, 1e-6), msg=name)


@pytest.mark.parametrize("pooling", [("mean",), ("configurable-mean", "mean")])
@pytest.mark.parametrize("directed", [True, False])
def test_the_plain_network_equals_naive_pyg(pooling: tuple[Pooling, ...], directed: bool) -> None:
    spec = LayoutNetSpec(**SMALL, options="scaled", pooling=pooling, directed=directed)
    net, inputs = network_on(random_graph(6, 60, 9, 10), spec)
    options = inputs.option_rows(np.arange(10))
    with torch.no_grad():
        naive = NaiveLayoutNet(net)(naive_batch(inputs, options))
        torch.testing.assert_close(plain_scores(net, inputs, options), naive)
        torch.testing.assert_close(net(inputs, options), naive)


def test_any_convolution_of_pyg_runs_in_the_plain_form() -> None:
    spec = LayoutNetSpec(**SMALL, encoder="pyg.GATv2Conv(heads=2)", encoder_layers=2)
    net, inputs = network_on(random_graph(7, 40, 5, 6), spec)
    assert not net.splits
    together = net(inputs, inputs.option_rows(np.arange(6)))
    alone = torch.cat([net(inputs, inputs.option_rows(np.array([row]))) for row in range(6)])
    torch.testing.assert_close(together, alone)
    assert together.std() > 1e-4


@pytest.mark.parametrize("encoder", ["graphsage", "none"])
def test_scores_do_not_depend_on_chunks(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, inputs = network_on(random_graph(8, 50, 6, 70), LayoutNetSpec(**SMALL, encoder=encoder))
    whole = config_scores(net, inputs)
    some = np.array([69, 3, 3, 11])
    np.testing.assert_allclose(config_scores(net, inputs, some), whole[some], rtol=1e-5, atol=1e-5)
    monkeypatch.setattr("costbench.models.layout.model.MAX_CHUNK", 9)
    np.testing.assert_allclose(config_scores(net, inputs), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("across", ["none", "softmax"])
@pytest.mark.parametrize("has_segment", [False, True])
def test_gradients_do_not_depend_on_parts(
    across: AcrossConfigs, has_segment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = LayoutNetSpec(hidden=16, opcode_embedding=8, across_configs=across, set_size=4)
    net, inputs = network_on(random_graph(6, 60, 9, 7), spec)
    options = inputs.option_rows(np.arange(7))
    segment = build_segment(inputs, np.arange(60) < 35)

    def computed() -> dict[str, Tensor]:
        scores = segment_scores(net, inputs, options, segment) if has_segment else net(inputs, options)
        return scores_and_gradients(net, scores)

    at_once = computed()
    # Parts of two configs, the last one of one.
    monkeypatch.setattr(network, "KEPT_VALUES", 2 * 16 * inputs.plan.largest)
    assert [len(part) for part in network.parts_of(options, 16 * inputs.plan.largest)] == [2, 2, 2, 1]
    in_parts = computed()
    assert in_parts.keys() == at_once.keys()
    for name, value in at_once.items():
        torch.testing.assert_close(in_parts[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_across_configs_scores_depend_on_the_set_and_the_seed_alone() -> None:
    spec = LayoutNetSpec(**SMALL, across_configs="softmax", set_size=8)
    net, inputs = network_on(random_graph(9, 50, 6, 20), spec)
    assert np.array_equal(config_scores(net, inputs, seed=1), config_scores(net, inputs, seed=1))
    assert not np.allclose(config_scores(net, inputs, seed=1), config_scores(net, inputs, seed=2))


def test_a_config_changes_nothing_where_nothing_is_configurable() -> None:
    graph = chain(6, [], num_configs=3)
    other = random_graph(10, 30, 4, 3)
    spec = LayoutNetSpec(**SMALL, pooling=ALL)
    net, _ = network_on(other, spec)
    scores = config_scores(net, layout_inputs(graph, LayoutScaling.fit([other]), spec))
    assert np.ptp(scores) == 0.0


def overfit(net: LayoutNetwork, inputs: LayoutInputs, steps: int) -> bool:
    """Whether 8 configs come to be in the right order, by a margin of a half, within some steps."""
    options = inputs.option_rows(np.arange(8))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        scores = net(inputs, options)
        apart = scores[1:] - scores[:-1]
        if bool((apart > 0.5).all()):
            return True
        torch.relu(1.0 - apart).sum().backward()
        optimizer.step()
    return False


@pytest.mark.parametrize(
    "spec",
    [
        *SPECS,
        LayoutNetSpec(**SMALL, encoder="pyg.SAGEConv", encoder_layers=2),
        LayoutNetSpec(**SMALL, encoder="examples.my_network:MyConv", encoder_layers=2),
    ],
    ids=lambda spec: f"{spec.encoder}-{spec.options}-{len(spec.pooling)}",
)
def test_every_network_overfits_one_graph(spec: LayoutNetSpec) -> None:
    # The 8 configs of 3 nodes with 2 options, to be ranked in their order.
    net, inputs = network_on(chain(12, [1, 5, 9], num_configs=8), spec)
    assert overfit(net, inputs, 250)


@pytest.mark.parametrize("number", [1.5, -2.0, np.nan, np.inf])
def test_what_is_no_axis_number_is_refused(number: float) -> None:
    graph = random_graph(5, 30, 4, 6)
    options = graph.option_features.copy()
    options[2, 3] = number
    scaling = LayoutScaling.fit([graph])
    other = replace(graph, option_features=options)
    with pytest.raises(DataError) as caught:
        layout_inputs(other, scaling, LayoutNetSpec(**SMALL))
    assert (caught.value.where, caught.value.field) == (graph.name, "option_features")


def test_axes_that_no_layout_of_tpugraphs_has_share_a_code() -> None:
    graph = random_graph(5, 30, 4, 6)
    options = np.full_like(graph.option_features, -1.0)
    options[0, :4] = [0.0, 5.0, 6.0, 300.0]
    inputs = layout_inputs(
        replace(graph, option_features=options), LayoutScaling.fit([graph]), LayoutNetSpec(**SMALL)
    )
    codes = inputs.options[0] - NUM_AXES * torch.arange(NUM_AXIS_SLOTS)
    assert codes[:5].tolist() == [1, 6, 7, 7, 0]
