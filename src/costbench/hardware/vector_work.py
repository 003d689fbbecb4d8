"""What each operation costs the vector unit, per register of 8 x 128 elements.

The table states operation counts; what an operation takes in cycles is the chip's. Sources: instruction
counts of the usual expansions (a division is a reciprocal and two refinements, a power is a logarithm and
an exponential, ...); data movement counts the rows or registers moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from costbench.errors import UnsupportedKernelError
from costbench.hlo.opcode import Opcode


@dataclass(frozen=True, slots=True)
class VectorCost:
    """Operations on one register of the result: simple ones, transcendentals, registers of random bits."""

    simple: float = 0.0
    transcendental: float = 0.0
    random: float = 0.0


_FREE = VectorCost()
_ONE = VectorCost(simple=1.0)

_SIMPLE = [
    "abs",
    "add",
    "and",
    "ceil",
    "clamp",
    "compare",
    "convert",
    "copy",
    "floor",
    "imag",
    "iota",
    "is-finite",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "not",
    "or",
    "popcnt",
    "real",
    "reduce-precision",
    "round-nearest-afz",
    "round-nearest-even",
    "select",
    "shift-left",
    "shift-right-arithmetic",
    "shift-right-logical",
    "sign",
    "subtract",
    "xor",
    "bitcast-convert",
    "count-leading-zeros",
    "complex",
    "reverse",
    "slice",
    "pad",
    "concatenate",
    "dynamic-slice",
    "dynamic-update-slice",
    "gather",
    "scatter",
    "transpose",
    "set-dimension-size",
]

VECTOR_COSTS: dict[Opcode, VectorCost] = {
    **{Opcode.from_name(name): _ONE for name in _SIMPLE},
    **dict.fromkeys(
        (
            Opcode.PARAMETER,
            Opcode.CONSTANT,
            Opcode.TUPLE,
            Opcode.GET_TUPLE_ELEMENT,
            Opcode.BITCAST,
            Opcode.RESHAPE,
            Opcode.BROADCAST,
            Opcode.OPT_BARRIER,
            Opcode.AFTER_ALL,
            Opcode.GET_DIMENSION_SIZE,
            Opcode.PARTITION_ID,
            Opcode.REPLICA_ID,
            Opcode.CONVOLUTION,
            Opcode.DOT,
        ),
        _FREE,
    ),
    Opcode.DIVIDE: VectorCost(simple=3.0, transcendental=1.0),
    Opcode.REMAINDER: VectorCost(simple=5.0, transcendental=1.0),
    Opcode.EXPONENTIAL: VectorCost(simple=2.0, transcendental=1.0),
    Opcode.EXPONENTIAL_MINUS_ONE: VectorCost(simple=6.0, transcendental=1.0),
    Opcode.LOG: VectorCost(simple=2.0, transcendental=1.0),
    Opcode.LOG_PLUS_ONE: VectorCost(simple=6.0, transcendental=1.0),
    Opcode.LOGISTIC: VectorCost(simple=3.0, transcendental=2.0),
    Opcode.TANH: VectorCost(simple=2.0, transcendental=1.0),
    Opcode.TAN: VectorCost(simple=20.0, transcendental=1.0),
    Opcode.SINE: VectorCost(simple=16.0),
    Opcode.COSINE: VectorCost(simple=16.0),
    Opcode.ATAN2: VectorCost(simple=24.0, transcendental=1.0),
    Opcode.SQRT: VectorCost(simple=2.0, transcendental=1.0),
    Opcode.RSQRT: VectorCost(simple=2.0, transcendental=1.0),
    Opcode.CBRT: VectorCost(simple=8.0, transcendental=2.0),
    Opcode.POWER: VectorCost(simple=6.0, transcendental=2.0),
    Opcode.ERF: VectorCost(simple=18.0),
    Opcode.RNG: VectorCost(simple=3.0, random=1.0),
    Opcode.RNG_BIT_GENERATOR: VectorCost(random=1.0),
    Opcode.STOCHASTIC_CONVERT: VectorCost(simple=3.0),
    # Priced by their own shapes in compute.py; named here so that the table covers what can be lowered.
    Opcode.REDUCE: _FREE,
    Opcode.REDUCE_WINDOW: _FREE,
    Opcode.SELECT_AND_SCATTER: _FREE,
    Opcode.SORT: _FREE,
    Opcode.TOPK: _FREE,
    Opcode.FFT: _FREE,
    Opcode.CHOLESKY: _FREE,
    Opcode.TRIANGULAR_SOLVE: _FREE,
    Opcode.MAP: _ONE,
}


def vector_cost(opcode: Opcode) -> VectorCost:
    """The table's entry.

    Raises:
        UnsupportedKernelError: for an operation the machine cannot run; never a silent zero.
    """
    try:
        return VECTOR_COSTS[opcode]
    except KeyError:
        raise UnsupportedKernelError(
            f"the machine has no routine for {opcode.xla_name!r}",
            expected="one of " + ", ".join(sorted(o.xla_name for o in VECTOR_COSTS)),
        ) from None
