from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import random_array

from costbench.models.layout.sparse import SparseMatrix


@pytest.mark.parametrize("shape", [(7, 5), (1, 9), (6, 0), (0, 4)])
def test_products_and_gradients_are_those_of_the_dense_matrix(shape: tuple[int, int]) -> None:
    matrix = random_array(shape, density=0.4, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    dense = torch.from_numpy(matrix.toarray())
    states = torch.randn(shape[1], 3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    product = SparseMatrix(matrix).times(states)
    torch.testing.assert_close(product, torch.einsum("ij,jch->ich", dense, states))
    product.square().sum().backward()
    wanted = torch.einsum("ij,ich->jch", dense, 2 * product.detach())
    torch.testing.assert_close(states.grad, wanted)


def test_results_do_not_depend_on_what_memory_held() -> None:
    """The result is not cleared before the product, so NaN left in its memory must not come through."""
    matrix = random_array((64, 64), density=0.1, rng=np.random.default_rng(1), format="csr", dtype=np.float32)
    product, states = SparseMatrix(matrix), torch.ones(64, 256)
    for _ in range(20):
        torch.full((64, 256), torch.nan)
        assert product.multiply(states).isfinite().all()
        assert product.multiply(states, transposed=True).isfinite().all()
