"""Fusion rules by opcode: which instructions may be fused with which, before any cost is considered.

Arguments, constants, tuples, calls and loops become no kernel and are never fused (`Kind.CONTROL`).
Instructions that cost next to nothing are duplicated into every kernel that reads them (`is_duplicated`):
scalar constants, iota, broadcasts, widening conversions, reshapes and transposes that move no data. The
others run in exactly one kernel, and `may_fuse` says into which of their readers they may be fused, as in
XLA: elementwise and data-picking instructions into nearly everything; reductions are fused with their
producers only; contractions, gathers and in-place updates with few producers and readers; sorts, copies and
the like with none.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import cache

from costbench.compiler.tiled_memory import is_bitcast
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode


class Kind(Enum):
    """Classes of instructions that fusion treats alike."""

    CONTROL = auto()
    ELEMENTWISE = auto()
    PICKING = auto()
    REDUCE = auto()
    WINDOW = auto()
    CONTRACTION = auto()
    GATHER = auto()
    SCATTER = auto()
    UPDATE = auto()
    ALONE = auto()


CONTROL_OPCODES = frozenset(
    {
        Opcode.PARAMETER,
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.WHILE,
        Opcode.CALL,
        Opcode.CONDITIONAL,
        Opcode.AFTER_ALL,
        Opcode.OPT_BARRIER,
        Opcode.ADD_DEPENDENCY,
        Opcode.DOMAIN,
        Opcode.PARTITION_ID,
        Opcode.REPLICA_ID,
    }
)
ELEMENTWISE_OPCODES = frozenset(
    {
        Opcode.ABS,
        Opcode.ACOS,
        Opcode.ACOSH,
        Opcode.ADD,
        Opcode.AND,
        Opcode.ASIN,
        Opcode.ASINH,
        Opcode.ATAN2,
        Opcode.ATANH,
        Opcode.BITCAST_CONVERT,
        Opcode.CBRT,
        Opcode.CEIL,
        Opcode.CLAMP,
        Opcode.COMPARE,
        Opcode.COMPLEX,
        Opcode.CONVERT,
        Opcode.COSH,
        Opcode.COSINE,
        Opcode.COUNT_LEADING_ZEROS,
        Opcode.DIVIDE,
        Opcode.ERF,
        Opcode.EXPONENTIAL,
        Opcode.EXPONENTIAL_MINUS_ONE,
        Opcode.FLOOR,
        Opcode.IMAG,
        Opcode.IS_FINITE,
        Opcode.LOG,
        Opcode.LOG_PLUS_ONE,
        Opcode.LOGISTIC,
        Opcode.MAP,
        Opcode.MAXIMUM,
        Opcode.MINIMUM,
        Opcode.MULTIPLY,
        Opcode.NEGATE,
        Opcode.NOT,
        Opcode.OR,
        Opcode.POPCNT,
        Opcode.POWER,
        Opcode.REAL,
        Opcode.REDUCE_PRECISION,
        Opcode.REMAINDER,
        Opcode.RNG,
        Opcode.ROUND_NEAREST_AFZ,
        Opcode.ROUND_NEAREST_EVEN,
        Opcode.RSQRT,
        Opcode.SELECT,
        Opcode.SHIFT_LEFT,
        Opcode.SHIFT_RIGHT_ARITHMETIC,
        Opcode.SHIFT_RIGHT_LOGICAL,
        Opcode.SIGN,
        Opcode.SINE,
        Opcode.SINH,
        Opcode.SQRT,
        Opcode.STOCHASTIC_CONVERT,
        Opcode.SUBTRACT,
        Opcode.TAN,
        Opcode.TANH,
        Opcode.XOR,
    }
)
_CHEAP = frozenset(
    {
        Opcode.ABS,
        Opcode.ADD,
        Opcode.AND,
        Opcode.BITCAST_CONVERT,
        Opcode.CEIL,
        Opcode.CLAMP,
        Opcode.COMPARE,
        Opcode.CONVERT,
        Opcode.FLOOR,
        Opcode.IS_FINITE,
        Opcode.MAXIMUM,
        Opcode.MINIMUM,
        Opcode.MULTIPLY,
        Opcode.NEGATE,
        Opcode.NOT,
        Opcode.OR,
        Opcode.REDUCE_PRECISION,
        Opcode.SELECT,
        Opcode.SHIFT_LEFT,
        Opcode.SHIFT_RIGHT_ARITHMETIC,
        Opcode.SHIFT_RIGHT_LOGICAL,
        Opcode.SIGN,
        Opcode.SUBTRACT,
        Opcode.XOR,
        Opcode.SLICE,
        Opcode.DYNAMIC_SLICE,
        Opcode.PAD,
        Opcode.REVERSE,
    }
)
_KINDS: dict[Opcode, Kind] = {
    **dict.fromkeys(CONTROL_OPCODES, Kind.CONTROL),
    **dict.fromkeys(ELEMENTWISE_OPCODES, Kind.ELEMENTWISE),
    Opcode.CONSTANT: Kind.CONTROL,
    Opcode.IOTA: Kind.ELEMENTWISE,
    Opcode.BROADCAST: Kind.ELEMENTWISE,
    Opcode.SLICE: Kind.PICKING,
    Opcode.DYNAMIC_SLICE: Kind.PICKING,
    Opcode.PAD: Kind.PICKING,
    Opcode.REVERSE: Kind.PICKING,
    Opcode.CONCATENATE: Kind.PICKING,
    Opcode.REDUCE: Kind.REDUCE,
    Opcode.REDUCE_WINDOW: Kind.WINDOW,
    Opcode.CONVOLUTION: Kind.CONTRACTION,
    Opcode.DOT: Kind.CONTRACTION,
    Opcode.GATHER: Kind.GATHER,
    Opcode.SCATTER: Kind.SCATTER,
    Opcode.DYNAMIC_UPDATE_SLICE: Kind.UPDATE,
}
ANCHORS = frozenset({Kind.WINDOW, Kind.CONTRACTION, Kind.GATHER, Kind.SCATTER, Kind.UPDATE, Kind.ALONE})
"""Kinds of which a kernel has at most one."""


def kind_of(inst: Instruction) -> Kind:
    """Returns the kind of an instruction; unlisted opcodes (sort, copy, custom call) never fuse."""
    return _KINDS.get(inst.opcode, Kind.ALONE)


def is_cheap(inst: Instruction) -> bool:
    """Returns whether recomputing the instruction costs less than anything else a kernel does."""
    return inst.opcode in _CHEAP


def is_duplicated(body: HloComputation, inst: Instruction, free: bool) -> bool:
    """Returns whether every kernel that reads the value recomputes it instead of reading it from memory.

    `free` says whether `inst` is a reshape, transpose or copy that moves no data (`is_free`).
    """
    if inst.opcode in (Opcode.IOTA, Opcode.BROADCAST):
        return True
    if inst.opcode is Opcode.CONSTANT:
        return inst.shape.num_elements == 1
    if inst.opcode is Opcode.CONVERT:
        source = body.instructions[inst.operands[0]].shape
        return inst.shape.element_type.bits > source.element_type.bits and inst.shape.rank > 0
    return free


def is_free(body: HloComputation, inst: Instruction) -> bool:
    """Returns whether the instruction is a reshape, transpose or copy that moves no data."""
    if inst.opcode not in _MAY_BE_FREE:
        return False
    return is_bitcast(inst, body.instructions[inst.operands[0]].shape)


_MAY_BE_FREE = frozenset({Opcode.BITCAST, Opcode.RESHAPE, Opcode.TRANSPOSE, Opcode.COPY})


@cache
def _taken(kind: Kind) -> frozenset[Kind]:
    """Returns the kinds of producers that may be fused into the kernel of an instruction of `kind`."""
    loop = frozenset({Kind.ELEMENTWISE, Kind.PICKING})
    return {
        Kind.ELEMENTWISE: loop,
        Kind.PICKING: loop,
        Kind.REDUCE: loop,
        Kind.CONTRACTION: loop,
        Kind.WINDOW: frozenset({Kind.ELEMENTWISE}),
        Kind.GATHER: frozenset({Kind.ELEMENTWISE}),
        Kind.SCATTER: frozenset({Kind.ELEMENTWISE}),
        Kind.UPDATE: loop,
    }.get(kind, frozenset())


def takes_clones(user: Instruction, place: int) -> bool:
    """Returns whether operand `place` of `user` may be a duplicated instruction inside the same kernel."""
    kind = kind_of(user)
    if kind is Kind.GATHER:
        return place == 1
    if kind is Kind.SCATTER:
        return place >= _scatter_inputs(user)
    if kind is Kind.UPDATE:
        return place > 0
    return kind not in (Kind.CONTROL, Kind.ALONE)


def may_fuse(producer: Instruction, user: Instruction, place: int, *, repeated: bool) -> bool:
    """Returns whether `producer` may run inside the kernel of `user`, which reads it as operand `place`.

    Args:
        producer: computes the value.
        user: reads it, directly or through duplicated instructions.
        place: which operand of `user` it is.
        repeated: whether a broadcast lies between, so that one element is read many times.
    """
    source, target = kind_of(producer), kind_of(user)
    if source not in _taken(target) or (repeated and not is_cheap(producer)):
        return False
    if producer.opcode is Opcode.CONCATENATE:
        return False
    if target is Kind.GATHER:
        return place == 1 and is_cheap(producer)
    if target is Kind.SCATTER:
        inputs = _scatter_inputs(user)
        return place > inputs and is_cheap(producer)
    if target is Kind.UPDATE:
        return place == 1
    if target is Kind.WINDOW:
        return place == 0 and is_cheap(producer)
    if user.opcode is Opcode.DYNAMIC_SLICE:
        return place == 0
    return True


def _scatter_inputs(inst: Instruction) -> int:
    """Returns the number of arrays scattered into: operands are inputs, indices, updates."""
    return (len(inst.operands) - 1) // 2
