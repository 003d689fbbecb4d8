"""Small graphs and states for tests of compiled passes."""

from __future__ import annotations

import numpy as np
import torch

from costbench.models.edges import Edges
from costbench_kernels.messages import CsrMatrix


def csr_matrix(dense: np.ndarray) -> CsrMatrix:
    """A dense matrix by its entries that are not zero."""
    rows, columns = np.nonzero(dense)
    starts = np.searchsorted(rows, np.arange(len(dense) + 1))
    return CsrMatrix(starts, columns, dense[rows, columns])


def build(edges: np.ndarray, num_nodes: int) -> Edges:
    """From [2, E], producers above consumers."""
    return Edges.build(edges[::-1].copy(), edges, num_nodes)


def whole_numbers(seed: int, *shape: int) -> torch.Tensor:
    """Small ones: sums of their products are exact in any order."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32))


def with_inactive_units(states: torch.Tensor) -> torch.Tensor:
    """States [N, C, H], a third of the units of each node being 0 for all decisions, as after a ReLU."""
    active = np.random.default_rng(0).random((len(states), 1, states.shape[2])) < 2 / 3
    return states * torch.from_numpy(active).to(states.dtype)
