"""How much an instruction computes: which opcodes are elementwise, and the counts of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from costbench.hlo.cost_analysis.convolution import convolution_multiply_adds
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

_O = Opcode
TRANSCENDENTAL = frozenset(
    {
        _O.EXPONENTIAL,
        _O.EXPONENTIAL_MINUS_ONE,
        _O.LOG,
        _O.LOG_PLUS_ONE,
        _O.LOGISTIC,
        _O.POWER,
        _O.SQRT,
        _O.CBRT,
    }
    | {_O.RSQRT, _O.TANH, _O.SINE, _O.COSINE, _O.TAN, _O.ATAN2, _O.ERF, _O.ACOS, _O.ACOSH, _O.ASIN, _O.ASINH}
    | {_O.ATANH, _O.COSH, _O.SINH}
)
ELEMENTWISE = frozenset(
    {_O.ABS, _O.ADD, _O.AND, _O.BITCAST_CONVERT, _O.CEIL, _O.CLAMP, _O.COMPARE, _O.COMPLEX, _O.CONVERT}
    | {_O.COUNT_LEADING_ZEROS, _O.DIVIDE, _O.FLOOR, _O.IMAG, _O.IS_FINITE, _O.MAXIMUM, _O.MINIMUM}
    | {_O.MULTIPLY, _O.NEGATE, _O.NOT, _O.OR, _O.POPCNT, _O.REAL, _O.REDUCE_PRECISION, _O.REMAINDER}
    | {_O.ROUND_NEAREST_AFZ, _O.ROUND_NEAREST_EVEN, _O.SELECT, _O.SHIFT_LEFT, _O.SHIFT_RIGHT_ARITHMETIC}
    | {_O.SHIFT_RIGHT_LOGICAL, _O.SIGN, _O.STOCHASTIC_CONVERT, _O.SUBTRACT, _O.XOR}
)
UNPRICED = frozenset({_O.UNKNOWN})
RANDOM = frozenset({_O.RNG, _O.RNG_BIT_GENERATOR})


def _first_array(shape: Shape) -> Shape:
    return shape.tuple_shapes[0] if shape.is_tuple else shape


def _window_size(inst: Instruction) -> int:
    return math.prod(d.size for d in inst.window)


def _reduce_applications(inst: Instruction, operands: Sequence[Shape]) -> tuple[int, ...]:
    # XLA's count is negative where an empty array is reduced; nothing is computed then.
    return (max(0, operands[0].num_elements - _first_array(inst.shape).num_elements),)


def _reduce_window_applications(inst: Instruction, _operands: Sequence[Shape]) -> tuple[int, ...]:
    result = _first_array(inst.shape)
    whole = _whole_axis_window(inst)
    if whole is not None:
        extent = result.dimensions[whole]
        return (result.num_elements // extent + extent - 1,) if extent else (0,)
    return ((_window_size(inst) - 1) * result.num_elements,)


def _whole_axis_window(inst: Instruction) -> int | None:
    """Returns the only axis along which every window covers all of the base: a reduction broadcast back."""
    wide = [axis for axis, d in enumerate(inst.window) if d.size != 1]
    padded = [axis for axis, d in enumerate(inst.window) if d.padding_low or d.padding_high]
    if len(wide) != 1 or wide != padded or inst.shape.is_tuple:
        return None
    window = inst.window[wide[0]]
    even = window.padding_low == window.padding_high and window.size == 2 * window.padding_low + 1
    return wide[0] if even and window.padding_low == inst.shape.dimensions[wide[0]] - 1 else None


def _select_and_scatter_applications(inst: Instruction, operands: Sequence[Shape]) -> tuple[int, ...]:
    source = operands[1].num_elements
    return source * (_window_size(inst) - 1), source


def _scatter_applications(_inst: Instruction, operands: Sequence[Shape]) -> tuple[int, ...]:
    return (operands[len(operands) // 2 + 1].num_elements,)


def _dot_flops(inst: Instruction, operands: Sequence[Shape]) -> float:
    contracted = inst.dot.lhs_contracting if inst.dot is not None else ()
    return 2 * inst.shape.num_elements * math.prod(operands[0].dimensions[axis] for axis in contracted)


def _ragged_dot_flops(inst: Instruction, operands: Sequence[Shape]) -> float:
    """Counts as XLA does: a dot whose result lacks a leading axis for each group dimension of the right side.

    With a ragged axis that is not contracted this leaves out the rows: XLA does not know their groups.
    """
    contracted = inst.dot.lhs_contracting if inst.dot is not None else ()
    kept = list(inst.shape.dimensions)
    for number in range(min(len(inst.dimensions), len(kept))):
        del kept[min(number, len(kept) - 1)]
    return 2 * math.prod(kept) * math.prod(operands[0].dimensions[axis] for axis in contracted)


def _sort_flops(_inst: Instruction, operands: Sequence[Shape]) -> float:
    elements = operands[0].num_elements
    return elements * max(0, elements - 1).bit_length()


def _fft_flops(inst: Instruction, operands: Sequence[Shape]) -> float:
    factors = math.prod(max(length, 1).bit_length() - 1 for length in inst.fft_length)
    return 8 * factors * operands[0].num_elements


def _last_extent(shape: Shape) -> int:
    return shape.dimensions[-1] if shape.dimensions else 1


# How often each called computation is applied, in the order of `Instruction.called`.
APPLICATIONS: dict[Opcode, Callable[[Instruction, Sequence[Shape]], tuple[int, ...]]] = {
    _O.REDUCE: _reduce_applications,
    _O.REDUCE_WINDOW: _reduce_window_applications,
    _O.SELECT_AND_SCATTER: _select_and_scatter_applications,
    _O.SCATTER: _scatter_applications,
    _O.MAP: lambda inst, _operands: (inst.shape.num_elements,),
    _O.FUSION: lambda _inst, _operands: (1,),
    _O.SCAN: lambda _inst, _operands: (1,),
}
FLOPS: dict[Opcode, Callable[[Instruction, Sequence[Shape]], float]] = {
    _O.DOT: _dot_flops,
    _O.RAGGED_DOT: _ragged_dot_flops,
    _O.CONVOLUTION: lambda inst, operands: 2 * convolution_multiply_adds(inst, operands[0], operands[1]),
    _O.SORT: _sort_flops,
    _O.FFT: _fft_flops,
    _O.TRIANGULAR_SOLVE: lambda _inst, operands: 2 * _last_extent(operands[0]) * operands[1].num_elements,
    _O.CHOLESKY: lambda _inst, operands: _last_extent(operands[0]) * operands[0].num_elements // 3,
    _O.ALL_REDUCE: lambda inst, _operands: sum(leaf.num_elements for leaf in inst.shape.leaves()),
    _O.ALL_REDUCE_START: lambda inst, _operands: sum(leaf.num_elements for leaf in inst.shape.leaves()),
}
