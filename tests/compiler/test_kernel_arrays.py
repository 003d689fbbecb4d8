from __future__ import annotations

import numpy as np

from costbench.compiler.kernel_arrays import concatenate_kernels, select_kernels, unpack_kernels
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import as_arrays

ALL = [small.elementwise(), small.two_results(), small.dot()]
POSITIONS = [kernel.positions for kernel in ALL]


def test_some_kernels_are_taken_in_any_order() -> None:
    some = select_kernels(as_arrays(ALL), np.array([2, 0]))
    assert list(unpack_kernels(some)) == [POSITIONS[2], POSITIONS[0]]
    assert list(unpack_kernels(select_kernels(as_arrays(ALL), np.zeros(0, dtype=np.int64)))) == []


def test_lists_are_laid_end_to_end() -> None:
    parts = [as_arrays(ALL[:1]), as_arrays([]), as_arrays(ALL[1:])]
    assert list(unpack_kernels(concatenate_kernels(parts))) == POSITIONS
    assert list(unpack_kernels(concatenate_kernels([]))) == []
