"""An LSTM over the nodes of each kernel, all decisions of a kernel at a time.

Kernels run one after another: time is a kernel's nodes, the batch its decisions, so nothing is padded, and
the states of a kernel are already laid out as the fused LSTM of torch reads them, on a CPU (oneDNN) and on a
GPU (cuDNN). Packing all kernels into one sequence takes several times as long on a CPU: torch then does
without the fused one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from costbench.models.net_spec import NetSpec

FORGET_OFFSET = 1.0
"""Added to the forget gate, as TensorFlow's LSTM cells do: an untrained LSTM without biases would otherwise
halve its memory at every node, and see only the last few of a kernel."""


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
        inputs = [spec.hidden] + [self.width] * (spec.lstm_layers - 1)
        self.layers = nn.ModuleList(LstmWeights(size, self.width, spec.biases) for size in inputs)

    def weights(self) -> list[Tensor]:
        """Weights and offsets of all layers in the order of `torch.lstm`."""
        return [tensor for layer in self.layers for tensor in layer()]

    def forward(self, states: Tensor, node_counts: tuple[int, ...]) -> Tensor:
        weights = self.weights()
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
