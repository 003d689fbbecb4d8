"""How an encoder sees a batch as plain graphs: a copy of each kernel's graph for each of its decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Graphs:
    """Plain graphs, as PyTorch Geometric writes a batch of them.

    Attributes:
        index: graph of each node, int64 [n], ascending.
        to_consumers: edges from producers, senders above receivers, int64 [2, m].
        to_producers: edges from consumers, int64 [2, m].
    """

    index: Tensor
    to_consumers: Tensor
    to_producers: Tensor


def encode(layers: Callable[[Tensor, Graphs], Tensor], states: Tensor, batch: Any) -> Tensor:
    """Applies layers of plain graphs, [n, hidden] kept, to the states of a batch.

    Kernels of about the same size are encoded together, as attention pads all to the largest of them.

    Args:
        layers: function of the states of all nodes and of their graphs.
        states: states of nodes under each decision, [N, C, hidden].
        batch: batch of K kernels (`costbench.models.graph_batch.GraphBatch`).

    Shape: [N, C, hidden] kept.
    """
    counts = torch.tensor(batch.node_counts, device=states.device)
    # 1, 2, 3 to 4, 5 to 8, ... nodes
    size_class = torch.frexp(counts - 0.5)[1][batch.kernel_of_node]
    nodes_of_classes = [torch.nonzero(size_class == number).squeeze(1) for number in size_class.unique()]
    encoded = []
    for nodes in nodes_of_classes:
        graphs = _copies(nodes, states.shape[1], batch)
        rows = layers(states[nodes].transpose(0, 1).flatten(0, 1), graphs)
        encoded.append(rows.view(states.shape[1], len(nodes), -1).transpose(0, 1))
    return torch.cat(encoded)[torch.cat(nodes_of_classes).argsort()]


def _copies(nodes: Tensor, copies: int, batch: Any) -> Graphs:
    """Returns copies of the graphs of some nodes, one after the other."""
    row = torch.full_like(batch.kernel_of_node, -1)
    row[nodes] = torch.arange(len(nodes), device=nodes.device)
    _, graph = batch.kernel_of_node[nodes].unique_consecutive(return_inverse=True)
    copy = torch.arange(copies, device=nodes.device)[:, None]

    def edges(edge_index: Tensor) -> Tensor:
        inside = row[edge_index[:, row[edge_index[0]] >= 0]]
        return (inside[:, None] + copy * len(nodes)).flatten(1)

    index = (graph + copy * (graph.max() + 1)).flatten()
    return Graphs(index, edges(batch.edges.to_consumers), edges(batch.edges.to_producers))
