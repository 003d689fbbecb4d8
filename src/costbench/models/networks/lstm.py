"""An LSTM over the nodes of each kernel, all decisions of a kernel at a time.

Kernels run one after another: time is a kernel's nodes, the batch its decisions, so nothing is padded, and
the states of a kernel are already laid out as the fused LSTM of torch reads them, on a CPU (oneDNN) and on a
GPU (cuDNN). Packing all kernels into one sequence takes several times as long on a CPU: torch then does
without the fused one. One layer without biases, the usual case, is compiled (`lstm_passes`).
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from costbench.models.execution import runs_compiled
from costbench.models.kernels.fused import FloatArray, Pass, array_of, run_passes
from costbench.models.kernels.lstm.recurrence import FORGET_OFFSET, LstmMatrices, lstm_backward, lstm_forward
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
        passes = self.passes(states, node_counts)
        if passes is not None:
            return run_passes(states, passes)
        weights = self.weights()
        start = states.new_zeros(len(self.layers), states.shape[1], self.width)
        return torch.stack(
            [self._last(part, start, weights) for part in torch.split(states, list(node_counts))]
        )

    def passes(self, states: Tensor, node_counts: tuple[int, ...]) -> list[Pass] | None:
        """What it does to such states, compiled; None where that is not possible."""
        first = cast(LstmWeights, self.layers[0])
        matrices = first.gates_of_inputs, first.gates_of_states
        fits = self._plain and runs_compiled(states, matrices[0]) and runs_compiled(matrices[1])
        return [LstmPass(matrices, node_counts)] if fits else None

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


class LstmPass:
    """One layer by `lstm_passes`: states [N, C, H], W [4 W, H], U [4 W, W] to [K, C, W]."""

    def __init__(self, weights: tuple[Tensor, Tensor], node_counts: tuple[int, ...]) -> None:
        self.weights = weights
        self._starts = np.cumsum([0, *node_counts])

    def forward(self, states: FloatArray, keep: bool) -> FloatArray:
        """See `compiled_passes.Pass`."""
        self._matrices = LstmMatrices(*map(array_of, self.weights))
        rows = states.reshape(-1, states.shape[2])
        last, self._computed = lstm_forward(rows, self._matrices, self._starts, states.shape[1])
        return last

    def backward(self, gradient: FloatArray) -> tuple[FloatArray, LstmMatrices]:
        """See `compiled_passes.Pass`."""
        d_rows, found = lstm_backward(gradient, self._computed, self._matrices, self._starts)
        return d_rows.reshape(-1, gradient.shape[1], d_rows.shape[1]), found
