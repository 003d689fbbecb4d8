"""Products of a fixed sparse matrix with dense states, differentiable in the states."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor


class SparseMatrix:
    """A float32 matrix in CSR form, and its transpose for the gradient when one is asked for.

    Args:
        matrix: of SciPy, any real type.
    """

    def __init__(self, matrix: csr_array) -> None:
        self._matrix = csr_array(matrix)
        self.shape: tuple[int, int] = (int(matrix.shape[0]), int(matrix.shape[1]))

    @cached_property
    def _forward(self) -> Tensor:
        return _tensor(self._matrix)

    @cached_property
    def _backward(self) -> Tensor:
        return _tensor(csr_array(self._matrix.T))

    def times(self, dense: Tensor) -> Tensor:
        """Returns the product with `dense`: [columns, ...] to [rows, ...], differentiable in `dense`."""
        flat = dense.flatten(1)
        product: Tensor = _Product.apply(flat, self)  # type: ignore[no-untyped-call]
        return product.view(self.shape[0], *dense.shape[1:])

    def rows(self, rows: Any) -> SparseMatrix:
        """Returns the matrix of some rows."""
        return SparseMatrix(csr_array(self._matrix[rows]))

    def multiply(self, dense: Tensor, *, transposed: bool = False) -> Tensor:
        """Returns the product of the matrix, or its transpose, with `dense` [., w], without a gradient."""
        if not self._matrix.nnz:
            return dense.new_zeros(self.shape[1 if transposed else 0], dense.shape[1])
        matrix = self._backward if transposed else self._forward
        product = dense.new_empty(matrix.shape[0], dense.shape[1])
        # `torch.mm` would fill the result with zeros and copy it, which takes as long as the product.
        return torch.addmm(product, matrix, dense, beta=0, out=product)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return matrix.multiply(dense)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.matrix.multiply(gradients[0].contiguous(), transposed=True), None


def _tensor(matrix: csr_array) -> Tensor:
    with warnings.catch_warnings():
        # torch calls its support of CSR a beta; products are what it has had for years.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data.astype(np.float32)),
            size=matrix.shape,
        )
