"""GraphSAGE as a fused kernel, and the steps that compute `networks.graphsage.GraphSage` with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from costbench.arrays import F32
from costbench.models.batch.edges import Edges
from costbench.models.kernels.layer_kernels import drops
from costbench.models.kernels.sage.backward import sage_backward
from costbench.models.kernels.sage.forward import SageMatrices, sage_forward
from costbench.models.kernels.sage.messages import MessageMatrix, aggregate, undirected
from costbench.models.kernels.steps import FusedKernel, Step, stacked
from costbench.models.networks.graphsage import GraphSage, SageHop


class HopWeights(NamedTuple):
    """Matrices of a hop, each [outputs, inputs] as in `nn.Linear`.

    Attributes:
        to_consumers: [H, H], makes the message of a node to its consumers.
        to_producers: [H, H], makes the message to its producers; None if it is the same message.
        update: [H, 2 H], maps the state and the aggregate to the new state.
    """

    to_consumers: Tensor
    to_producers: Tensor | None
    update: Tensor

    @staticmethod
    def of(hop: SageHop) -> HopWeights:
        """Returns the matrices of a hop without biases and module layers."""
        back = None if hop.to_producers is None else hop.to_producers.first.weight
        return HopWeights(hop.to_consumers.first.weight, back, hop.update.both.weight)


class SageKernel(FusedKernel):
    """Consecutive hops, each x = relu(U concat(x, A [relu(F x); relu(B x[with_producers])])).

    U, F, B are the `HopWeights`, A the `MessageMatrix`. Shape: [N, C, H] kept.
    """

    def __init__(self, hops: Sequence[HopWeights], matrix: MessageMatrix) -> None:
        self.weights = [weight for hop in hops for weight in hop]
        self._hops = hops
        self._matrix = matrix

    def forward(self, states: F32, keep: bool) -> F32:
        """See `steps.FusedKernel`."""
        self._rows = states.reshape(-1, states.shape[2])
        self._graph = self._matrix.graph(states.shape[1])
        forth = stacked([hop.to_consumers for hop in self._hops])
        update = stacked([hop.update for hop in self._hops])
        back = [hop.to_producers for hop in self._hops if hop.to_producers is not None]
        self._matrices = SageMatrices(forth, stacked(back) if back else forth, update)
        self._computed = sage_forward(self._rows, self._matrices, self._graph, keep)
        last: F32 = self._computed.updated[-1].reshape(states.shape)
        return last

    def backward(self, gradient: F32) -> tuple[F32, list[F32]]:
        """See `steps.FusedKernel`."""
        d_rows, d_weights = sage_backward(
            gradient.reshape(self._rows.shape), self._rows, self._matrices, self._graph, self._computed
        )
        return d_rows.reshape(gradient.shape), [d for of_hop in zip(*d_weights, strict=True) for d in of_hop]


def sage_steps(sage: GraphSage, edges: Edges) -> list[Step]:
    """Returns the steps of GraphSAGE hops over states [N, C, H] of a batch; aggregation is mean or sum.

    All hops are one kernel, unless one has module layers or active dropout, or l2 normalisation follows each.
    """
    spec = sage.spec
    matrix = MessageMatrix(edges if spec.directed else undirected(edges), mean=spec.aggregation == "mean")
    hops = [cast(SageHop, hop) for hop in sage.hops]
    if all(_has_kernel(hop) for hop in hops) and not spec.l2_normalize:
        return [SageKernel([HopWeights.of(hop) for hop in hops], matrix)]
    steps: list[Step] = []
    for hop in hops:
        steps.append(hop_step(hop, matrix))
        if spec.l2_normalize:
            steps.append(lambda states: nn.functional.normalize(states, dim=-1))
    return steps


def hop_step(hop: SageHop, matrix: MessageMatrix) -> Step:
    """Returns the step of one hop over states [N, C, H], without what follows it."""
    return SageKernel([HopWeights.of(hop)], matrix) if _has_kernel(hop) else _HopBySparseProduct(hop, matrix)


def _has_kernel(hop: SageHop) -> bool:
    return not len(hop.update.more) and not drops(hop.update.dropout)


class _HopBySparseProduct:
    """A hop with module layers or dropout: torch computes its modules, one sparse product its aggregation."""

    def __init__(self, hop: SageHop, matrix: MessageMatrix) -> None:
        self._hop = hop
        self._matrix = matrix

    def __call__(self, states: Tensor) -> Tensor:
        hop, edges = self._hop, self._matrix.edges
        messages = hop.to_consumers(states)
        if hop.to_producers is not None:
            back = hop.to_producers(states.index_select(0, edges.with_producers))
            messages = torch.cat([messages, back])
        updated: Tensor = hop.update(states, aggregate(messages, self._matrix))
        return updated
