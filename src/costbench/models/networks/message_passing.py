"""PyTorch Geometric's message passing on one graph with many decisions.

States are [nodes, decisions, width]: nodes are axis 0 (`node_dim=0`), and a message along an edge has the
states of all decisions.
"""

from __future__ import annotations

import warnings

from torch import Tensor

with warnings.catch_warnings():
    # PyG 2.8 compiles parts of itself with torch.jit, which torch 2.13 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import softmax

__all__ = ["Aggregation", "MessagePassing", "softmax"]


class Aggregation(MessagePassing):  # type: ignore[misc]
    """Computes out_i = aggregate of x_j over the edges j -> i; 0 for a node without incoming edges.

    Args:
        aggregation: "mean", "sum" or "max".
    """

    def __init__(self, aggregation: str) -> None:
        super().__init__(aggr=aggregation, node_dim=0)

    def forward(self, messages: Tensor, edge_index: Tensor) -> Tensor:
        """Shape: messages [N, C, H] and edge_index int64 [2, E], sources above targets, to [N, C, H]."""
        aggregated: Tensor = self.propagate(edge_index, x=messages)
        return aggregated
