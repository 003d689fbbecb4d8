from __future__ import annotations

import numpy as np

from costbench.compiler.kernel_arrays import KernelArrays, concatenate_kernels, kernel_lists, select_kernels
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import as_arrays

ALL = [small.elementwise(), small.two_results(), small.dot()]
LISTS = [[list(k.instructions), list(k.inputs), list(k.outputs)] for k in ALL]


def lists_of(kernels: KernelArrays) -> list[list[list[int]]]:
    return [list(one) for one in kernel_lists(kernels)]


def test_some_kernels_are_taken_in_any_order() -> None:
    assert lists_of(select_kernels(as_arrays(ALL), np.array([2, 0]))) == [LISTS[2], LISTS[0]]
    assert lists_of(select_kernels(as_arrays(ALL), np.zeros(0, dtype=np.int64))) == []


def test_lists_are_laid_end_to_end() -> None:
    assert lists_of(concatenate_kernels([as_arrays(ALL[:1]), as_arrays([]), as_arrays(ALL[1:])])) == LISTS
    assert lists_of(concatenate_kernels([])) == []
