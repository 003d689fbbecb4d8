"""The memory orders that a configurable node may be given: convolutions, dots and reshapes.

The options follow the recorded runs of the real compiler (a 3-D U-Net with 62 such nodes):

- for a convolution, each tensor independently has a given pair of axes in its two fastest places, in either
  sequence: batch and feature for output and input, the two features for the kernel. The other axes stay as in
  the default. In the gradient of a weight the pairs are the axes of the same roles.
- a dot likewise has the two fastest axes of each tensor in either sequence; batch axes stay outside.
- a reshape has any order of its three fastest axes, with the order of its input in which it is free; where it
  has to move data, row-major on both sides.

Results never have an axis of one or two elements in the lanes: the recorded runs have 4 features there, but
never a batch of 2. For operands they do list such orders, without effect; so operands have these options, but
no value is computed in such an order. Option 0 is the compiler's default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

from costbench.compiler.layout.choices import NodeLayouts
from costbench.compiler.layout.rules import fills_lanes
from costbench.compiler.tiled_memory import MinorToMajor, bitcast_layout, packed_row_major
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

CONFIGURABLE = frozenset({Opcode.CONVOLUTION, Opcode.DOT, Opcode.RESHAPE})
_PERMUTED = 3


def node_options(
    inst: Instruction, operands: Sequence[Shape], result: Shape, default: NodeLayouts
) -> tuple[NodeLayouts, ...]:
    """Returns the options of a configurable node without repetition, the default first.

    Args:
        inst: a convolution, dot or reshape.
        operands: shapes of its operands.
        result: shape of its result.
        default: the orders that the compiler chooses by default.
    """
    if inst.opcode is Opcode.RESHAPE:
        found = _reshape_options(operands[0], result, default)
    else:
        shapes = (result, *operands)
        orders = (default.output, *default.operands)
        pairs = _convolution_pairs(inst) if inst.convolution is not None else (None, None, None)
        results, *sources = (_pair_orders(*tensor) for tensor in zip(shapes, orders, pairs, strict=True))
        results = [order for order in results if order == default.output or fills_lanes(result, order)]
        found = (NodeLayouts(first, tuple(others)) for first, *others in product(results, *sources))
    return tuple(dict.fromkeys((default, *found)))


def _convolution_pairs(inst: Instruction) -> tuple[tuple[int, int], ...]:
    c = inst.convolution
    assert c is not None
    return (
        (c.output_feature, c.output_batch),
        (c.input_feature, c.input_batch),
        (c.kernel_output_feature, c.kernel_input_feature),
    )


def _pair_orders(shape: Shape, default: MinorToMajor, pair: tuple[int, int] | None) -> list[MinorToMajor]:
    """Returns the default and the orders with the pair in the two fastest places, the rest unchanged."""
    if shape.rank < 2:
        return [default]
    if pair is None:
        pair = (default[0], default[1])
    rest = tuple(axis for axis in default if axis not in pair)
    wanted = [(*sequence, *rest) for sequence in (pair, pair[::-1])]
    return [default, *(order for order in wanted if order != default)]


def _reshape_options(operand: Shape, result: Shape, default: NodeLayouts) -> Iterator[NodeLayouts]:
    packed = NodeLayouts(packed_row_major(result.dimensions), (packed_row_major(operand.dimensions),))
    if result.rank < 2 and operand.rank < 2:
        return
    order = packed.output
    fast = [axis for axis in order if result.dimensions[axis] > 1][:_PERMUTED]
    rest = tuple(axis for axis in order if axis not in fast)
    yield packed
    for chosen in permutations(fast):
        output = (*chosen, *rest)
        if len(output) < 2 or not fills_lanes(result, output):
            continue
        source = bitcast_layout(result.with_layout(output), operand.dimensions)
        if source is not None:
            yield NodeLayouts(output, (source,))
