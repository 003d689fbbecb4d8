"""Gradients through one segment of a graph: the whole graph is computed forward, one segment backward.

Source: tpugraphs2023, appendix B ("we randomly pick a segment - covering nodes in [i, i + segment length) -
for backward propagation; all nodes and edges are used in a forward pass"), after Cao et al., "Learning large
graph property prediction via graph segment training" (NeurIPS 2023). States of other nodes are constants, in
pooling and as senders of messages, so scores are those of the whole graph. The segment's own states are not
computed twice: its layers take their values from the pass over the whole graph, and keep for the gradient
only the segment's rows and those that send to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, hstack
from torch import Tensor

from costbench.arrays import I64, Bool
from costbench.models.layout.convolutions import LinearConvolution, sum_of_products
from costbench.models.layout.inputs import LayoutInputs
from costbench.models.layout.network import LayoutNetwork, parts_of
from costbench.models.layout.plan import SparseMatrix, row_of_node


@dataclass(frozen=True, eq=False)
class _Senders:
    """Rows of one kind, varying or fixed, that send messages to r rows of a segment.

    Attributes:
        rows: int64 [s], the senders among rows of their kind; first those inside the segment, all of them.
        num_inside: number of senders inside.
        matrix: [r, K s], A_1 ... A_K side by side.
    """

    rows: I64
    num_inside: int
    matrix: SparseMatrix


@dataclass(frozen=True, eq=False)
class _SegmentLayer:
    """From the states of one layer to those of the next; rows of the segment only.

    Attributes:
        varying: senders among varying rows, to varying rows.
        fixed: senders among fixed rows, to varying rows and then to fixed ones.
        varying_before: indices among the segment's varying rows of those that still vary.
        newly_varying: indices among its fixed rows of those that vary from then on.
        fixed_before: indices among its fixed rows of those that stay fixed.
    """

    varying: _Senders
    fixed: _Senders
    varying_before: I64
    newly_varying: I64
    fixed_before: I64


@dataclass(frozen=True, eq=False)
class Segment:
    """The rows of a plan that belong to a segment.

    Attributes:
        varying: int64 per layer 0 to L, indices of the segment's nodes among the varying rows.
        fixed: the same in the fixed rows.
        layers: L steps between them.
    """

    varying: tuple[I64, ...]
    fixed: tuple[I64, ...]
    layers: tuple[_SegmentLayer, ...]


def build_segment(inputs: LayoutInputs, inside: Bool) -> Segment:
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
        varying_index = row_of_node(before.varying[varying[depth]], len(inside))[to_varying]
        fixed_index = row_of_node(before.fixed[fixed[depth]], len(inside))
        to_all = np.concatenate([to_varying, to_fixed])
        layers.append(
            _SegmentLayer(
                varying=_senders(plan.matrices, to_varying, before.varying, varying[depth]),
                fixed=_senders(plan.matrices, to_all, before.fixed, fixed[depth]),
                varying_before=varying_index[varying_index >= 0],
                newly_varying=fixed_index[to_varying][varying_index < 0],
                fixed_before=fixed_index[to_fixed],
            )
        )
    return Segment(varying, fixed, tuple(layers))


def _senders(matrices: tuple[csr_array, ...], to: I64, nodes: I64, inside: I64) -> _Senders:
    """Returns the senders to nodes `to` among the rows `nodes`, of which `inside` are the segment's."""
    blocks = [csr_array(matrix[to][:, nodes]) for matrix in matrices]
    outside = np.zeros(len(nodes), dtype=bool)
    for block in blocks:
        outside[block.indices] = True
    outside[inside] = False
    rows = np.concatenate([inside, np.flatnonzero(outside)])
    matrix = SparseMatrix(hstack([block[:, rows] for block in blocks], format="csr"))
    return _Senders(rows, len(inside), matrix)


@dataclass(frozen=True, eq=False)
class _KnownStep:
    """Values of one layer, from the pass over the whole graph.

    Attributes:
        step: rows and matrices.
        residual: whether the layer adds its input.
        senders: [s, c, hidden], states before the layer of `step.varying`.
        fixed_senders: [s', hidden], of `step.fixed`.
        active: bool [r, c, hidden], which units of the segment's varying rows are active.
        fixed_active: bool [r', hidden], the same of its fixed rows.
        varying: [r, c, hidden], states after the layer.
        fixed: [r', hidden].
    """

    step: _SegmentLayer
    residual: bool
    senders: Tensor
    fixed_senders: Tensor
    active: Tensor
    fixed_active: Tensor
    varying: Tensor
    fixed: Tensor


def segment_scores(net: LayoutNetwork, inputs: LayoutInputs, options: Tensor, segment: Segment) -> Tensor:
    """Returns the scores [c] of configs on the whole graph; gradients go through the segment only.

    Args:
        net: a network that is split into fixed and varying rows.
        inputs: the graph.
        options: int64 [c, nc], rows of `inputs.options`.
        segment: segment of this graph.
    """
    # Of the whole graph only what the segment needs is kept: memory falls, and nothing is computed again.
    parts = parts_of(options, inputs.plan.largest * net.spec.hidden)
    return net.score(torch.cat([_pooled(net, inputs, part, segment) for part in parts]))


