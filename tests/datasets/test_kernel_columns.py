from __future__ import annotations

import numpy as np

from costbench.datasets.kernel_columns import array_columns, digests_of, kernel_columns, offsets_of
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import as_arrays

ONE, TWO = "00" * 15 + "01", "ff" * 16


def test_lists_lie_end_to_end() -> None:
    kernels = [small.elementwise(), small.dot()]
    columns = kernel_columns(kernels, [ONE, TWO])
    assert columns["kernel_computation"].tolist() == [k.computation for k in kernels]
    assert columns["kernel_fingerprint"].tolist() == [[0] * 15 + [1], [255] * 16]
    for part in ("inputs", "instructions", "outputs"):
        offsets, values = columns[f"kernel_{part}_offsets"], columns[f"kernel_{part}"]
        assert values.dtype == np.int32
        for number, kernel in enumerate(kernels):
            assert tuple(values[offsets[number] : offsets[number + 1]].tolist()) == getattr(kernel, part)


def test_no_kernels_are_empty_columns() -> None:
    columns = kernel_columns([], [])
    assert columns["kernel_fingerprint"].shape == (0, 16)
    assert columns["kernel_inputs_offsets"].tolist() == [0]
    assert digests_of([]).shape == (0, 16)
    assert offsets_of([]).tolist() == [0]


def test_kernels_as_arrays_give_the_same_columns() -> None:
    kernels = [small.elementwise(), small.dot()]
    expected = kernel_columns(kernels, [ONE, TWO])
    found = array_columns(as_arrays(kernels), np.array([k.computation for k in kernels]), [ONE, TWO])
    assert found.keys() == expected.keys()
    for key, column in expected.items():
        assert found[key].dtype == column.dtype
        assert found[key].tolist() == column.tolist()
