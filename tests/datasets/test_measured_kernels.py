from __future__ import annotations

import numpy as np

from costbench.datasets.measured_kernels import kernel_columns
from costbench.datasets.records import digests_of, offsets_of
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import as_arrays


def test_lists_lie_end_to_end() -> None:
    kernels = [small.elementwise(), small.dot()]
    computations = np.array([kernel.computation for kernel in kernels])
    columns = kernel_columns(as_arrays(kernels), computations, ["00" * 15 + "01", "ff" * 16])
    assert columns["kernel_computation"].tolist() == computations.tolist()
    assert columns["kernel_fingerprint"].tolist() == [[0] * 15 + [1], [255] * 16]
    for part in ("inputs", "instructions", "outputs"):
        offsets, values = columns[f"kernel_{part}_offsets"], columns[f"kernel_{part}"]
        assert values.dtype == np.int32
        for number, kernel in enumerate(kernels):
            assert tuple(values[offsets[number] : offsets[number + 1]].tolist()) == getattr(kernel, part)


def test_no_kernels_are_empty_columns() -> None:
    columns = kernel_columns(as_arrays([]), np.zeros(0, np.int64), [])
    assert columns["kernel_fingerprint"].shape == (0, 16)
    assert columns["kernel_inputs_offsets"].tolist() == [0]
    assert digests_of([]).shape == (0, 16)
    assert offsets_of([]).tolist() == [0]
