"""Classifies kernels by their opcodes, so that results can be broken down by kind of kernel."""

from __future__ import annotations

from collections.abc import Iterable

from costbench.compiler.kernel import Kernel
from costbench.hlo.opcode import Opcode

_CONTRACTIONS = frozenset({Opcode.CONVOLUTION, Opcode.DOT, Opcode.RAGGED_DOT})
_REDUCTIONS = frozenset({Opcode.REDUCE, Opcode.REDUCE_WINDOW, Opcode.SELECT_AND_SCATTER, Opcode.SCAN})
_MOVES = frozenset(
    {
        Opcode.BITCAST,
        Opcode.BITCAST_CONVERT,
        Opcode.BROADCAST,
        Opcode.CONCATENATE,
        Opcode.CONSTANT,
        Opcode.COPY,
        Opcode.DYNAMIC_SLICE,
        Opcode.DYNAMIC_UPDATE_SLICE,
        Opcode.GATHER,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.IOTA,
        Opcode.PAD,
        Opcode.RESHAPE,
        Opcode.REVERSE,
        Opcode.SCATTER,
        Opcode.SLICE,
        Opcode.SORT,
        Opcode.TRANSPOSE,
        Opcode.TUPLE,
    }
)


def kind_of(opcodes: Iterable[int]) -> str:
    """Return the kind of a kernel, from the opcodes of its own instructions.

    The kind is `contraction` if there is a dot or convolution among them, else `reduction` if values are
    reduced, else `data movement` if no values are computed, else `elementwise`.
    """
    found = set(opcodes)
    if found & _CONTRACTIONS:
        return "contraction"
    if found & _REDUCTIONS:
        return "reduction"
    return "data movement" if found <= _MOVES else "elementwise"


def kernel_kind(kernel: Kernel) -> str:
    """Return the kind of a kernel; see `kind_of`."""
    return kind_of(kernel.instruction(position).opcode for position in kernel.instructions)
