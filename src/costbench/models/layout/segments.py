"""Gradients through one segment of a graph: the whole graph is computed forward, one segment backward.

Source: tpugraphs2023, appendix B ("we randomly pick a segment - covering nodes in [i, i + segment length) -
for backward propagation; all nodes and edges are used in a forward pass"), after Cao et al., "Learning large
graph property prediction via graph segment training" (NeurIPS 2023). States of other nodes are constants, in
pooling and as senders of messages, so scores are those of the whole graph and activations are kept for the
segment only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor

from costbench.models.layout.convolutions import LinearConvolution
from costbench.models.layout.inputs import LayoutInputs
from costbench.models.layout.network import LayoutNetwork
from costbench.models.layout.sparse import SparseMatrix

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Senders:
    """Matrices [K r, .] to r rows of a segment from the rows of one kind, varying or fixed.

    Attributes:
        inside: from those in the segment.
        outside: from those of `outside_rows`.
        outside_rows: int64, places of senders outside the segment.
    """

    inside: SparseMatrix
    outside: SparseMatrix
    outside_rows: IntArray


@dataclass(frozen=True, eq=False)
class _SegmentLayer:
    """From the states of one layer to those of the next; rows of the segment only.

    Attributes:
        varying, into_varying, fixed: senders to varying rows from varying and fixed ones, and to fixed rows.
        kept: places among the segment's varying rows of the residuals of varying rows that varied before.
        grown: places among its fixed rows of the residuals of the other varying rows.
        fixed_kept: the same of fixed rows.
    """

    varying: _Senders
    into_varying: _Senders
    fixed: _Senders
    kept: IntArray
    grown: IntArray
    fixed_kept: IntArray


@dataclass(frozen=True, eq=False)
class Segment:
    """The rows of a plan that belong to a segment.

    Attributes:
        varying: int64 per layer 0 to L, places of the segment's nodes in the varying rows.
        fixed: the same in the fixed rows.
        layers: L steps between them.
    """

    varying: tuple[IntArray, ...]
    fixed: tuple[IntArray, ...]
    layers: tuple[_SegmentLayer, ...]


@dataclass(frozen=True, eq=False)
class _States:
    """Per layer 0 to L: varying states [v, c, hidden] and fixed ones [f, hidden]."""

    varying: list[Tensor]
    fixed: list[Tensor]


def segment_of(inputs: LayoutInputs, inside: BoolArray) -> Segment:
    """Returns a segment of a graph.

    Args:
        inputs: the graph.
        inside: bool [n], the nodes of the segment.
    """
    plan = inputs.plan
    varying = tuple(np.flatnonzero(inside[rows.varying]) for rows in plan.rows)
    fixed = tuple(np.flatnonzero(inside[rows.fixed]) for rows in plan.rows)
    layers = []
    for depth in range(len(plan.layers)):
        before, after = plan.rows[depth], plan.rows[depth + 1]
        to_varying, to_fixed = after.varying[varying[depth + 1]], after.fixed[fixed[depth + 1]]
        in_varying = _numbers(before.varying[varying[depth]], len(inside))
        in_fixed = _numbers(before.fixed[fixed[depth]], len(inside))
        own, grown = in_varying[to_varying], in_fixed[to_varying]
        layers.append(
            _SegmentLayer(
                varying=_senders(plan.matrices, to_varying, before.varying, varying[depth]),
                into_varying=_senders(plan.matrices, to_varying, before.fixed, fixed[depth]),
                fixed=_senders(plan.matrices, to_fixed, before.fixed, fixed[depth]),
                kept=own[own >= 0],
                grown=grown[own < 0],
                fixed_kept=in_fixed[to_fixed],
            )
        )
    return Segment(varying, fixed, tuple(layers))


def _senders(matrices: tuple[csr_array, ...], rows: IntArray, nodes: IntArray, inside: IntArray) -> _Senders:
    stacked = csr_array(vstack([matrix[rows] for matrix in matrices], format="csr")[:, nodes])
    is_outside = np.ones(len(nodes), dtype=bool)
    is_outside[inside] = False
    read = np.zeros(len(nodes), dtype=bool)
    read[stacked.indices] = True
    outside = np.flatnonzero(read & is_outside)
    return _Senders(
        SparseMatrix(csr_array(stacked[:, inside])), SparseMatrix(csr_array(stacked[:, outside])), outside
    )


def _numbers(nodes: IntArray, num_nodes: int) -> IntArray:
    numbers = np.full(num_nodes, -1, np.int64)
    numbers[nodes] = np.arange(len(nodes))
    return numbers


def segment_scores(net: LayoutNetwork, inputs: LayoutInputs, options: Tensor, segment: Segment) -> Tensor:
    """Returns the scores [c] of configs on the whole graph; gradients go through the segment only.

    Args:
        net: a network that is split into fixed and varying rows.
        inputs: the graph.
        options: int64 [c, nc], rows of `inputs.options`.
        segment: of this graph.
    """
    with torch.no_grad():
        whole = _whole(net, inputs, options)
    varying, fixed = segment_states(net, inputs, options, segment, whole)
    all_varying = whole.varying[-1].index_copy(0, torch.from_numpy(segment.varying[-1]), varying)
    all_fixed = whole.fixed[-1].index_copy(0, torch.from_numpy(segment.fixed[-1]), fixed)
    return net.score(net.pooled(all_varying, all_fixed, all_varying[: options.shape[1]]))


def _whole(net: LayoutNetwork, inputs: LayoutInputs, options: Tensor) -> _States:
    """Returns the states of the whole graph after every layer."""
    plan = inputs.plan
    terms = net.node_terms(inputs)
    fixed = [net.input_states(terms[plan.rows[0].fixed])]
    varying = [net.configured(inputs, terms[plan.rows[0].varying], options)]
    for layer, step in zip(net.layers, plan.layers, strict=True):
        assert isinstance(layer, LinearConvolution), "others are not split"
        into = layer.of_fixed(step.into_varying, fixed[-1])
        varying.append(layer.varying(step, varying[-1], into, fixed[-1][step.grown]))
        fixed.append(layer.fixed(step, fixed[-1]))
    return _States(varying, fixed)


def segment_states(
    net: LayoutNetwork,
    inputs: LayoutInputs,
    options: Tensor,
    segment: Segment,
    whole: _States | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the states after the last layer of a segment's varying rows, [p, c, h], and fixed ones, [q, h].

    Args:
        net: a network that is split into fixed and varying rows.
        inputs: the graph.
        options: int64 [c, nc].
        segment: of this graph.
        whole: states of nodes outside; None for a segment that gets no message from outside, such as a part
            of a graph that was cut into parts.
    """
    rows = inputs.plan.rows[0]
    terms = net.node_terms(inputs)
    fixed = net.input_states(terms[rows.fixed[segment.fixed[0]]])
    chosen = torch.from_numpy(segment.varying[0])
    varying = net.configured(inputs, terms[rows.varying], options[:, chosen])
    for depth, (layer, step) in enumerate(zip(net.layers, segment.layers, strict=True)):
        assert isinstance(layer, LinearConvolution), "others are not split"
        matrices = len(layer.parts)
        from_varying = _aggregated(step.varying, varying, None if whole is None else whole.varying[depth])
        outside = None if whole is None else whole.fixed[depth]
        into = layer.of_aggregated(_split(_aggregated(step.into_varying, fixed, outside), matrices))
        to_fixed = layer.of_aggregated(_split(_aggregated(step.fixed, fixed, outside), matrices))
        sums = layer.of_aggregated(_split(from_varying, matrices)) + (into + layer.bias)[:, None]
        next_varying, next_fixed = torch.relu(sums), torch.relu(to_fixed + layer.bias)
        if layer.residual:
            grown = fixed[step.grown][:, None].expand(-1, len(options), -1)
            next_varying = next_varying + torch.cat([varying[step.kept], grown])
            next_fixed = next_fixed + fixed[step.fixed_kept]
        varying, fixed = next_varying, next_fixed
    return varying, fixed


def _aggregated(senders: _Senders, inside: Tensor, outside: Tensor | None) -> Tensor:
    """Returns A_k x of all senders, [K r, ...]."""
    sums = senders.inside.times(inside)
    if outside is None or not len(senders.outside_rows):
        return sums
    return sums + senders.outside.times(outside[senders.outside_rows])


def _split(stacked: Tensor, parts: int) -> Tensor:
    """Returns [K r, ...] as [K, r, ...]."""
    return stacked.view(parts, -1, *stacked.shape[1:])
