from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costbench.models.networks.lstm import FORGET_OFFSET
from costbench_kernels.lstm import LstmMatrices, lstm_backward, lstm_forward
from tests.kernels.examples import with_inactive_units


def last_states(
    states: torch.Tensor, weights: tuple[torch.Tensor, torch.Tensor], counts: list[int]
) -> torch.Tensor:
    """What torch's LSTM gives. Shape: [N, C, H] to [K, C, W]."""
    width = weights[1].shape[1]
    offset = torch.zeros(4, width, dtype=states.dtype)
    offset[1] = FORGET_OFFSET
    start = torch.zeros(1, states.shape[1], width, dtype=states.dtype)
    given = [*weights, offset.flatten(), torch.zeros(4 * width, dtype=states.dtype)]
    parts = torch.split(states, counts)
    runs = [torch.lstm(part, (start, start), given, True, 1, 0.0, False, False, False) for part in parts]
    return torch.stack([run[0][-1] for run in runs])


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    configs=st.sampled_from([1, 5, 16, 50, 300]),
    sizes=st.sampled_from([(16, 16), (16, 32), (80, 16)]),
)
def test_last_states_and_gradients_are_torchs(
    counts: list[int], configs: int, sizes: tuple[int, int]
) -> None:
    inputs, width = sizes
    generator = torch.Generator().manual_seed(sum(counts))
    shapes = (
        (sum(counts), configs, inputs),
        (4 * width, inputs),
        (4 * width, width),
        (len(counts), configs, width),
    )
    states, *both, pull = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    states = with_inactive_units(states)
    exact = [tensor.clone().requires_grad_() for tensor in (states, *both)]
    expected = last_states(exact[0], (exact[1], exact[2]), counts)
    expected.backward(pull)

    rows = states.float().numpy().reshape(-1, inputs)
    weights = LstmMatrices(*(weight.float().numpy() for weight in both))
    starts = np.cumsum([0, *counts])
    last, computed = lstm_forward(rows, weights, starts, configs)
    torch.testing.assert_close(torch.from_numpy(last).double(), expected, atol=1e-5, rtol=1e-5)
    d_inputs, d_weights = lstm_backward(pull.float().numpy(), computed, weights, starts)
    gradients = d_inputs.reshape(states.shape), *d_weights
    for mine, other in zip(gradients, exact, strict=True):
        assert other.grad is not None
        scale = float(other.grad.abs().max())
        found = torch.from_numpy(mine).double()
        torch.testing.assert_close(found, other.grad, atol=1e-5 * max(1.0, scale), rtol=1e-5)


@pytest.mark.parametrize("gate", [-100.0, -9.0, -1.5, -1e-3, 0.0, 1e-5, 0.7, 4.0, 8.0, 100.0])
def test_one_step_by_hand(gate: float) -> None:
    # All four gates read the same: h = s(x) tanh(s(x) tanh(x)), whatever is forgotten.
    inputs = np.zeros((64, 16), np.float32)
    inputs[:, 0] = gate
    weights = LstmMatrices(inputs, np.zeros_like(inputs))
    last, computed = lstm_forward(np.ones((1, 16), np.float32), weights, np.array([0, 1]), 1)
    opened = 1.0 / (1.0 + np.exp(-gate))
    np.testing.assert_allclose(
        last[0], opened * np.tanh(opened * np.tanh(gate)) * np.ones((1, 16)), atol=1e-6
    )
    forget = 1.0 / (1.0 + np.exp(-gate - FORGET_OFFSET))
    np.testing.assert_allclose(computed.gates[1], forget * np.ones((1, 16)), atol=1e-6)


def test_a_nan_stays_one() -> None:
    weights = np.ones((64, 16), np.float32)
    inputs = np.full((1, 16), np.nan, np.float32)
    last, _ = lstm_forward(inputs, LstmMatrices(weights, weights), np.array([0, 1]), 1)
    assert np.isnan(last).all()
