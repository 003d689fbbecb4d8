"""Compiled lowering: turns many kernels of one computation, given by positions, into packed loop nests.

A kernel is lowered in three steps. Its iteration space follows from its anchor and from the axes that its
instructions allow to be cut. `propagate` finds the access of every value: which loops move its tile. Then the
copies between main memory and the scratchpad are listed, and with them the distinct boxes (tiles of a shape
under an access) whose size has to be computed for every tile size.
"""

from __future__ import annotations

from costbench.arrays import I64
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.lowering.arrays import (
    CONTRACTS,
    FIXED_SHIFT,
    FIXES_AXES,
    LOOPS,
    MISSING,
    NONE,
    OVER_CONTRACTION,
    TILED,
    UNTILED,
    WORKS,
    LoweringArrays,
)
from costbench.compiler.lowering.boxes import Lists, LoweredKernel, list_copies
from costbench.compiler.lowering.propagation import (
    MISSING_KEY,
    STAMP,
    Search,
    looked_up,
    propagate,
    start_kernel,
)
from costbench.compiler.lowering.writing import Nests, write_nest
from costbench.execution.compiled import compiled

SEVERAL_CONTRACTIONS = -1
"""In place of the iteration space of a kernel that cannot be lowered."""


@compiled
def lower_from(
    tables: LoweringArrays, search: Search, lists: Lists, kernels: KernelArrays, start: int, nests: Nests
) -> tuple[int, int]:
    """Lowers kernels from number `start` until a rule's result is missing or an array is too short.

    Returns:
        the number of the kernel that it stopped at, which is the number of kernels when all are done; and the
        missing key, 0 where an array of `lists` or `nests` was too short.
    """
    for k in range(start, len(nests.spaces)):
        inputs = kernels.inputs[kernels.inputs_offsets[k] : kernels.inputs_offsets[k + 1]]
        inside = kernels.instructions[kernels.instructions_offsets[k] : kernels.instructions_offsets[k + 1]]
        outputs = kernels.outputs[kernels.outputs_offsets[k] : kernels.outputs_offsets[k + 1]]
        search.state[MISSING_KEY] = 0
        start_kernel(search, inputs, inside)
        nests.ends[k + 1] = nests.ends[k]
        anchor, contraction, space = _space_of(tables, search, inside, outputs)
        nests.spaces[k] = space
        if space == SEVERAL_CONTRACTIONS:
            continue
        if space == MISSING:
            return k, int(search.state[MISSING_KEY])
        kernel = LoweredKernel(inputs, inside, outputs, anchor, contraction, space)
        # Each step runs only if the one before it found all that it needs.
        is_done = propagate(tables, search, inputs, inside, anchor, tables.spaces[space].access)
        is_done = is_done and list_copies(tables, search, lists, kernel)
        if not (is_done and write_nest(tables, search, lists, kernel, nests, k)):
            return k, int(search.state[MISSING_KEY])
    return len(nests.spaces), 0


@compiled
def _space_of(tables: LoweringArrays, search: Search, inside: I64, outputs: I64) -> tuple[int, int, int]:
    """Returns anchor, contraction or NONE, and iteration space of the kernel that is being lowered."""
    traits, contraction = 0, NONE
    for position in inside:
        own = tables.values[position].traits
        if own & CONTRACTS:
            if traits & CONTRACTS:
                return NONE, NONE, SEVERAL_CONTRACTIONS
            contraction = position
        traits |= own
    anchor = contraction if contraction != NONE else _anchor_of(tables, search, inside, outputs)
    bits = OVER_CONTRACTION if contraction != NONE else 0
    if tables.values[anchor].rank and traits & WORKS and not traits & UNTILED:
        bits |= TILED
        if traits & FIXES_AXES:
            bits |= _fixed_axes(tables, inside, anchor) << FIXED_SHIFT
    return anchor, contraction, looked_up(tables, search, LOOPS, anchor, bits)


@compiled
def _anchor_of(tables: LoweringArrays, search: Search, inside: I64, outputs: I64) -> int:
    """Returns the anchor of a kernel without contraction: its largest output, or the value that this one is
    reduced or scattered from.
    """
    best = NONE
    for position in outputs if len(outputs) else inside[-1:]:
        carrier = tables.values[position].carrier
        if carrier != NONE and search.made[carrier] == search.state[STAMP]:
            position = carrier
        anchor = tables.values[position].anchor
        if best == NONE or tables.values[anchor].num_elements > tables.values[best].num_elements:
            best = anchor
    return int(best)


@compiled
def _fixed_axes(tables: LoweringArrays, inside: I64, anchor: int) -> int:
    """Returns the bit set of the anchor's axes that a sort in the kernel needs whole."""
    fixed = 0
    for position in inside:
        if tables.values[position].rank == tables.values[anchor].rank:
            fixed |= tables.values[position].fixed_axes
    return fixed
