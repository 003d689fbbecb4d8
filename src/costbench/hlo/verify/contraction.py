"""Checks of dot, convolution and other linear algebra."""

from __future__ import annotations

from costbench.hlo.instruction import ConvolutionDimensions, Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape
from costbench.hlo.verify.problems import (
    Check,
    Context,
    Problem,
    check_axes,
    check_count,
    check_result,
)
from costbench.hlo.verify.windows import check_window

_MAX_FFT_RANK = 3
_FFT_REAL, _FFT_INVERSE_REAL = 2, 3
"""Codes of `FftType` in `xla_data.proto`; 0 and 1 are complex transforms, which keep the extents."""


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
    for own, other in zip(left, right, strict=True):
        if lhs.dimensions[own] != rhs.dimensions[other]:
            found = f"axis {other} of rhs {rhs}"
            return Problem(found, f"{lhs.dimensions[own]} elements, as axis {own} of lhs {lhs}")
    wanted = [lhs.dimensions[axis] for axis in numbers.lhs_batch]
    wanted += [extent for axis, extent in enumerate(lhs.dimensions) if axis not in left]
    wanted += [extent for axis, extent in enumerate(rhs.dimensions) if axis not in right]
    return check_result(inst.shape, wanted)


def _convolution(inst: Instruction, context: Context) -> Problem | None:
    numbers = inst.convolution
    if numbers is None:
        return Problem("no convolution_dimension_numbers", "those of a convolution")
    image, kernel = context.operands
    problem = _permutations(inst, numbers, image, kernel) or check_window(inst)
    if problem:
        return problem
    for part, axis in zip(inst.window, numbers.kernel_spatial, strict=True):
        if part.size != kernel.dimensions[axis]:
            return Problem(f"window size {part.size}", f"extent of axis {axis} of the kernel {kernel}")
    problem = _groups(inst, numbers, image, kernel)
    if problem:
        return problem
    wanted = [0] * inst.shape.rank
    wanted[numbers.output_batch] = image.dimensions[numbers.input_batch] // max(1, inst.batch_group_count)
    wanted[numbers.output_feature] = kernel.dimensions[numbers.kernel_output_feature]
    for part, axis, out in zip(inst.window, numbers.input_spatial, numbers.output_spatial, strict=True):
        wanted[out] = part.output_extent(image.dimensions[axis])
    return check_result(inst.shape, wanted)


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
        found = f"feature_group_count {inst.feature_group_count}, batch_group_count {inst.batch_group_count}"
        return Problem(found, "1 or more, and only one of them above 1")
    inputs = kernel.dimensions[numbers.kernel_input_feature] * features
    outputs = kernel.dimensions[numbers.kernel_output_feature]
    if image.dimensions[numbers.input_feature] != inputs:
        found = f"{image.dimensions[numbers.input_feature]} input features"
        return Problem(found, f"{inputs}, those of the kernel times feature_group_count")
    if outputs % features or outputs % batches:
        return Problem(f"{outputs} output features", f"a multiple of {max(features, batches)} groups")
    if image.dimensions[numbers.input_batch] % batches:
        found = f"batch of {image.dimensions[numbers.input_batch]}"
        return Problem(found, f"a multiple of batch_group_count {batches}")
    return None


def _fft(inst: Instruction, context: Context) -> Problem | None:
    operand, lengths = context.operands[0], inst.fft_length
    if not 1 <= len(lengths) <= min(_MAX_FFT_RANK, operand.rank):
        return Problem(f"fft_length {lengths}", f"1 to {min(_MAX_FFT_RANK, operand.rank)} lengths")
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
    Opcode.DOT: _dot,
    Opcode.CONVOLUTION: _convolution,
    Opcode.FFT: _fft,
    Opcode.CHOLESKY: _cholesky,
    Opcode.TRIANGULAR_SOLVE: _triangular_solve,
}
