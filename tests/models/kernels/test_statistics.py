"""Compiled statistics over kernels of nodes (1, 2), (3, 4) and (5, 0), by hand."""

from __future__ import annotations

import pytest
import torch

from costbench.models.kernels.statistics import segment_statistics

STATES = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]]).view(3, 1, 2)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("mean",), [[2.0, 3.0], [5.0, 0.0]]),
        (("max",), [[3.0, 4.0], [5.0, 0.0]]),
        (("sum",), [[4.0, 6.0], [5.0, 0.0]]),
        (("sum", "mean", "max"), [[4.0, 6.0, 2.0, 3.0, 3.0, 4.0], [5.0, 0.0] * 3]),
    ],
)
def test_statistics_of_columns(names: tuple[str, ...], expected: list[list[float]]) -> None:
    both = segment_statistics(torch.cat([STATES, -STATES], dim=1), (2, 1), names)
    assert both[:, 0].tolist() == expected
    torch.testing.assert_close(both[:, 1:], segment_statistics(-STATES, (2, 1), names))


@pytest.mark.parametrize("num_decisions", [1, 2])
def test_gradient_by_hand(num_decisions: int) -> None:
    # Kernels of (-1, -1, -2) and of (4). The maximum's gradient 6 is shared by two nodes, 3 each; those of
    # sum and mean are 10 and 9 / 3 for every node of the first kernel, 1 and 2 for the second's.
    states = torch.tensor([-1.0, -1.0, -2.0, 4.0]).view(4, 1, 1).repeat(1, num_decisions, 1)
    states.requires_grad_()
    pull = torch.tensor([[6.0, 10.0, 9.0], [5.0, 1.0, 2.0]]).view(2, 1, 3)
    (segment_statistics(states, (3, 1), ("max", "sum", "mean")) * pull).sum().backward()
    assert states.grad is not None
    assert states.grad[:, -1, 0].tolist() == [16.0, 16.0, 13.0, 8.0]
