"""The LSTM reduction as a fused kernel, and the steps that compute `networks.lstm.KernelLstm` with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from torch import Tensor

from costbench.arrays import F32
from costbench.models.kernels.lstm.recurrence import LstmMatrices, lstm_backward, lstm_forward
from costbench.models.kernels.steps import FusedKernel, Step, array_of
from costbench.models.networks.lstm import KernelLstm, LstmWeights


class LstmKernel(FusedKernel):
    """One LSTM layer without biases, which returns the last hidden state of each kernel.

    Args:
        weights: of the inputs [4 W, H] and of the hidden states [4 W, W].
        node_counts: nodes of each kernel.

    Shape: states [N, C, H] to [K, C, W].
    """

    weights: Sequence[Tensor]

    def __init__(self, weights: tuple[Tensor, Tensor], node_counts: Sequence[int]) -> None:
        self.weights = weights
        self._starts = np.cumsum([0, *node_counts])

    def forward(self, states: F32, keep: bool) -> F32:
        """See `steps.FusedKernel`."""
        self._matrices = LstmMatrices(*map(array_of, self.weights))
        rows = states.reshape(-1, states.shape[2])
        last, self._computed = lstm_forward(rows, self._matrices, self._starts, states.shape[1])
        return last

    def backward(self, gradient: F32) -> tuple[F32, LstmMatrices]:
        """See `steps.FusedKernel`."""
        d_rows, d_weights = lstm_backward(gradient, self._computed, self._matrices, self._starts)
        return d_rows.reshape(-1, gradient.shape[1], d_rows.shape[1]), d_weights


def lstm_steps(lstm: KernelLstm, node_counts: Sequence[int]) -> list[Step]:
    """Returns the steps of an LSTM with one layer and no biases."""
    layer = cast(LstmWeights, lstm.layers[0])
    return [LstmKernel((layer.gates_of_inputs, layer.gates_of_states), node_counts)]
