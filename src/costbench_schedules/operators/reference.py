"""What an operator computes, by NumPy in double precision: the values that compiled schedules are held to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from costbench.arrays import F32, F64, AnyFloat
from costbench.rng import stream
from costbench_schedules.operators.operators import Access, Operator

TOLERANCE = 1e-4
"""Largest difference of a correct output over its largest magnitude: sums in float32, in another order."""


def inputs_of(operator: Operator, seed: int = 0) -> list[F32]:
    """Returns standard normal inputs in the operator's order; equal seeds give equal bytes."""
    return [
        stream(seed, "schedule", operator.text, name).standard_normal(
            operator.tensors[name], dtype=np.float32
        )
        for name in operator.inputs
    ]


def expected_output(operator: Operator, inputs: list[F32]) -> F64:
    """Returns the output in float64: the sum over reduction axes of the products of what is accessed."""
    arrays = {name: array.astype(np.float64) for name, array in zip(operator.inputs, inputs, strict=True)}
    for name, (source, before) in operator.padding.items():
        shape = zip(operator.tensors[name], arrays[source].shape, before, strict=True)
        arrays[name] = np.pad(arrays[source], [(pad, size - old - pad) for size, old, pad in shape])
    reads = [access for access in operator.accesses if not access.write]
    operands: list[Any] = []
    for access in reads:
        operands += [_view(operator, access, arrays[access.tensor]), _axes_of(operator, access)]
    result = np.einsum(*operands, list(range(len(operator.spatial))), optimize=True)
    return np.asarray(result, dtype=np.float64)


def _axes_of(operator: Operator, access: Access) -> list[int]:
    """Returns the positions of the axes in an index, ascending."""
    used = {name for index in access.strides for name, _ in index}
    return [index for index, axis in enumerate(operator.axes) if axis.name in used]


def _view(operator: Operator, access: Access, array: F64) -> F64:
    """Returns the array with a dimension for each axis in the index instead of its own."""
    axes = _axes_of(operator, access)
    strides = dict.fromkeys(axes, 0)
    names = [axis.name for axis in operator.axes]
    for index, step in zip(access.strides, array.strides, strict=True):
        for name, coefficient in index:
            strides[names.index(name)] += coefficient * step
    shape = [operator.axes[axis].extent for axis in axes]
    return as_strided(array, shape, [strides[axis] for axis in axes], writeable=False)


def largest_error(output: AnyFloat, expected: F64) -> float:
    """Returns the largest difference over the largest magnitude; infinite where the output is not finite."""
    if not np.all(np.isfinite(output)):
        return float("inf")
    scale = float(np.max(np.abs(expected))) or 1.0
    return float(np.max(np.abs(output - expected))) / scale