def _pooled(net: LayoutNetwork, inputs: LayoutInputs, options: Tensor, segment: Segment) -> Tensor:
    """Returns the pooled states of configs, [c, columns]."""
    with torch.no_grad():
        steps, last_varying, last_fixed = _whole(net, inputs, options, segment)
    rows = inputs.plan.rows[0]
    fixed = net.input_states(net.node_terms(inputs, rows.fixed[segment.fixed[0]]))
    configurable = torch.from_numpy(segment.varying[0])
    varying = net.configurable_states(inputs, net.node_terms(inputs, rows.varying), options[:, configurable])
    for layer, known in zip(net.layers, steps, strict=True):
        assert isinstance(layer, LinearConvolution), "others are not split"
        varying, fixed = _SegmentStep.apply(  # type: ignore[no-untyped-call]
            varying, fixed, layer.weight(), layer.bias, known
        )
    all_varying = last_varying.index_copy(0, _indices(segment.varying[-1], varying), varying)
    all_fixed = last_fixed.index_copy(0, _indices(segment.fixed[-1], fixed), fixed)
    return net.pool(all_varying, all_fixed, all_varying[: options.shape[1]])


def _whole(
    net: LayoutNetwork, inputs: LayoutInputs, options: Tensor, segment: Segment
) -> tuple[list[_KnownStep], Tensor, Tensor]:
    """Returns what a segment needs of the whole graph, and the varying and fixed states at its end."""
    plan = inputs.plan
    fixed = net.input_states(net.node_terms(inputs, plan.rows[0].fixed))
    varying = net.configurable_states(inputs, net.node_terms(inputs, plan.rows[0].varying), options)
    known = []
    for depth, layer in enumerate(net.layers):
        assert isinstance(layer, LinearConvolution), "others are not split"
        step, part = plan.layers[depth], segment.layers[depth]
        rows, fixed_rows = segment.varying[depth + 1], segment.fixed[depth + 1]
        after = layer.activate_varying(step, varying, layer.sum_fixed(step.into_varying, fixed))
        fixed_after = torch.relu(layer.sum_fixed(step.fixed, fixed))
        active, fixed_active = after[rows] > 0, fixed_after[fixed_rows] > 0
        senders, fixed_senders = varying[part.varying.rows], fixed[part.fixed.rows]
        if layer.residual:
            after = layer.add_residual(step, after, varying, fixed[step.newly_varying])
            fixed_after = fixed_after + fixed[step.fixed_before]
        varying, fixed = after, fixed_after
        states = varying[rows], fixed[fixed_rows]
        known.append(_KnownStep(part, layer.residual, senders, fixed_senders, active, fixed_active, *states))
    return known, varying, fixed


class _SegmentStep(torch.autograd.Function):
    """One layer on a segment's rows. With r the gradient before the ReLU, and G_k = A_k^T r at the senders:

    dL/dW_k = x^T G_k over all senders x, and dL/dx = sum_k G_k W_k^T at those inside, plus the residual's.
    """

    @staticmethod
    def forward(
        ctx: Any, _varying: Tensor, _fixed: Tensor, weight: Tensor, _bias: Tensor, known: _KnownStep
    ) -> tuple[Tensor, Tensor]:
        ctx.step, ctx.residual = known.step, known.residual
        states = known.senders, known.fixed_senders, known.active, known.fixed_active
        ctx.save_for_backward(weight, *states)
        # What is returned comes to refer to `ctx`, which must not refer to it: no collector sees that cycle.
        return known.varying.detach(), known.fixed.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        step: _SegmentLayer = ctx.step
        weight, senders, fixed_senders, active, fixed_active = ctx.saved_tensors
        d_varying_after, d_fixed_after = gradients
        before = d_varying_after * active
        # A message from a fixed row goes to all configs alike.
        to_all = torch.cat([before.sum(dim=1), d_fixed_after * fixed_active])
        at_senders = _at_senders(step.varying, before, len(weight))
        at_fixed = _at_senders(step.fixed, to_all[:, None], len(weight))
        rows = senders.flatten(0, 1)
        d_weight = torch.stack(
            [rows.t() @ a + fixed_senders.t() @ b for a, b in zip(at_senders, at_fixed, strict=True)]
        )
        inside = step.varying.num_inside * d_varying_after.shape[1]
        d_varying = sum_of_products(at_senders[:, :inside], weight.transpose(1, 2))
        d_varying = d_varying.view(step.varying.num_inside, *d_varying_after.shape[1:])
        d_fixed = sum_of_products(at_fixed[:, : step.fixed.num_inside], weight.transpose(1, 2))
        if ctx.residual:
            stayed = len(step.varying_before)
            from_fixed = d_varying_after[stayed:].sum(dim=1)
            d_varying.index_add_(0, _indices(step.varying_before, d_varying), d_varying_after[:stayed])
            d_fixed.index_add_(0, _indices(step.newly_varying, d_fixed), from_fixed)
            d_fixed.index_add_(0, _indices(step.fixed_before, d_fixed), d_fixed_after)
        return d_varying, d_fixed, d_weight, to_all.sum(dim=0), None


def _indices(rows: I64, states: Tensor) -> Tensor:
    """Returns rows as a tensor where some states are."""
    return torch.from_numpy(rows).to(states.device)


def _at_senders(senders: _Senders, gradient: Tensor, parts: int) -> Tensor:
    """Returns A_k^T of gradients [r, c, hidden] for every k: [K, s c, hidden]."""
    moved = senders.matrix.multiply(gradient.flatten(1), transposed=True)
    return moved.view(parts, -1, gradient.shape[2])
