"""The learned model as one would first write it in PyTorch Geometric: a graph per (kernel, decision).

The reference that the shared-graph form is checked against and timed against. Every decision gets a copy of
its kernel's nodes with the decision's features appended to each, `Batch` stacks the copies, and messages go
edge by edge. Attention over edges is PyG's `GATConv`; sequences are padded to the longest kernel
(`to_dense_batch`), which is what PyG's own LSTM aggregation does, and go through torch's LSTM and Transformer
layers. The weights are those of a `LearnedCostNet`, read in place, so both give the same costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from costbench.features.graph_tensors import KernelGraph
from costbench.models.graph_batch import FeatureScaling, KernelSamples
from costbench.models.learned import LearnedCostNet

with warnings.catch_warnings():
    # PyG 2.8 compiles parts of itself with torch.jit, which torch 2.13 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import (
        GATConv,
        MessagePassing,
        global_add_pool,
        global_max_pool,
        global_mean_pool,
    )
    from torch_geometric.utils import to_dense_batch

POOLS = {"max": global_max_pool, "mean": global_mean_pool, "sum": global_add_pool}


class NaiveCollator:
    """Builds PyG batches: one graph per decision of every kernel, in order.

    What does not depend on the decision is computed once per kernel and shared by its graphs, as it would be
    in a prepared data set; `Batch` then copies it.
    """

    def __init__(self, scaling: FeatureScaling, max_neighbors: int) -> None:
        self._scaling = scaling
        self._max_neighbors = max_neighbors
        self._prepared: dict[KernelGraph, dict[str, Tensor]] = {}

    def __call__(self, samples: Sequence[KernelSamples]) -> Batch:
        graphs = []
        for sample in samples:
            shared = self._prepare(sample.graph)
            decisions = torch.from_numpy(self._scaling.decision(sample.config_features))
            graphs.extend(Data(**shared, decision=decision[None]) for decision in decisions)
        return Batch.from_data_list(graphs)

    def _prepare(self, graph: KernelGraph) -> dict[str, Tensor]:
        if graph not in self._prepared:
            edges = torch.from_numpy(graph.edges)
            self._prepared[graph] = {
                "x": torch.from_numpy(self._scaling.node(graph.node_features)),
                "static": torch.from_numpy(self._scaling.static(graph.static_features[None])),
                "opcodes": torch.from_numpy(graph.opcodes),
                "edge_index": _truncate(edges, self._max_neighbors),
                "outgoing_edge_index": _truncate(edges.flip(0), self._max_neighbors),
            }
        return self._prepared[graph]


def _truncate(edges: Tensor, limit: int) -> Tensor:
    """Returns the first `limit` edges [source, destination] of every destination, by source."""
    kept: dict[int, list[int]] = {}
    for source, destination in sorted(edges.t().tolist()):
        neighbors = kept.setdefault(destination, [])
        if len(neighbors) < limit:
            neighbors.append(source)
    pairs = [(source, node) for node, sources in kept.items() for source in sources]
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t().contiguous()


class _Hop(MessagePassing):
    """Messages along one direction: aggregate f(x_j)."""

    def __init__(self, aggregation: str) -> None:
        super().__init__(aggr=aggregation)

    def forward(self, states: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=states)


class NaiveNet(nn.Module):
    """The function of `net` over naive batches. Kernels must store their nodes in topological order."""

    def __init__(self, net: LearnedCostNet) -> None:
        super().__init__()
        self.net = net
        spec = net.spec
        self.hop = _Hop(spec.aggregation)
        if spec.encoder == "gat":
            self.attention = GATConv(
                spec.hidden, spec.hidden // spec.gat_heads, spec.gat_heads, bias=spec.biases
            )
        if spec.reduction == "transformer":
            self.layer = nn.TransformerEncoderLayer(
                spec.hidden,
                spec.transformer_heads,
                spec.transformer_width or spec.hidden,
                spec.dropout,
                batch_first=True,
                bias=spec.biases,
            )

    def forward(self, batch: Batch) -> Tensor:
        """Costs, float32 [graphs]."""
        return self.net.level + self._reduced(batch)

    def _reduced(self, batch: Batch) -> Tensor:
        net, spec, of_node = self.net, self.net.spec, batch.batch
        embedded = torch.cat([net.opcode_embedding(batch.opcodes), batch.x], dim=-1)
        states = _joined(net.input, embedded, self._shared(batch, "node")[of_node])
        if spec.encoder == "graphsage":
            for hop in net.encoder.hops:
                states = self._sage(hop, states, batch)
        if spec.encoder == "gat":
            for hop in net.encoder.gat.hops:
                states = self._gat(hop, states, batch)
        for layer in net.final:
            states = _feed_forward(layer.first, layer.more, states)
        joined = self._shared(batch, "kernel")
        if spec.reduction == "per-node":
            costs = _head(net.reduction.head, states, joined[of_node])
            return global_add_pool(costs, of_node, batch.num_graphs)
        if spec.reduction == "lstm":
            return _head(net.reduction.head, self._lstm(states, batch), joined)
        if spec.reduction == "transformer":
            return _head(net.reduction.head, self._transformer(states, batch), joined)
        pooled = [POOLS[name](states, of_node, batch.num_graphs) for name in spec.columns]
        return _head(net.reduction.head, torch.cat(pooled, dim=-1), joined)

    def _sage(self, hop: nn.Module, states: Tensor, batch: Batch) -> Tensor:
        forth = hop.to_consumers
        back = forth if hop.to_producers is None else hop.to_producers
        heard = self.hop(_feed_forward(forth.first, forth.more, states), batch.edge_index)
        heard = heard + self.hop(_feed_forward(back.first, back.more, states), batch.outgoing_edge_index)
        states = _feed_forward(hop.update.both, hop.update.more, torch.cat([states, heard], dim=-1))
        return nn.functional.normalize(states, dim=-1) if self.net.spec.l2_normalize else states

    def _gat(self, hop: nn.Module, states: Tensor, batch: Batch) -> Tensor:
        ways = [batch.edge_index, batch.outgoing_edge_index]
        if len(hop.ways) == 1:
            ways = [torch.cat(ways, dim=1)]
        heard = 0
        for way, edges in zip(hop.ways, ways, strict=True):
            weights = {
                "lin.weight": way.values.weight,
                "att_src": way.attend_sender[None],
                "att_dst": way.attend_receiver[None],
            }
            if way.values.bias is not None:
                weights["bias"] = way.values.bias
            heard = heard + functional_call(self.attention, weights, (states, edges))
        states = torch.relu(heard)
        for layer in hop.more:
            states = torch.relu(layer(states))
        return nn.functional.normalize(states, dim=-1) if self.net.spec.l2_normalize else states

    def _lstm(self, states: Tensor, batch: Batch) -> Tensor:
        lstm = self.net.reduction.lstm
        padded, mask = to_dense_batch(states, batch.batch)
        start = padded.new_zeros(len(lstm.layers), len(padded), lstm.width)
        layers = len(lstm.layers)
        read = torch.lstm(
            padded, (start, start), lstm.weights(), True, layers, 0.0, self.training, False, True
        )
        # Padding is on the right: the state at a kernel's last node knows nothing of it.
        return read[0][torch.arange(len(padded)), mask.sum(dim=1) - 1]

    def _transformer(self, states: Tensor, batch: Batch) -> Tensor:
        padded, mask = to_dense_batch(states, batch.batch)
        for layer in self.net.reduction.transformer.layers:
            weights = {
                "self_attn.in_proj_weight": layer.attention_inputs.weight,
                "self_attn.out_proj.weight": layer.attention_output.weight,
                "linear1.weight": layer.widen.weight,
                "linear2.weight": layer.narrow.weight,
                "norm1.weight": layer.attention_norm.weight,
                "norm2.weight": layer.feed_forward_norm.weight,
            }
            if layer.widen.bias is not None:
                weights |= {
                    "self_attn.in_proj_bias": layer.attention_inputs.bias,
                    "self_attn.out_proj.bias": layer.attention_output.bias,
                    "linear1.bias": layer.widen.bias,
                    "linear2.bias": layer.narrow.bias,
                    "norm1.bias": layer.attention_norm.bias,
                    "norm2.bias": layer.feed_forward_norm.bias,
                }
            padded = functional_call(self.layer, weights, (padded,), {"src_key_padding_mask": ~mask})
        return (padded * mask[..., None]).sum(dim=1)

    def _shared(self, batch: Batch, place: str) -> Tensor:
        """Features of every graph that enter at `place`."""
        parts = [batch.decision[:, :0]]
        if self.net.spec.decision_features == place:
            parts.append(batch.decision)
        if self.net.spec.static_features == place:
            parts.append(batch.static)
        return torch.cat(parts, dim=-1)


def _feed_forward(first: nn.Module, more: nn.ModuleList, states: Tensor) -> Tensor:
    states = torch.relu(first(states))
    for layer in more:
        states = torch.relu(layer(states))
    return states


def _joined(module: nn.Module, own: Tensor, joined: Tensor) -> Tensor:
    """Returns relu of one linear layer over the concatenation of both inputs."""
    inputs, weight = own, module.own.weight
    if module.joined is not None:
        inputs = torch.cat([own, joined], dim=-1)
        weight = torch.cat([weight, module.joined.weight], dim=-1)
    states = torch.relu(nn.functional.linear(inputs, weight, module.own.bias))
    for layer in module.more:
        states = torch.relu(layer(states))
    return states


def _head(head: nn.Module, embeddings: Tensor, joined: Tensor) -> Tensor:
    if head.join is not None:
        embeddings = _joined(head.join, embeddings, joined)
        for layer in head.more:
            embeddings = layer(embeddings)
    return head.cost(embeddings).squeeze(-1)
