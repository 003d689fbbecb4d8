"""An LSTM over the nodes of each kernel; all kernels and decisions of a batch are one packed sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from costbench.models.spec import NetSpec

FORGET_OFFSET = 1.0
"""Added to the forget gate of an LSTM before its sigmoid, as in TensorFlow's cells: without biases the gate
would start at one half, and the state would forget a node within a few steps."""


class LstmWeights(nn.Module):
    """Holds W [4 width, inputs] and U [4 width, width]; returns them and two offsets for `torch.lstm`.

    Rows are those of gates i, f, g, o in this order. The first offset is FORGET_OFFSET for f plus the bias,
    the second is 0.
    """

    def __init__(self, inputs: int, width: int, biases: bool) -> None:
        super().__init__()
        self.gates_of_inputs = nn.Parameter(torch.empty(4 * width, inputs))
        self.gates_of_states = nn.Parameter(torch.empty(4 * width, width))
        self.bias = nn.Parameter(torch.empty(4 * width)) if biases else None

    def forward(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        offset = self.gates_of_states.new_zeros(4, self.gates_of_states.shape[1])
        offset[1] = FORGET_OFFSET
        offset = offset.flatten() if self.bias is None else offset.flatten() + self.bias
        return self.gates_of_inputs, self.gates_of_states, offset, torch.zeros_like(offset)


class KernelLstm(nn.Module):
    """Returns the last state of an LSTM over the nodes of each kernel in their stored order.

    h_t = o tanh(c_t), c_t = f c_(t-1) + i g, from zero, with
    (i, f, g, o) = (sigmoid, sigmoid, tanh, sigmoid)(W x_t + U h_(t-1) + (0, FORGET_OFFSET, 0, 0)),
    `lstm_layers` of them (Hochreiter and Schmidhuber, 1997; Gers et al., 2000); dropout between layers.

    Shape: [N, C, hidden] to [K, C, width].
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.width = spec.lstm_width or spec.hidden
        self._dropout = spec.dropout
        inputs = [spec.hidden] + [self.width] * (spec.lstm_layers - 1)
        self.layers = nn.ModuleList(LstmWeights(size, self.width, spec.biases) for size in inputs)

    def weights(self) -> list[Tensor]:
        """Returns the weights and offsets of all layers in the order of `torch.lstm`."""
        return [tensor for layer in self.layers for tensor in layer()]

    def forward(self, states: Tensor, node_counts: Sequence[int]) -> Tensor:
        packing = PackedOrder.of(node_counts)
        decisions = states.shape[1]
        rows = states.index_select(0, packing.nodes.to(states.device)).flatten(0, 1)
        start = rows.new_zeros(len(self.layers), len(node_counts) * decisions, self.width)
        _, last, _ = torch.lstm(
            rows,
            packing.kernels_per_step * decisions,
            (start, start),
            self.weights(),
            True,
            len(self.layers),
            self._dropout,
            self.training,
            False,
        )
        by_length: Tensor = last[-1].view(len(node_counts), decisions, self.width)
        return by_length.index_select(0, packing.place_of_kernel.to(states.device))


class PackedOrder:
    """Nodes in the order of a packed sequence: the first node of every kernel, then the second ones, ...

    Kernels are sorted by length, longest first, so that at each step those that still have a node are the
    first ones.

    Attributes:
        nodes: int64 [N], the node at each position.
        kernels_per_step: int64 [longest kernel], on the CPU: the number of kernels that have a t-th node.
        place_of_kernel: int64 [K], the position of each kernel in the order of length.
    """

    def __init__(self, nodes: Tensor, kernels_per_step: Tensor, place_of_kernel: Tensor) -> None:
        self.nodes = nodes
        self.kernels_per_step = kernels_per_step
        self.place_of_kernel = place_of_kernel

    @staticmethod
    def of(node_counts: Sequence[int]) -> PackedOrder:
        """Returns the order for kernels with these numbers of nodes, at least one each."""
        counts = np.array(node_counts)
        longest_first = np.argsort(-counts, kind="stable")
        place_of_kernel = np.argsort(longest_first, kind="stable")
        first_node = np.cumsum(counts) - counts
        step = np.arange(counts.sum()) - np.repeat(first_node, counts)
        nodes = np.lexsort((np.repeat(place_of_kernel, counts), step))
        tensors = (nodes, np.bincount(step), place_of_kernel)
        return PackedOrder(*(torch.from_numpy(numbers.astype(np.int64)) for numbers in tensors))
