"""GraphSAGE hops as differentiable operations.

The same function as the modules of `encoders.SageHop` (without biases, extra layers or dropout), with its
gradient written out: messages of both directions land in one buffer without a copy, the gradients of the
three matrix products that read the states add up inside the products, and rectifiers are undone in place.
That is a tenth to a fifth of a training step on a CPU; compiled passes save as much again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from costbench.models.batch.edges import SumMatrix
from costbench.models.execution import runs_compiled
from costbench.models.kernels.fused import FloatArray, run_passes, stacked
from costbench.models.kernels.sage.backward import sage_backward
from costbench.models.kernels.sage.forward import SageMatrices, sage_forward


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
    if runs_compiled(states, *weights):
        return run_passes(states, [SagePass([weights], matrix)])
    return cast(Tensor, _SageHop.apply(states.contiguous(), *weights, matrix))  # type: ignore[no-untyped-call]


class SagePass:
    """Hops one after another by `sage_passes`. Shape: [N, C, H] kept."""

    def __init__(self, hops: Sequence[HopWeights], matrix: SumMatrix) -> None:
        self.weights = [weight for hop in hops for weight in hop]
        self._hops = hops
        self._matrix = matrix

    def forward(self, states: FloatArray, keep: bool) -> FloatArray:
        """See `compiled_passes.Pass`."""
        self._rows = states.reshape(-1, states.shape[2])
        self._listeners = self._matrix.listeners(states.shape[1])
        forth = stacked([hop.to_consumers for hop in self._hops])
        update = stacked([hop.update for hop in self._hops])
        back = [hop.to_producers for hop in self._hops if hop.to_producers is not None]
        self._matrices = SageMatrices(forth, stacked(back) if back else forth, update)
        self._computed = sage_forward(self._rows, self._matrices, self._listeners, keep)
        last: FloatArray = self._computed.updated[-1].reshape(states.shape)
        return last

    def backward(self, gradient: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """See `compiled_passes.Pass`."""
        d_rows, found = sage_backward(
            gradient.reshape(self._rows.shape), self._rows, self._matrices, self._listeners, self._computed
        )
        return d_rows.reshape(gradient.shape), [d for of_hop in zip(*found, strict=True) for d in of_hop]


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
