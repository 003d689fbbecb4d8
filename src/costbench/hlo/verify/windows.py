"""Checks of reductions, sliding windows, dots, convolutions and other linear algebra."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.hlo.instruction import ConvolutionDimensions, Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape
from costbench.hlo.verify.problems import (
    Check,
    Context,
    Problem,
    Signature,
    check_axes,
    check_compatible,
    check_count,
    check_members,
    check_result,
    is_predicate,
    is_scalar,
)

_MAX_FFT_RANK = 3
_FFT_REAL, _FFT_INVERSE_REAL = 2, 3
"""Codes of `FftType` in `xla_data.proto`; 0 and 1 are complex transforms, which keep the extents."""


def check_accumulator(called: Signature, count: int) -> Problem | None:
    """Checks a reducer.

    To combine `count` values with as many others, it takes 2 * `count` scalars and returns `count`.
    """
    if len(called.parameters) != 2 * count or not all(map(is_scalar, called.parameters)):
        actual = ", ".join(map(str, called.parameters))
        return Problem(f"computation of parameters ({actual})", f"{2 * count} scalars")
    result = called.result
    members = result.tuple_shapes if result.is_tuple else (result,)
    if len(members) == count and all(map(is_scalar, members)):
        return None
    return Problem(f"computation that returns {result}", "a scalar" if count == 1 else f"{count} scalars")


def check_comparator(called: Signature, count: int) -> Problem | None:
    """Checks a comparator: it takes two scalars for each of `count` arrays and returns `pred[]`."""
    if len(called.parameters) != 2 * count or not all(map(is_scalar, called.parameters)):
        actual = ", ".join(map(str, called.parameters))
        return Problem(f"computation of parameters ({actual})", f"{2 * count} scalars")
    if not is_predicate(called.result):
        return Problem(f"computation that returns {called.result}", "pred[]")
    return None


def _check_window(inst: Instruction) -> Problem | None:
    """Checks that every dimension of a window has a size, stride and dilations of 1 or more."""
    for part in inst.window:
        if min(part.size, part.stride, part.base_dilation, part.window_dilation) < 1:
            return Problem(f"window {part}", "a size, a stride and dilations of 1 or more")
    return None


def _check_reduced(operands: Sequence[Shape]) -> Problem | None:
    """Checks that the first half are arrays of equal extents, the second their scalar start values."""
    if not operands or len(operands) % 2:
        return Problem(f"{len(operands)} operands", "a start value for each array")
    count = len(operands) // 2
    for number, operand in enumerate(operands[:count]):
        if operand.dimensions != operands[0].dimensions:
            return Problem(f"operand {number} {operand}", f"extents of operand 0 {operands[0]}")
    for number, start in enumerate(operands[count:], start=count):
        if not is_scalar(start):
            return Problem(f"operand {number} {start}", "a scalar to start from")
    return None


def _reduce(inst: Instruction, context: Context) -> Problem | None:
    operands = context.operands
    problem = _check_reduced(operands) or check_axes("dimensions", inst.dimensions, operands[0].rank)
    if problem:
        return problem
    count, dropped = len(operands) // 2, set(inst.dimensions)
    sizes = [extent for axis, extent in enumerate(operands[0].dimensions) if axis not in dropped]
    return check_members("shape", inst.shape, [sizes] * count) or check_accumulator(context.called[0], count)


def _window_extents(inst: Instruction, base: Shape) -> tuple[list[int], Problem | None]:
    """Returns the number of positions of the window along each axis, and what is wrong with it."""
    problem = check_count("window dimensions", len(inst.window), base.rank) or _check_window(inst)
    if problem:
        return [], problem
    return [w.output_extent(n) for w, n in zip(inst.window, base.dimensions, strict=True)], None


def _reduce_window(inst: Instruction, context: Context) -> Problem | None:
    operands = context.operands
    problem = _check_reduced(operands)
    if problem:
        return problem
    sizes, problem = _window_extents(inst, operands[0])
    count = len(operands) // 2
    problem = problem or check_members("shape", inst.shape, [sizes] * count)
    return problem or check_accumulator(context.called[0], count)


def _select_and_scatter(inst: Instruction, context: Context) -> Problem | None:
    operand, source, start = context.operands
    sizes, problem = _window_extents(inst, operand)
    if problem:
        return problem
    if source.dimensions != tuple(sizes):
        return Problem(f"source {source}", f"extents {sizes}, one for each place of the window")
    if not is_scalar(start):
        return Problem(f"operand 2 {start}", "a scalar to start from")
    problem = check_comparator(context.called[0], 1) or check_accumulator(context.called[1], 1)
    return problem or check_compatible("shape", inst.shape, operand)


def _dot(inst: Instruction, context: Context) -> Problem | None:
    numbers = inst.dot
    if numbers is None:
        return Problem("no dot_dimension_numbers", "those of a dot")
    lhs, rhs = context.operands
    left = (*numbers.lhs_batch, *numbers.lhs_contracting)
    right = (*numbers.rhs_batch, *numbers.rhs_contracting)
    problem = (
        check_axes("lhs batch and contracting dimensions", left, lhs.rank)
        or check_axes("rhs batch and contracting dimensions", right, rhs.rank)
        or check_count("rhs_contracting_dims", len(numbers.rhs_contracting), len(numbers.lhs_contracting))
        or check_count("rhs_batch_dims", len(numbers.rhs_batch), len(numbers.lhs_batch))
    )
    if problem:
        return problem
    for axis, rhs_axis in zip(left, right, strict=True):
        if lhs.dimensions[axis] != rhs.dimensions[rhs_axis]:
            actual = f"axis {rhs_axis} of rhs {rhs}"
            return Problem(actual, f"{lhs.dimensions[axis]} elements, as axis {axis} of lhs {lhs}")
    expected = [lhs.dimensions[axis] for axis in numbers.lhs_batch]
    expected += [extent for axis, extent in enumerate(lhs.dimensions) if axis not in left]
    expected += [extent for axis, extent in enumerate(rhs.dimensions) if axis not in right]
    return check_result(inst.shape, expected)


def _convolution(inst: Instruction, context: Context) -> Problem | None:
    numbers = inst.convolution
    if numbers is None:
        return Problem("no convolution_dimension_numbers", "those of a convolution")
    image, kernel = context.operands
    problem = _permutations(inst, numbers, image, kernel) or _check_window(inst)
    if problem:
        return problem
    for part, axis in zip(inst.window, numbers.kernel_spatial, strict=True):
        if part.size != kernel.dimensions[axis]:
            return Problem(f"window size {part.size}", f"extent of axis {axis} of the kernel {kernel}")
    problem = _groups(inst, numbers, image, kernel)
    if problem:
        return problem
    expected = [0] * inst.shape.rank
    expected[numbers.output_batch] = image.dimensions[numbers.input_batch] // max(1, inst.batch_group_count)
    expected[numbers.output_feature] = kernel.dimensions[numbers.kernel_output_feature]
    for part, axis, out in zip(inst.window, numbers.input_spatial, numbers.output_spatial, strict=True):
        expected[out] = part.output_extent(image.dimensions[axis])
    return check_result(inst.shape, expected)


def _permutations(
    inst: Instruction, numbers: ConvolutionDimensions, image: Shape, kernel: Shape
) -> Problem | None:
    """Checks that dimension numbers of input, kernel and output name every axis once."""
    rank = len(inst.window) + 2
    sides = (
        ("input", (numbers.input_batch, numbers.input_feature, *numbers.input_spatial), image),
        (
            "kernel",
            (numbers.kernel_input_feature, numbers.kernel_output_feature, *numbers.kernel_spatial),
            kernel,
        ),
        ("output", (numbers.output_batch, numbers.output_feature, *numbers.output_spatial), inst.shape),
    )
    for name, axes, shape in sides:
        problem = (
            check_count(f"{name} dimensions", len(axes), rank)
            or check_count(f"rank of the {name}", shape.rank, rank)
            or check_axes(f"{name} dimensions", axes, rank)
        )
        if problem:
            return problem
    return None


def _groups(inst: Instruction, numbers: ConvolutionDimensions, image: Shape, kernel: Shape) -> Problem | None:
    """Groups divide features or batch evenly; a count of 0 is an unset 1."""
    features, batches = max(1, inst.feature_group_count), max(1, inst.batch_group_count)
    if min(inst.feature_group_count, inst.batch_group_count) < 0 or (features > 1 and batches > 1):
        actual = f"feature_group_count {inst.feature_group_count}, batch_group_count {inst.batch_group_count}"
        return Problem(actual, "1 or more, and only one of them above 1")
    inputs = kernel.dimensions[numbers.kernel_input_feature] * features
    outputs = kernel.dimensions[numbers.kernel_output_feature]
    if image.dimensions[numbers.input_feature] != inputs:
        actual = f"{image.dimensions[numbers.input_feature]} input features"
        return Problem(actual, f"{inputs}, those of the kernel times feature_group_count")
    if outputs % features or outputs % batches:
        return Problem(f"{outputs} output features", f"a multiple of {max(features, batches)} groups")
    if image.dimensions[numbers.input_batch] % batches:
        actual = f"batch of {image.dimensions[numbers.input_batch]}"
        return Problem(actual, f"a multiple of batch_group_count {batches}")
    return None


def _fft(inst: Instruction, context: Context) -> Problem | None:
    operand, lengths = context.operands[0], inst.fft_length
    if not 1 <= len(lengths) <= min(_MAX_FFT_RANK, operand.rank):
        return Problem(f"fft_length {lengths}", f"1 to {min(_MAX_FFT_RANK, operand.rank)} lengths")
    if not operand.num_elements or not inst.shape.num_elements:
        # Lengths of nothing are not compared, and the extent 0 of an axis stays, as in XLA.
        return check_count("rank of the result", inst.shape.rank, operand.rank)
    outer = operand.dimensions[: operand.rank - len(lengths)]
    whole, half = (*outer, *lengths), (*outer, *lengths[:-1], lengths[-1] // 2 + 1)
    source = half if inst.fft_type == _FFT_INVERSE_REAL else whole
    if operand.dimensions != source:
        return Problem(f"operand {operand}", f"extents [{','.join(map(str, source))}]")
    return check_result(inst.shape, half if inst.fft_type == _FFT_REAL else whole)


def _square(shape: Shape) -> Problem | None:
    if shape.rank >= 2 and shape.dimensions[-1] == shape.dimensions[-2]:
        return None
    return Problem(f"operand {shape}", "square matrices in the last two axes")


def _cholesky(inst: Instruction, context: Context) -> Problem | None:
    operand = context.operands[0]
    return _square(operand) or check_result(inst.shape, operand.dimensions)


def _triangular_solve(inst: Instruction, context: Context) -> Problem | None:
    matrix, right = context.operands
    problem = _square(matrix) or check_count("rank of operand 1", right.rank, matrix.rank)
    if problem:
        return problem
    if right.dimensions[:-2] != matrix.dimensions[:-2] or matrix.dimensions[-1] not in right.dimensions[-2:]:
        return Problem(f"operand 1 {right}", f"batch and rows or columns of operand 0 {matrix}")
    return check_result(inst.shape, right.dimensions)


CHECKS: dict[Opcode, Check] = {
    Opcode.REDUCE: _reduce,
    Opcode.REDUCE_WINDOW: _reduce_window,
    Opcode.SELECT_AND_SCATTER: _select_and_scatter,
    Opcode.DOT: _dot,
    Opcode.CONVOLUTION: _convolution,
    Opcode.FFT: _fft,
    Opcode.CHOLESKY: _cholesky,
    Opcode.TRIANGULAR_SOLVE: _triangular_solve,
}
