"""GraphSAGE hops as a fused kernel, and the steps of `GraphSage` and of hops with residual connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from costbench.arrays import F32
from costbench.models.edges import Edges
from costbench.models.networks.graphsage import GcnHop, GraphSage, ResidualHops, SageHop
from costbench_kernels.graphsage import SageMatrices, sage_backward, sage_forward
from costbench_kernels.layers import is_dropout_active
from costbench_kernels.messages import GcnMatrix, MessageMatrix, aggregate, undirected
from costbench_kernels.steps import FusedKernel, Step, run_steps, stack_matrices


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
        to_producers = None if hop.to_producers is None else hop.to_producers.first.weight
        return HopWeights(hop.to_consumers.first.weight, to_producers, hop.update.both.weight)


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
        to_consumers = stack_matrices([hop.to_consumers for hop in self._hops])
        update = stack_matrices([hop.update for hop in self._hops])
        matrices = [hop.to_producers for hop in self._hops if hop.to_producers is not None]
        to_producers = stack_matrices(matrices) if matrices else to_consumers
        self._matrices = SageMatrices(to_consumers, to_producers, update)
        self._computed = sage_forward(self._rows, self._matrices, self._graph, keep)
        last: F32 = self._computed.updated[-1].reshape(states.shape)
        return last

    def backward(self, gradient: F32) -> tuple[F32, list[F32]]:
        """See `steps.FusedKernel`."""
        d_rows, d_weights = sage_backward(
            gradient.reshape(self._rows.shape), self._rows, self._matrices, self._graph, self._computed
        )
        return d_rows.reshape(gradient.shape), [d for hop in zip(*d_weights, strict=True) for d in hop]


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
        steps.append(_sage_step(hop, matrix))
        if spec.l2_normalize:
            steps.append(lambda states: nn.functional.normalize(states, dim=-1))
    return steps


def residual_steps(encoder: ResidualHops, edges: Edges) -> list[Step]:
    """Returns the steps of hops x = l2(x + hop(x)) over states [N, C, H] of a batch, one a hop."""
    spec = encoder.spec
    if isinstance(encoder.hops[0], GcnHop):
        matrices = [GcnMatrix(index, edges.num_nodes) for index in edges.edge_indices(directed=spec.directed)]
        hops: list[Step] = [_GcnStep(cast(GcnHop, hop), matrices) for hop in encoder.hops]
    else:
        messages = edges if spec.directed else undirected(edges)
        matrix = MessageMatrix(messages, mean=spec.aggregation == "mean")
        hops = [_sage_step(cast(SageHop, hop), matrix) for hop in encoder.hops]
    return [_Residual(hop, normalize=spec.l2_normalize) for hop in hops]


def _sage_step(hop: SageHop, matrix: MessageMatrix) -> Step:
    return SageKernel([HopWeights.of(hop)], matrix) if _has_kernel(hop) else _HopBySparseProduct(hop, matrix)


def _has_kernel(hop: SageHop) -> bool:
    return not len(hop.update.more) and not is_dropout_active(hop.update.dropout)


class _HopBySparseProduct:
    """A hop with module layers or dropout: torch computes its modules, one sparse product its aggregation."""

    def __init__(self, hop: SageHop, matrix: MessageMatrix) -> None:
        self._hop = hop
        self._matrix = matrix

    def __call__(self, states: Tensor) -> Tensor:
        hop, edges = self._hop, self._matrix.edges
        messages = hop.to_consumers(states)
        if hop.to_producers is not None:
            messages = torch.cat([messages, hop.to_producers(states.index_select(0, edges.with_producers))])
        updated: Tensor = hop.update(states, aggregate(messages, self._matrix))
        return updated


class _GcnStep:
    """A `GcnHop` without biases: states are aggregated first, then multiplied by a direction's weights."""

    def __init__(self, hop: GcnHop, matrices: Sequence[GcnMatrix]) -> None:
        self._hop = hop
        self._matrices = matrices

    def __call__(self, states: Tensor) -> Tensor:
        aggregates = [aggregate(states, matrix) for matrix in self._matrices]
        linears = (cast(nn.Linear, linear) for linear in self._hop.messages)
        products = [linear(received) for linear, received in zip(linears, aggregates, strict=True)]
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
