"""Steps of `networks.residual.ResidualHops`: fused kernels for GraphSAGE, sparse products for GCN."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from costbench.models.batch.edges import Edges
from costbench.models.kernels.sage.hop_kernel import hop_step
from costbench.models.kernels.sage.messages import MessageMatrix, TorchCsr, aggregate, undirected
from costbench.models.kernels.steps import Step, run_steps
from costbench.models.networks.graphsage import SageHop
from costbench.models.networks.residual import GcnHop, ResidualHops, gcn_edges


def residual_steps(encoder: ResidualHops, edges: Edges) -> list[Step]:
    """Returns the steps of hops x = l2(x + hop(x)) over states [N, C, H] of a batch, one a hop."""
    spec = encoder.spec
    sage = MessageMatrix(edges if spec.directed else undirected(edges), mean=spec.aggregation == "mean")
    is_gcn = isinstance(encoder.hops[0], GcnHop)
    gcn = [GcnMatrix(way, edges.num_nodes) for way in gcn_edges(edges, directed=spec.directed) if is_gcn]
    return [
        _Residual(
            _GcnStep(hop, gcn) if isinstance(hop, GcnHop) else hop_step(cast(SageHop, hop), sage),
            normalize=spec.l2_normalize,
        )
        for hop in encoder.hops
    ]


class GcnMatrix:
    """The matrix D^-1/2 (A + I) D^-1/2 of one direction, [N, N]; D counts a node's neighbours and itself.

    Args:
        edge_index: int64 [2, E], senders above receivers.
        num_nodes: N.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        nodes = torch.arange(num_nodes, device=edge_index.device)
        sender, receiver = torch.cat([edge_index, nodes.expand(2, -1)], dim=1)
        scale = torch.bincount(receiver, minlength=num_nodes).to(torch.float32).rsqrt()
        weights = scale[sender] * scale[receiver]
        forth, back = (torch.argsort(one, stable=True) for one in (receiver, sender))
        self._forth = TorchCsr(receiver[forth], sender[forth], weights[forth], num_nodes)
        self._back = TorchCsr(sender[back], receiver[back], weights[back], num_nodes)

    def times(self, table: Tensor) -> Tensor:
        """Returns A x for x [N, W], without gradient."""
        return self._forth.times(table)

    def transposed_times(self, states: Tensor) -> Tensor:
        """Returns A^T x for x [N, W], without gradient."""
        return self._back.times(states)


class _GcnStep:
    """A `GcnHop` without biases: states are aggregated first, then multiplied by a direction's weights."""

    def __init__(self, hop: GcnHop, matrices: list[GcnMatrix]) -> None:
        self._hop = hop
        self._matrices = matrices

    def __call__(self, states: Tensor) -> Tensor:
        received = [aggregate(states, matrix) for matrix in self._matrices]
        linears = (cast(nn.Linear, linear) for linear in self._hop.messages)
        products = [linear(one) for linear, one in zip(linears, received, strict=True)]
        hop: Tensor = self._hop.dropout(sum(products[1:], start=products[0]).relu())
        return hop


class _Residual:
    """A step that adds its input to the output of another step."""

    def __init__(self, step: Step, *, normalize: bool) -> None:
        self._step = step
        self._normalize = normalize

    def __call__(self, states: Tensor) -> Tensor:
        states = states + run_steps(states, [self._step])
        return nn.functional.normalize(states, dim=-1) if self._normalize else states
