"""Verifies one instruction: numbers of operands and computations, its shape, then the rule of its opcode.

Rules are those of XLA's shape inference and HLO verifier (`xla/service/shape_inference.cc`,
`xla/service/hlo_verifier.cc`), layouts and floating-point precision left out. Opcodes without a rule here
(custom calls, infeeds, sends) are not checked: no later code indexes by their attributes.
"""

from __future__ import annotations

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.verify import calls, elements, windows
from costbench.hlo.verify.problems import Check, Context, Problem, check_count
from costbench.limits import MAX_RANK

_O = Opcode
_MAX_BITS = 1 << 63
_OPAQUE = frozenset({ElementType.TOKEN, ElementType.OPAQUE})
_CHECKS: dict[Opcode, Check] = {**elements.CHECKS, **windows.CHECKS, **calls.CHECKS}
_NUM_OPERANDS: dict[Opcode, int] = {
    **dict.fromkeys((_O.PARAMETER, _O.CONSTANT, _O.IOTA, _O.PARTITION_ID, _O.REPLICA_ID), 0),
    **dict.fromkeys(elements.UNARY, 1),
    **dict.fromkeys(elements.BINARY, 2),
    **dict.fromkeys((_O.CONVERT, _O.BITCAST_CONVERT, _O.IS_FINITE, _O.BITCAST, _O.COPY, _O.RESHAPE), 1),
    **dict.fromkeys((_O.BROADCAST, _O.TRANSPOSE, _O.SLICE, _O.REVERSE, _O.GET_TUPLE_ELEMENT), 1),
    **dict.fromkeys((_O.WHILE, _O.OPT_BARRIER, _O.DOMAIN, _O.FFT, _O.CHOLESKY, _O.GET_DIMENSION_SIZE), 1),
    **dict.fromkeys((_O.RNG_BIT_GENERATOR, _O.TOPK), 1),
    **dict.fromkeys((_O.COMPARE, _O.STOCHASTIC_CONVERT, _O.PAD, _O.CONVOLUTION, _O.DOT, _O.GATHER), 2),
    **dict.fromkeys((_O.TRIANGULAR_SOLVE, _O.SET_DIMENSION_SIZE, _O.ADD_DEPENDENCY), 2),
    **dict.fromkeys((_O.SELECT, _O.CLAMP, _O.SELECT_AND_SCATTER, _O.RAGGED_DOT), 3),
    **dict.fromkeys((_O.ASYNC_UPDATE, _O.ASYNC_DONE, _O.COPY_START, _O.COPY_DONE, _O.ALL_REDUCE_DONE), 1),
    **dict.fromkeys((_O.ALL_GATHER_DONE, _O.COLLECTIVE_PERMUTE_DONE), 1),
    _O.RAGGED_ALL_TO_ALL: 6,
}
_MIN_OPERANDS: dict[Opcode, int] = {
    **dict.fromkeys((_O.CONCATENATE, _O.SORT, _O.MAP, _O.DYNAMIC_SLICE, _O.CONDITIONAL), 1),
    **dict.fromkeys((_O.SCAN, _O.ALL_GATHER_START, _O.COLLECTIVE_PERMUTE_START, _O.ALL_REDUCE_START), 1),
    **dict.fromkeys((_O.REDUCE, _O.REDUCE_WINDOW, _O.DYNAMIC_UPDATE_SLICE), 2),
    _O.SCATTER: 3,
}
_NUM_CALLED: dict[Opcode, int] = {
    **dict.fromkeys((_O.FUSION, _O.CALL, _O.REDUCE, _O.REDUCE_WINDOW, _O.SCATTER, _O.SORT, _O.MAP), 1),
    **dict.fromkeys((_O.ASYNC_START, _O.SCAN), 1),
    **dict.fromkeys((_O.WHILE, _O.SELECT_AND_SCATTER), 2),
}
_TAKES_TUPLES = opcodes("bitcast copy opt-barrier domain add-dependency scatter reduce reduce-window")
_ARRAYS_ONLY = {*elements.CHECKS, *windows.CHECKS, _O.RNG} - _TAKES_TUPLES


def find_problem(inst: Instruction, context: Context) -> Problem | None:
    """Returns what is wrong with an instruction in its computation, or None."""
    problem = _shape_problem(inst.shape) or _count_problem(inst, context)
    if problem is not None:
        return problem
    if inst.opcode in _ARRAYS_ONLY:
        for shape in (inst.shape, *context.operands):
            if shape.is_tuple:
                return Problem(f"{inst.opcode.xla_name} of a tuple {shape}", "an array")
    check = _CHECKS.get(inst.opcode)
    return None if check is None else check(inst, context)


def _count_problem(inst: Instruction, context: Context) -> Problem | None:
    name, operands, called = inst.opcode.xla_name, len(context.operands), len(context.called)
    min_operands = _MIN_OPERANDS.get(inst.opcode, 0)
    if operands < min_operands:
        return Problem(f"operands of {name}: {operands}", f"{min_operands} or more")
    return check_count(
        f"operands of {name}", operands, _NUM_OPERANDS.get(inst.opcode, operands)
    ) or check_count(f"computations that {name} calls", called, _NUM_CALLED.get(inst.opcode, called))


def _shape_problem(shape: Shape) -> Problem | None:
    if shape.is_tuple:
        if shape.dimensions:
            return Problem(f"tuple with extents {shape.dimensions}", "members only")
        for member in shape.tuple_shapes:
            problem = _shape_problem(member)
            if problem is not None:
                return problem
        return None
    if shape.tuple_shapes:
        return Problem(f"array {shape} with members", "a tuple, or no members")
    if shape.rank > MAX_RANK:
        return Problem(f"shape of {shape.rank} axes", f"at most {MAX_RANK}")
    bits = shape.element_type.bits
    for size in shape.dimensions:
        if size < 0:
            return Problem(f"shape {shape}", "extents of 0 or more")
        bits *= max(1, size)
    if bits >= _MAX_BITS:
        return Problem(f"shape {shape}", "less than 2^63 bits")
    if not bits and shape.element_type not in _OPAQUE:
        return Problem(f"shape {shape}", "a known element type")
    order = shape.minor_to_major
    if order and (len(order) != shape.rank or set(order) != set(range(shape.rank))):
        return Problem(f"layout {order} of {shape.rank} axes", "a permutation of them")
    return None
