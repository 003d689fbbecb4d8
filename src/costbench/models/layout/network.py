"""The layout network: opcode embedding, node features and layouts per node, graph network, pooling, score.

tpugraphs2023, section 4.2: node features and per-node configuration features (zero where a node is not
configurable) are the inputs of a 3-layer GraphSAGE with residual connections, node states are pooled and a
feed-forward network gives the score. Here a config's layouts enter through an embedding of each axis number,
which is a linear layer over one-hot features.

What no config touches is computed once per graph (`FixedPart`), and what a configurable node starts from,
once per option: configs only gather it. `plain_scores` is the same function as one first writes it, a copy of
all nodes per config: the reference for the split form, and the only form for convolutions of PyG by name,
whose receptive fields and normalisations are their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from costbench.arrays import I64
from costbench.hlo.opcode import NUM_OPCODE_CODES
from costbench.models.layout.convolutions import LinearConvolution, PygConvolution
from costbench.models.layout.inputs import NUM_AXES, NUM_AXIS_SLOTS, LayoutInputs
from costbench.models.networks.layers import Aggregation, initialize
from costbench.models.networks.pyg_convolutions import draw_weights
from costbench.models.spec import LayoutNetSpec

KEPT_VALUES = 1 << 24
"""Node states of a layer (rows times configs times width) that a training step has at a time: 64 MB."""


@dataclass(frozen=True, eq=False)
class FixedPart:
    """What of a graph does not depend on the config.

    Attributes:
        configurable: [nc, hidden], what the node's own features add to the inputs of configurable nodes.
        into_varying: per layer, [v', hidden]: messages from fixed to varying rows, and the bias.
        newly_varying: per layer, states before it of the rows that vary from then on.
        last: [f, hidden], fixed states after the last layer.
    """

    configurable: Tensor
    into_varying: tuple[Tensor, ...]
    newly_varying: tuple[Tensor, ...]
    last: Tensor


class LayoutNetwork(nn.Module):
    """score = level + head(pool(convolutions(inputs(opcode, node features, layout)))); lower is faster.

    Args:
        spec: hyper-parameters.
        node_width: number of scaled node features.
        option_width: number of scaled layout features; read only where `spec.options` is `scaled`.
        seed: seed of the initial weights.

    Raises:
        ChoiceError, ParamsError: if `spec.encoder` is unknown or cannot be built.
    """

    def __init__(self, spec: LayoutNetSpec, node_width: int, option_width: int, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.node_width, self.option_width = node_width, option_width
        hidden = spec.hidden
        self.opcode_embedding = nn.Embedding(NUM_OPCODE_CODES, spec.opcode_embedding)
        self.node_input = nn.Linear(spec.opcode_embedding + node_width, hidden)
        one_hot = spec.options == "one-hot"
        self.axis_embedding = nn.Embedding(NUM_AXIS_SLOTS * NUM_AXES, hidden) if one_hot else None
        self.option_input = None if one_hot else nn.Linear(option_width, hidden, bias=False)
        self.inputs = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(spec.input_layers - 1))
        self.layers = nn.ModuleList(_convolution(spec) for _ in range(spec.hops))
        width = hidden * len(spec.pooling) * (1 if spec.across_configs == "none" else 2)
        widths = [width, *[hidden] * spec.head_layers]
        self.head = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.narrow = nn.Linear(widths[-1], 1, bias=False)
        self.log_sharpness = nn.Parameter(torch.zeros(1)) if spec.across_configs == "softmax" else None
        self.level: Tensor
        self.register_buffer("level", torch.zeros(1))
        initialize(self, seed)
        for layer in self.layers:
            if isinstance(layer, PygConvolution):
                draw_weights(layer, seed)

    @property
    def splits(self) -> bool:
        """Whether fixed and varying rows can be computed apart: not with a convolution of PyG by name."""
        return not any(isinstance(layer, PygConvolution) for layer in self.layers)

    def forward(self, inputs: LayoutInputs, options: Tensor) -> Tensor:
        """Returns the scores of c configs, [c].

        Args:
            inputs: the graph.
            options: int64 [c, nc], rows of `inputs.options`.
        """
        if not self.splits:
            return plain_scores(self, inputs, options)
        return self.scores(inputs, self.fixed_part(inputs), options)

    def node_terms(self, inputs: LayoutInputs, nodes: I64) -> Tensor:
        """Returns what opcode and features add to the inputs of some nodes, [len(nodes), hidden]."""
        rows = torch.from_numpy(nodes)
        embedded = self.opcode_embedding(inputs.opcodes[rows])
        terms: Tensor = self.node_input(torch.cat([embedded, inputs.node_features[rows]], dim=1))
        return terms

    def option_terms(self, options: Tensor) -> Tensor:
        """Returns what layouts add: rows of `LayoutInputs.options`, [o, .], to [o, hidden]."""
        if self.axis_embedding is not None:
            return nn.functional.embedding_bag(options, self.axis_embedding.weight, mode="sum")
        assert self.option_input is not None, "one of two encodings"
        terms: Tensor = self.option_input(options)
        return terms

    def input_states(self, terms: Tensor) -> Tensor:
        """Returns the states before any message, [..., hidden], of the sum of a node's terms."""
        states = torch.relu(terms)
        for layer in self.inputs:
            states = torch.relu(layer(states))
        return states

    def fixed_part(self, inputs: LayoutInputs) -> FixedPart:
        """Returns what of a graph does not depend on the config; it depends on the weights."""
        plan = inputs.plan
        configurable = self.node_terms(inputs, plan.rows[0].varying)
        states = self.input_states(self.node_terms(inputs, plan.rows[0].fixed))
        into, newly_varying = [], []
        for layer, step in zip(self.layers, plan.layers, strict=True):
            assert isinstance(layer, LinearConvolution), "others are not split"
            into.append(layer.sum_fixed(step.into_varying, states))
            newly_varying.append(states[step.newly_varying])
            states = layer.update_fixed(step, states)
        return FixedPart(configurable, tuple(into), tuple(newly_varying), states)

    def scores(self, inputs: LayoutInputs, fixed: FixedPart, options: Tensor) -> Tensor:
        """Returns the scores [c] of configs, options int64 [c, nc], given the fixed part of their graph."""

        def pooled(part: Tensor) -> Tensor:
            states = self.varying_states(inputs, fixed, part)
            return self.pool(states, fixed.last, states[: part.shape[1]])

        return self.score(pooled_again(pooled, options, inputs.plan.largest * self.spec.hidden))

    def varying_states(self, inputs: LayoutInputs, fixed: FixedPart, options: Tensor) -> Tensor:
        """Returns the varying states after the last layer, [v, c, hidden]."""
        states = self.configurable_states(inputs, fixed.configurable, options)
        steps = zip(self.layers, inputs.plan.layers, fixed.into_varying, fixed.newly_varying, strict=True)
        for layer, step, into, newly_varying in steps:
            assert isinstance(layer, LinearConvolution), "others are not split"
            states = layer.update_varying(step, states, into, newly_varying)
        return states

    def configurable_states(self, inputs: LayoutInputs, terms: Tensor, options: Tensor) -> Tensor:
        """Returns the input states of configurable nodes, [nc, c, hidden]; each option is computed once."""
        rows = options.t()
        present, indices = _distinct(rows, len(inputs.options))
        sums = terms[inputs.option_node[present]] + self.option_terms(inputs.options[present])
        states: Tensor = nn.functional.embedding(indices, self.input_states(sums))
        return states

    def pool(self, varying: Tensor, fixed: Tensor, configurable: Tensor) -> Tensor:
        """Returns graph states, [c, columns].

        Args:
            varying: [v, c, hidden], node states that differ between configs.
            fixed: [f, hidden], those of all other nodes.
            configurable: [nc, c, hidden], those of the configurable nodes.
        """
        total = len(varying) + len(fixed)
        parts = []
        for name in self.spec.pooling:
            if name == "configurable-mean":
                parts.append(configurable.sum(dim=0) / max(1, len(configurable)))
            elif name == "mean":
                parts.append((varying.sum(dim=0) + fixed.sum(dim=0)) / total)
            elif name == "configurable-max":
                parts.append(_largest(configurable))
            else:
                parts.append(torch.maximum(_largest(varying), _largest(fixed)))
        return torch.cat(parts, dim=1)

    def score(self, states: Tensor) -> Tensor:
        """Returns scores [c] of graph states [c, columns]."""
        if self.log_sharpness is not None:
            shares = torch.softmax(states * self.log_sharpness.exp(), dim=0)
            states = torch.cat([states, states * shares * len(states)], dim=1)
        for layer in self.head:
            states = torch.relu(layer(states))
        scores: Tensor = self.narrow(states).squeeze(1) + self.level
        return scores


def pooled_again(pooled: Callable[[Tensor], Tensor], options: Tensor, values: int) -> Tensor:
    """Returns the pooled states of configs, [c, columns]; for a gradient, a few configs are computed again.

    Where the node states of all configs are too many to be kept, each part of the configs is computed again
    for its gradient, so that memory is that of a part: a third more operations, on states that caches hold.

    Args:
        pooled: computes the pooled states of configs, differentiable.
        options: int64 [c, nc], the configs.
        values: node states of a layer that a config has.
    """
    parts = parts_of(options, values)
    if len(parts) == 1 or not torch.is_grad_enabled():
        return pooled(options)
    return torch.cat(
        [checkpoint(pooled, part, use_reentrant=False, preserve_rng_state=False) for part in parts]
    )


def parts_of(options: Tensor, values: int) -> tuple[Tensor, ...]:
    """Returns configs in parts with at most `KEPT_VALUES` node states, `values` of a config, in a layer."""
    return torch.split(options, max(1, KEPT_VALUES // max(1, values)))


def _convolution(spec: LayoutNetSpec) -> nn.Module:
    if spec.encoder in ("graphsage", "gcn"):
        matrices = 1 if spec.encoder == "gcn" else 2 + spec.directed
        return LinearConvolution(matrices, spec.hidden, residual=spec.residual)
    return PygConvolution(spec)


def _distinct(rows: Tensor, num_options: int) -> tuple[Tensor, Tensor]:
    """Returns the options that occur, ascending, and `rows` as indices among them; all if they are few."""
    if num_options <= rows.numel():
        return torch.arange(num_options, device=rows.device), rows
    present, indices = torch.unique(rows, return_inverse=True)
    return present, indices


def _largest(states: Tensor) -> Tensor:
    """Returns the largest state of each column over axis 0; zero without rows, as states are positive."""
    return states.amax(dim=0) if len(states) else states.new_zeros(states.shape[1:])


def plain_scores(net: LayoutNetwork, inputs: LayoutInputs, options: Tensor) -> Tensor:
    """Returns the scores [c] of configs, options int64 [c, nc]; memory grows with c n hidden."""
    states = plain_states(net, inputs, options)
    no_fixed = states.new_zeros(0, states.shape[2])
    return net.score(net.pool(states, no_fixed, states[torch.from_numpy(inputs.view.configurable)]))


def plain_states(net: LayoutNetwork, inputs: LayoutInputs, options: Tensor) -> Tensor:
    """Returns the node states after the last layer, [n, c, hidden]."""
    count = len(options)
    terms = net.node_terms(inputs, np.arange(inputs.view.num_nodes))[:, None].expand(-1, count, -1)
    layouts = net.option_terms(inputs.options)[options.t()]
    # Zero where a node is not configurable.
    configurable = torch.from_numpy(inputs.view.configurable).to(terms.device)
    states = net.input_states(terms + torch.zeros_like(terms).index_copy(0, configurable, layouts))
    edges = np.stack([inputs.view.producers, inputs.view.consumers])
    to_consumers = torch.from_numpy(edges).to(terms.device)
    for layer in net.layers:
        after = torch.relu(_convolve(net.spec, layer, states, to_consumers))
        states = states + after if net.spec.residual else after
    return states


def _convolve(spec: LayoutNetSpec, layer: nn.Module, states: Tensor, to_consumers: Tensor) -> Tensor:
    """Returns a convolution's sums before the ReLU, [n, c, hidden]."""
    to_producers = to_consumers.flip(0)
    both = torch.cat([to_consumers, to_producers], dim=1)
    edge_indices = [to_consumers, to_producers] if spec.directed else [both]
    if isinstance(layer, PygConvolution):
        return layer(states, edge_indices)  # type: ignore[no-any-return]
    assert isinstance(layer, LinearConvolution), "the two kinds of layers"
    if spec.encoder == "gcn":
        edges, weight = gcn_norm(both, num_nodes=len(states))
        messages = layer.parts[0](states)[edges[0]] * weight[:, None, None]
        summed = torch.zeros_like(states).index_add(0, edges[1], messages)
        return summed + layer.bias
    mean = Aggregation("mean")
    for_state, *others = layer.parts
    sums = for_state(states) + layer.bias
    for part, edge_index in zip(others, edge_indices, strict=True):
        sums = sums + part(mean(states, edge_index))
    return sums  # type: ignore[no-any-return]
