"""Counts multiply-adds of a convolution: only window positions that read a real input element count.

A position is a pair (kernel index k, output index o) of one spatial dimension. It reads element
`(o * stride - padding_low + k * window_dilation) / base_dilation` of the input and counts if that is whole
and inside the input; holes of a dilated base and padding cost nothing. The dimensions are independent, so
the count of a convolution is the product of the counts of its dimensions.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from costbench.hlo.instruction import Instruction, WindowDimension
from costbench.hlo.shape import Shape

_PAIRS_AT_ONCE = 1 << 20
_DISTINCT_DIMENSIONS = 1 << 14


@lru_cache(maxsize=_DISTINCT_DIMENSIONS)
def valid_positions(
    window: WindowDimension, input_extent: int, kernel_extent: int, output_extent: int
) -> int:
    """Counts (kernel index, output index) pairs of one spatial dimension that read an input element."""
    start = np.arange(output_extent, dtype=np.int64) * window.stride - window.padding_low
    last = (input_extent - 1) * window.base_dilation
    rows = max(1, _PAIRS_AT_ONCE // max(1, output_extent))
    count = 0
    for first in range(0, kernel_extent, rows):
        taps = np.arange(first, min(first + rows, kernel_extent), dtype=np.int64) * window.window_dilation
        place = taps[:, None] + start[None, :]
        valid = (place >= 0) & (place <= last)
        if window.base_dilation > 1:
            valid &= place % window.base_dilation == 0
        count += int(np.count_nonzero(valid))
    return count


def convolution_multiply_adds(inst: Instruction, lhs: Shape, rhs: Shape) -> int:
    """Returns the multiply-adds of a convolution, in any of its forms.

    (input features / feature groups) * output features * (batch / batch groups) * product over the spatial
    dimensions of `valid_positions`. Transposed convolutions are those with a base dilation, dilated ones
    those with a window dilation; the gradient of the kernel is a convolution whose batch is the features.

    Args:
        inst: a convolution, with dimension numbers and one window dimension per spatial dimension.
        lhs: shape of the input.
        rhs: shape of the kernel.
    """
    numbers = inst.convolution
    if numbers is None:
        return 0
    features_in = lhs.dimensions[numbers.input_feature] // max(1, inst.feature_group_count)
    batch = lhs.dimensions[numbers.input_batch] // max(1, inst.batch_group_count)
    count = features_in * inst.shape.dimensions[numbers.output_feature] * batch
    axes = zip(
        inst.window,
        numbers.input_spatial,
        numbers.kernel_spatial,
        numbers.output_spatial,
        strict=True,
    )
    for window, on_input, on_kernel, on_output in axes:
        count *= valid_positions(
            window, lhs.dimensions[on_input], rhs.dimensions[on_kernel], inst.shape.dimensions[on_output]
        )
    return count
