"""An LSTM over the nodes of each kernel, all decisions of a kernel at a time.

Kernels run one after another: time is a kernel's nodes, the batch its decisions, so nothing is padded, and
the states of a kernel are already laid out as the fused LSTM of torch reads them, on a CPU (oneDNN) and on a
GPU (cuDNN). Packing all kernels into one sequence takes several times as long on a CPU: torch then does
without the fused one. One layer without biases, the usual case, is compiled (`lstm_passes`).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from costbench.models.execution import runs_compiled
from costbench.models.lstm_passes import (
    FORGET_OFFSET,
    LstmMatrices,
    LstmStates,
    lstm_backward,
    lstm_forward,
)
from costbench.models.net_spec import NetSpec


class LstmWeights(nn.Module):
    """W [4 width, inputs], U [4 width, width] and what is added to the gates, twice, as `torch.lstm` asks."""

    def __init__(self, inputs: int, width: int, biases: bool) -> None:
        super().__init__()
        self.gates_of_inputs = nn.Parameter(torch.empty(4 * width, inputs))
        self.gates_of_states = nn.Parameter(torch.empty(4 * width, width))
        self.bias = nn.Parameter(torch.empty(4 * width)) if biases else None

    def forward(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        offset = self.gates_of_states.new_zeros(4, self.gates_of_states.shape[1])
        offset[1] = FORGET_OFFSET
        added = offset.flatten() if self.bias is None else offset.flatten() + self.bias
        return self.gates_of_inputs, self.gates_of_states, added, torch.zeros_like(added)


class KernelLstm(nn.Module):
    """The last state of an LSTM over the nodes of a kernel, in the order in which they lie.

    h_t = o tanh(c_t), c_t = f c_(t-1) + i g, from zero, with
    (i, f, g, o) = (sigmoid, sigmoid, tanh, sigmoid)(W x_t + U h_(t-1) + (0, FORGET_OFFSET, 0, 0)),
    `lstm_layers` of them (Hochreiter and Schmidhuber, 1997); dropout between layers.

    Shape: [N, C, hidden] to [K, C, width].
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.width = spec.lstm_width or spec.hidden
        self._dropout = spec.dropout
        self._plain = spec.lstm_layers == 1 and not spec.biases
        inputs = [spec.hidden] + [self.width] * (spec.lstm_layers - 1)
        self.layers = nn.ModuleList(LstmWeights(size, self.width, spec.biases) for size in inputs)

    def weights(self) -> list[Tensor]:
        """Weights and offsets of all layers in the order of `torch.lstm`."""
        return [tensor for layer in self.layers for tensor in layer()]

    def forward(self, states: Tensor, node_counts: tuple[int, ...]) -> Tensor:
        weights = self.weights()
        if self._plain and _fits(states, *weights[:2]):
            last = _CompiledLstm.apply(states.contiguous(), *weights[:2], node_counts)  # type: ignore[no-untyped-call]
            return cast(Tensor, last)
        start = states.new_zeros(len(self.layers), states.shape[1], self.width)
        return torch.stack(
            [self._last(part, start, weights) for part in torch.split(states, list(node_counts))]
        )

    def _last(self, states: Tensor, start: Tensor, weights: list[Tensor]) -> Tensor:
        outputs = torch.lstm(
            states,
            (start, start),
            weights,
            True,
            len(self.layers),
            self._dropout,
            self.training,
            False,
            False,
        )
        return outputs[0][-1]


def _fits(states: Tensor, of_inputs: Tensor, of_states: Tensor) -> bool:
    return runs_compiled(states, of_inputs) and runs_compiled(of_states)


class _CompiledLstm(torch.autograd.Function):
    """One layer by `lstm_passes`: states [N, C, H], W [4 W, H], U [4 W, W] to [K, C, W]."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, of_inputs: Tensor, of_states: Tensor, counts: tuple[int, ...]
    ) -> Tensor:
        width, rows = of_states.shape[1], states.flatten(0, 1)
        gates = rows.new_empty((4, len(rows), width))
        tensors = rows, gates, *(rows.new_empty((len(rows), width)) for _ in range(3))
        starts = np.cumsum([0, *counts])
        lstm_forward(
            LstmStates(*(tensor.numpy() for tensor in tensors)),
            _matrices(*(weight.view(4, width, -1).transpose(1, 2) for weight in (of_inputs, of_states))),
            starts,
            states.shape[1],
        )
        ctx.save_for_backward(*tensors, of_inputs, of_states)
        ctx.starts, ctx.shape = starts, states.shape
        hidden: Tensor = tensors[-1].view(*states.shape[:2], width)
        return hidden.index_select(0, torch.from_numpy(starts[1:] - 1))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, of_inputs, of_states = ctx.saved_tensors
        gates = 4, of_states.shape[1]
        found = [torch.zeros_like(weight) for weight in (of_inputs, of_states)]
        d_rows = torch.empty_like(tensors[0])
        lstm_backward(
            gradient.contiguous().numpy(),
            LstmStates(*(tensor.numpy() for tensor in tensors)),
            _matrices(*(weight.view(*gates, -1) for weight in (of_inputs, of_states))),
            ctx.starts,
            d_rows.numpy(),
            LstmMatrices(*(weight.view(*gates, -1).numpy() for weight in found)),
        )
        return d_rows.view(ctx.shape), *found, None


def _matrices(of_inputs: Tensor, of_states: Tensor) -> LstmMatrices:
    return LstmMatrices(of_inputs.contiguous().numpy(), of_states.contiguous().numpy())
