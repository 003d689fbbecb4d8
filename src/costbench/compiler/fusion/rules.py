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
from typing import NamedTuple

from costbench.compiler.tiled_memory import is_bitcast
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.shape import Shape


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


CONTROL_OPCODES = opcodes(
    "parameter tuple get-tuple-element while call conditional after-all opt-barrier add-dependency domain "
    "partition-id replica-id"
)
ELEMENTWISE_OPCODES = opcodes(
    "abs acos acosh add and asin asinh atan2 atanh bitcast-convert cbrt ceil clamp compare complex convert "
    "cosh cosine count-leading-zeros divide erf exponential exponential-minus-one floor imag is-finite log "
    "log-plus-one logistic map maximum minimum multiply negate not or popcnt power real reduce-precision "
    "remainder rng round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic "
    "shift-right-logical sign sine sinh sqrt stochastic-convert subtract tan tanh xor"
)
_CHEAP = opcodes(
    "abs add and bitcast-convert ceil clamp compare convert floor is-finite maximum minimum multiply negate "
    "not or reduce-precision select shift-left shift-right-arithmetic shift-right-logical sign subtract xor "
    "slice dynamic-slice pad reverse"
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


def kind_of(opcode: Opcode) -> Kind:
    """Returns the kind of an instruction; unlisted opcodes (sort, copy, custom call) never fuse."""
    return _KINDS.get(opcode, Kind.ALONE)


def is_cheap(opcode: Opcode) -> bool:
    """Returns whether recomputing the instruction costs less than anything else a kernel does."""
    return opcode in _CHEAP


def is_duplicated(inst: Instruction, operand: Shape | None) -> bool:
    """Returns whether every kernel that reads the value recomputes it instead of reading it from memory.

    Args:
        inst: the instruction that computes the value.
        operand: shape of its first operand, if it has one.
    """
    if inst.opcode in (Opcode.IOTA, Opcode.BROADCAST):
        return True
    if inst.opcode is Opcode.CONSTANT:
        return inst.shape.num_elements == 1
    if inst.opcode is Opcode.CONVERT and operand is not None:
        return inst.shape.element_type.bits > operand.element_type.bits and inst.shape.rank > 0
    return is_free(inst, operand)


_MAY_BE_FREE = frozenset({Opcode.BITCAST, Opcode.RESHAPE, Opcode.TRANSPOSE, Opcode.COPY})


def is_free(inst: Instruction, operand: Shape | None) -> bool:
    """Returns whether the instruction is a reshape, transpose or copy that moves no data.

    `operand` is the shape of its first operand.
    """
    return inst.opcode in _MAY_BE_FREE and operand is not None and is_bitcast(inst, operand)


_LOOP = frozenset({Kind.ELEMENTWISE, Kind.PICKING})
_PRODUCER_KINDS = {
    Kind.ELEMENTWISE: _LOOP,
    Kind.PICKING: _LOOP,
    Kind.REDUCE: _LOOP,
    Kind.CONTRACTION: _LOOP,
    Kind.WINDOW: frozenset({Kind.ELEMENTWISE}),
    Kind.GATHER: frozenset({Kind.ELEMENTWISE}),
    Kind.SCATTER: frozenset({Kind.ELEMENTWISE}),
    Kind.UPDATE: _LOOP,
}
"""Kinds of producers that may be fused into the kernel of an instruction of a kind; others take none."""


class Port(NamedTuple):
    """An operand of a reader: all that rules about a producer and its reader depend on.

    Attributes:
        opcode: opcode of the reader.
        num_operands: number of its operands.
        number: which of them it is, from 0.
    """

    opcode: Opcode
    num_operands: int
    number: int


def takes_clones(port: Port) -> bool:
    """Returns whether the operand may be a duplicated instruction inside the same kernel."""
    kind = kind_of(port.opcode)
    if kind is Kind.GATHER:
        return port.number == 1
    if kind is Kind.SCATTER:
        return port.number >= _scatter_inputs(port)
    if kind is Kind.UPDATE:
        return port.number > 0
    return kind not in (Kind.CONTROL, Kind.ALONE)


def may_fuse(producer: Opcode, port: Port, *, repeated: bool) -> bool:
    """Returns whether an instruction may run inside the kernel of one that reads it.

    Args:
        producer: opcode of the instruction that computes the value.
        port: operand as which it is read, directly or through duplicated instructions.
        repeated: whether a broadcast lies between, so that one element is read many times.
    """
    reader = kind_of(port.opcode)
    if kind_of(producer) not in _PRODUCER_KINDS.get(reader, ()) or (repeated and not is_cheap(producer)):
        return False
    if producer is Opcode.CONCATENATE:
        return False
    if reader is Kind.GATHER:
        return port.number == 1 and is_cheap(producer)
    if reader is Kind.SCATTER:
        return port.number > _scatter_inputs(port) and is_cheap(producer)
    if reader is Kind.UPDATE:
        return port.number == 1
    if reader is Kind.WINDOW:
        return port.number == 0 and is_cheap(producer)
    if port.opcode is Opcode.DYNAMIC_SLICE:
        return port.number == 0
    return True


def _scatter_inputs(port: Port) -> int:
    """Returns the number of arrays scattered into: operands are inputs, indices, updates."""
    return (port.num_operands - 1) // 2
