"""The LSTM against its formula, one number at a time, and against torch's module."""

from __future__ import annotations

import math

import torch
from torch import nn

from costbench.models.networks.layers import initialize
from costbench.models.networks.lstm import FORGET_OFFSET, KernelLstm, PackedOrder
from costbench.models.spec import NetSpec


def sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))


def test_two_nodes_by_hand() -> None:
    lstm = KernelLstm(NetSpec(hidden=1))
    # Gates i, f, g, o.
    w, u = (1.0, 0.5, 2.0, -1.0), (0.3, -0.2, 0.1, 0.4)
    lstm.layers[0].gates_of_inputs.data = torch.tensor(w).view(4, 1)
    lstm.layers[0].gates_of_states.data = torch.tensor(u).view(4, 1)
    state = cell = 0.0
    for x in (0.7, -1.1):
        i, f, g, o = (weight * x + back * state for weight, back in zip(w, u, strict=True))
        cell = sigmoid(f + FORGET_OFFSET) * cell + sigmoid(i) * math.tanh(g)
        state = sigmoid(o) * math.tanh(cell)
    found = lstm(torch.tensor([0.7, -1.1]).view(2, 1, 1), (2,))
    torch.testing.assert_close(found, torch.tensor([[[state]]]))


def test_equals_torchs_module() -> None:
    spec = NetSpec(hidden=6, lstm_width=5, lstm_layers=2, biases=True)
    lstm = KernelLstm(spec)
    initialize(lstm, 0)
    module = nn.LSTM(6, 5, num_layers=2)
    with torch.no_grad():
        for bias in (layer.bias for layer in lstm.layers):
            bias.normal_(generator=torch.Generator().manual_seed(1))
        for own, theirs in zip(lstm.weights(), module.parameters(), strict=True):
            theirs.copy_(own)
    states = torch.randn(7, 3, 6, generator=torch.Generator().manual_seed(2), requires_grad=True)
    counts = (4, 1, 2)
    expected = torch.stack([module(part)[0][-1] for part in states.split(counts)])
    found = lstm(states, counts)
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(out.square().sum(), states)[0] for out in (found, expected))
    torch.testing.assert_close(ours, theirs)


def test_an_untrained_lstm_remembers_the_first_node() -> None:
    lstm = KernelLstm(NetSpec(hidden=16))
    initialize(lstm, 0)
    states = torch.rand(12, 1, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    lstm(states, (12,)).square().sum().backward()
    assert states.grad is not None
    size = states.grad.norm(dim=(1, 2))
    assert size[0] > 1e-4 * size[-1]


def test_packing_goes_by_step_and_takes_long_kernels_first() -> None:
    # Kernels of nodes (0), (1, 2, 3) and (4, 5).
    packing = PackedOrder.of((1, 3, 2))
    assert packing.nodes.tolist() == [1, 4, 0, 2, 5, 3]
    assert packing.kernels_per_step.tolist() == [3, 2, 1]
    assert packing.place_of_kernel.tolist() == [2, 0, 1]
