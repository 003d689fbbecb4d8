"""A GraphSAGE hop as one differentiable operation.

The same function as the modules of `encoders.SageHop` (without biases, extra layers or dropout), with its
gradient written out: messages of both directions land in one buffer without a copy, the gradients of the
three matrix products that read the states add up inside the products, and rectifiers are undone in place.
That is a tenth to a fifth of a training step on a CPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from costbench.models.edges import SumMatrix
from costbench.models.execution import runs_compiled
from costbench.models.layer_passes import HopGradients, HopMatrices, HopStates, hop_backward, hop_forward


class HopWeights(NamedTuple):
    """Matrices of a hop, each [outputs, inputs] as in `nn.Linear`.

    Attributes:
        to_consumers: [H, H], message of a node to its consumers.
        to_producers: [H, H], message to its producers; None where it is the same message.
        update: [H, 2 H], over the state and what was heard.
    """

    to_consumers: Tensor
    to_producers: Tensor | None
    update: Tensor


def sage_hop(states: Tensor, weights: HopWeights, matrix: SumMatrix) -> Tensor:
    """relu(U concat(x, A [relu(F x); relu(B x[with_producers])])) with U, F, B the `weights`, A the `matrix`.

    Shape: [N, C, H] kept.
    """
    function = _CompiledHop if runs_compiled(states, *weights) else _SageHop
    result = function.apply(states.contiguous(), *weights, matrix)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


class _CompiledHop(torch.autograd.Function):
    """The same as `_SageHop` by `layer_passes`."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, forth: Tensor, back: Tensor | None, update: Tensor, matrix: SumMatrix
    ) -> Tensor:
        rows = states.flatten(0, 1)
        configs, width = states.shape[1:]
        talkers = matrix.edges.with_producers if back is not None else matrix.edges.with_producers[:0]
        messages = rows.new_empty((len(rows) + len(talkers) * configs, width))
        tensors = rows, messages, torch.empty_like(rows), torch.empty_like(rows)
        weights = HopMatrices(*(weight.t().contiguous().numpy() for weight in _matrices(forth, back, update)))
        hop = HopStates(*(tensor.numpy() for tensor in tensors))
        hop_forward(hop, weights, matrix.bags(), talkers.numpy(), configs)
        ctx.save_for_backward(*tensors, forth, back, update)
        ctx.talkers, ctx.matrix, ctx.shape = talkers, matrix, states.shape
        return tensors[3].view(states.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, forth, back, update = ctx.saved_tensors
        matrices = [weight.contiguous() for weight in _matrices(forth, back, update)]
        found = [torch.zeros_like(matrix) for matrix in matrices]
        d_states, d_heard = torch.empty_like(tensors[0]), torch.empty_like(tensors[0])
        hop_backward(
            gradient.reshape(tensors[0].shape).contiguous().numpy(),
            HopStates(*(tensor.numpy() for tensor in tensors)),
            HopMatrices(*(matrix.numpy() for matrix in matrices)),
            ctx.matrix.transposed_bags(),
            ctx.talkers.numpy(),
            HopGradients(
                d_states.numpy(), d_heard.numpy(), HopMatrices(*(matrix.numpy() for matrix in found))
            ),
        )
        d_back = None if back is None else found[1]
        d_update = torch.cat(found[2:], dim=1)
        return d_states.view(ctx.shape), found[0], d_back, d_update, None


def _matrices(forth: Tensor, back: Tensor | None, update: Tensor) -> tuple[Tensor, ...]:
    return (forth, forth if back is None else back, *update.detach().chunk(2, dim=1))


class _SageHop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, forth: Tensor, back: Tensor | None, update: Tensor, matrix: SumMatrix
    ) -> Tensor:
        shape = states.shape
        own = states.flatten(0, 1)
        with_producers = matrix.edges.with_producers
        talking = None if back is None else states.index_select(0, with_producers).flatten(0, 1)
        num_back = 0 if talking is None else len(talking)
        messages = own.new_empty((len(own) + num_back, shape[2]))
        torch.mm(own, forth.t(), out=messages[: len(own)])
        if back is not None and talking is not None:
            torch.mm(talking, back.t(), out=messages[len(own) :])
        messages.relu_()
        heard = matrix.times(messages.view(-1, shape[1] * shape[2])).view_as(own)
        for_own, for_heard = update.chunk(2, dim=1)
        updated = torch.mm(own, for_own.t()).addmm_(heard, for_heard.t()).relu_()
        ctx.save_for_backward(own, talking, messages, heard, updated, forth, back, update)
        ctx.shape, ctx.matrix = shape, matrix
        return updated.view(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        own, talking, messages, heard, updated, forth, back, update = ctx.saved_tensors
        shape, matrix = ctx.shape, ctx.matrix
        for_own, for_heard = update.chunk(2, dim=1)
        d_updated = _through_relu(gradient.reshape(own.shape), updated)
        d_update = torch.cat([d_updated.t() @ own, d_updated.t() @ heard], dim=1)
        d_heard = (d_updated @ for_heard).view(shape[0], -1)
        d_messages = matrix.transposed_times(d_heard).view_as(messages)
        # Through the rectifier in place: this tensor was made here and nobody else holds it.
        torch.ops.aten.threshold_backward.grad_input(d_messages, messages, 0.0, grad_input=d_messages)
        d_forth_message, d_back_message = d_messages[: len(own)], d_messages[len(own) :]
        d_own = (d_updated @ for_own).addmm_(d_forth_message, forth)
        d_states = d_own.view(shape)
        d_back = None
        if back is not None:
            d_back = d_back_message.t() @ talking
            d_talking = (d_back_message @ back).view(-1, *shape[1:])
            d_states.index_add_(0, matrix.edges.with_producers, d_talking)
        return d_states, d_forth_message.t() @ own, d_back, d_update, None


def _through_relu(gradient: Tensor, output: Tensor) -> Tensor:
    through: Tensor = torch.ops.aten.threshold_backward(gradient, output, 0.0)
    return through
