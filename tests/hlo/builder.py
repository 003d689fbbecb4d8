"""Builds small HLO programs in a few lines, for tests.

Values are positions of instructions. Shapes are written as XLA prints them; without a memory order they are
row-major. The result shapes of elementwise instructions, dots, convolutions, reductions and the like are
inferred; for other instructions the caller gives them.

>>> b = ModuleBuilder("example")
>>> x = b.parameter("f32[32,128]")
>>> w = b.parameter("f32[128,64]")
>>> y = b.dot(b.op("tanh", x), w)
>>> str(b.build(y).entry_computation.root_instruction.shape)
'f32[32,64]{1,0}'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from costbench.errors import HloError
from costbench.hlo.instruction import (
    ConvolutionDimensions,
    DotDimensions,
    Instruction,
    PaddingDimension,
    SliceDimension,
    WindowDimension,
)
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape, parse_shape


class ComputationBuilder:
    """Instructions of one computation, in the order they are added."""

    def __init__(self, name: str, finished: list[HloComputation]) -> None:
        self._name = name
        self._finished = finished
        self._instructions: list[Instruction] = []

    def shape(self, value: int) -> Shape:
        """Returns the shape of a value."""
        return self._instructions[value].shape

    def parameter(self, shape: str | Shape) -> int:
        """Adds the next parameter."""
        number = sum(inst.opcode is Opcode.PARAMETER for inst in self._instructions)
        return self.op("parameter", shape=shape, parameter_number=number)

    def constant(self, shape: str | Shape) -> int:
        """Adds a constant without contents."""
        return self.op("constant", shape=shape)

    def op(self, opcode: str, *operands: int, shape: str | Shape | None = None, **attributes: Any) -> int:
        """Adds an instruction of any opcode; `attributes` are fields of `Instruction`.

        Without `shape` the result has the shape of the last operand that is no scalar (of the first operand
        if all are), with element type pred for comparisons.
        """
        kind = Opcode.from_name(opcode)
        if shape is None:
            shaped = [self.shape(o) for o in operands]
            if not shaped:
                raise HloError(f"{opcode} without operands needs a shape")
            result = next((s for s in reversed(shaped) if s.dimensions or s.is_tuple), shaped[0])
            if kind in (Opcode.COMPARE, Opcode.IS_FINITE):
                result = replace(result, element_type=ElementType.PRED)
        else:
            result = parse_shape(shape)
        name = f"{opcode}.{len(self._instructions)}"
        self._instructions.append(Instruction(name, kind, result, tuple(operands), **attributes))
        return len(self._instructions) - 1

    def broadcast(self, value: int, shape: str | Shape, dimensions: Sequence[int] = ()) -> int:
        """Adds a broadcast of `value`, whose axis i becomes axis `dimensions[i]`."""
        return self.op("broadcast", value, shape=shape, dimensions=tuple(dimensions))

    def reshape(self, value: int, shape: str | Shape) -> int:
        """Adds a reshape: the same elements in other dimensions."""
        return self.op("reshape", value, shape=shape)

    def convert(self, value: int, element_type: str) -> int:
        """Adds a conversion to another element type."""
        return self.op(
            "convert", value, shape=replace(self.shape(value), element_type=ElementType[element_type.upper()])
        )

    def transpose(self, value: int, dimensions: Sequence[int]) -> int:
        """Adds a row-major transpose: axis i of the result is axis `dimensions[i]` of `value`."""
        return self.op("transpose", value, shape=self._like(value, dimensions), dimensions=tuple(dimensions))

    def slice_of(self, value: int, starts: Sequence[int], limits: Sequence[int]) -> int:
        """Adds a slice of the elements from `starts` (inclusive) to `limits` (exclusive)."""
        ranges = tuple(SliceDimension(s, e, 1) for s, e in zip(starts, limits, strict=True))
        return self.op(
            "slice",
            value,
            shape=_row_major(self.shape(value), [r.limit - r.start for r in ranges]),
            slices=ranges,
        )

    def pad(self, value: int, filler: int, padding: Sequence[tuple[int, int, int]]) -> int:
        """Adds a pad with `filler` by (low, high, interior) along each axis of `value`."""
        edges = tuple(PaddingDimension(*edge) for edge in padding)
        sizes = [
            size + p.low + p.high + max(0, size - 1) * p.interior
            for size, p in zip(self.shape(value).dimensions, edges, strict=True)
        ]
        return self.op("pad", value, filler, shape=_row_major(self.shape(value), sizes), padding=edges)

    def concatenate(self, values: Sequence[int], axis: int) -> int:
        """Concatenates values along an axis."""
        sizes = list(self.shape(values[0]).dimensions)
        sizes[axis] = sum(self.shape(value).dimensions[axis] for value in values)
        return self.op(
            "concatenate", *values, shape=_row_major(self.shape(values[0]), sizes), dimensions=(axis,)
        )

    def dot(
        self,
        lhs: int,
        rhs: int,
        contracting: tuple[int, int] | None = None,
        batch: Sequence[tuple[int, int]] = (),
    ) -> int:
        """Adds a dot; by default it contracts the last axis of `lhs` and the first non-batch one of `rhs`."""
        left, right = self.shape(lhs), self.shape(rhs)
        a, b = contracting or (left.rank - 1, len(batch))
        numbers = DotDimensions((a,), (b,), tuple(p[0] for p in batch), tuple(p[1] for p in batch))
        sizes = [left.dimensions[axis] for axis in numbers.lhs_batch]
        sizes += [n for axis, n in enumerate(left.dimensions) if axis not in (a, *numbers.lhs_batch)]
        sizes += [n for axis, n in enumerate(right.dimensions) if axis not in (b, *numbers.rhs_batch)]
        return self.op("dot", lhs, rhs, shape=_row_major(left, sizes), dot=numbers)

    def convolution(
        self,
        lhs: int,
        rhs: int,
        labels: str = "b01f_01io->b01f",
        windows: Sequence[WindowDimension] = (),
        groups: Mapping[str, int] | None = None,
    ) -> int:
        """Adds a convolution.

        Args:
            lhs: input.
            rhs: kernel.
            labels: XLA's dimension labels.
            windows: one per spatial dimension; by default the kernel's size, stride 1, no padding.
            groups: `feature_group_count`, `batch_group_count`; 1 by default.
        """
        left, right = self.shape(lhs), self.shape(rhs)
        numbers = convolution_numbers(labels)
        windows = tuple(windows) or tuple(
            WindowDimension(right.dimensions[a]) for a in numbers.kernel_spatial
        )
        counts = {"feature_group_count": 1, "batch_group_count": 1} | dict(groups or {})
        sizes = [0] * left.rank
        sizes[numbers.output_batch] = left.dimensions[numbers.input_batch] // counts["batch_group_count"]
        sizes[numbers.output_feature] = right.dimensions[numbers.kernel_output_feature]
        for spatial, dimension in enumerate(windows):
            extent = left.dimensions[numbers.input_spatial[spatial]]
            sizes[numbers.output_spatial[spatial]] = dimension.output_extent(extent)
        return self.op(
            "convolution",
            lhs,
            rhs,
            shape=_row_major(left, sizes),
            window=windows,
            convolution=numbers,
            feature_group_count=counts["feature_group_count"],
            batch_group_count=counts["batch_group_count"],
        )

    def reduce(self, value: int, dimensions: Sequence[int], kind: str = "add") -> int:
        """Adds a reduction of `value` by `kind` (an opcode) over some axes, starting from a constant."""
        source = self.shape(value)
        start = self.constant(_row_major(source, []))
        sizes = [size for axis, size in enumerate(source.dimensions) if axis not in dimensions]
        called = (self.function(kind, source),)
        return self.op(
            "reduce",
            value,
            start,
            shape=_row_major(source, sizes),
            dimensions=tuple(dimensions),
            called=called,
        )

    def reduce_window(self, value: int, windows: Sequence[WindowDimension], kind: str = "add") -> int:
        """Adds a reduction of `value` by `kind` inside each window; one window dimension per axis."""
        source = self.shape(value)
        start = self.constant(_row_major(source, []))
        sizes = [w.output_extent(n) for w, n in zip(windows, source.dimensions, strict=True)]
        return self.op(
            "reduce-window",
            value,
            start,
            shape=_row_major(source, sizes),
            window=tuple(windows),
            called=(self.function(kind, source),),
        )

    def select_and_scatter(self, value: int, source: int, windows: Sequence[WindowDimension]) -> int:
        """Adds the gradient of max pooling: puts elements of `source` where their window of `value` peaks."""
        shape = self.shape(value)
        start = self.constant(_row_major(shape, []))
        called = (self.function("compare", shape), self.function("add", shape))
        return self.op(
            "select-and-scatter", value, source, start, shape=shape, window=tuple(windows), called=called
        )

    def make_tuple(self, *values: int) -> int:
        """Adds a tuple of values."""
        members = tuple(self.shape(value) for value in values)
        return self.op("tuple", *values, shape=Shape(ElementType.TUPLE, tuple_shapes=members))

    def get(self, value: int, index: int) -> int:
        """Adds a get-tuple-element: a member of a tuple."""
        return self.op(
            "get-tuple-element", value, shape=self.shape(value).tuple_shapes[index], tuple_index=index
        )

    def fusion(self, body: Callable[[ComputationBuilder], int], *operands: int, kind: str = "kLoop") -> int:
        """Adds a fusion; `body` adds parameters and instructions to its own builder and returns the root."""
        callee = self.computation(f"fused.{len(self._finished)}", body)
        shape = self._finished[callee].root_instruction.shape
        return self.op("fusion", *operands, shape=shape, called=(callee,), fusion_kind=kind)

    def while_(
        self,
        condition: Callable[[ComputationBuilder], int],
        body: Callable[[ComputationBuilder], int],
        start: int,
        trip_count: int | None = None,
    ) -> int:
        """Adds a while loop; both callables add their one parameter themselves and return the root."""
        called = (
            self.computation(f"body.{len(self._finished)}", body),
            self.computation(f"condition.{len(self._finished)}", condition),
        )
        return self.op("while", start, shape=self.shape(start), called=called, trip_count=trip_count)

    def function(self, kind: str, like: Shape) -> int:
        """Returns a computation of two scalars, as a reduction applies; created once per kind and type."""
        name = f"{kind}.{like.element_type.name.lower()}"
        for position, computation in enumerate(self._finished):
            if computation.name == name:
                return position
        scalar = Shape(like.element_type)

        def body(b: ComputationBuilder) -> int:
            direction = {"comparison_direction": "GE"} if kind == "compare" else {}
            return b.op(kind, b.parameter(scalar), b.parameter(scalar), **direction)

        return self.computation(name, body)

    def computation(self, name: str, body: Callable[[ComputationBuilder], int]) -> int:
        """Adds another computation to the module; returns its position."""
        inner = ComputationBuilder(name, self._finished)
        root = body(inner)
        self._finished.append(HloComputation(name, tuple(inner._instructions), root))
        return len(self._finished) - 1

    def _like(self, value: int, axes: Sequence[int]) -> Shape:
        shape = self.shape(value)
        return _row_major(shape, [shape.dimensions[axis] for axis in axes])


class ModuleBuilder(ComputationBuilder):
    """A module; its own instructions are those of the entry computation."""

    def __init__(self, name: str = "module") -> None:
        super().__init__("main", [])
        self._module_name = name

    def build(self, *roots: int) -> HloModule:
        """Returns the verified module with root `roots`: one value, a tuple of several, or the last added."""
        root = self.make_tuple(*roots) if len(roots) > 1 else (*roots, len(self._instructions) - 1)[0]
        entry = HloComputation(self._name, tuple(self._instructions), root)
        return HloModule(self._module_name, (*self._finished, entry), len(self._finished)).verify()


def _row_major(like: Shape, sizes: Sequence[int]) -> Shape:
    return Shape(like.element_type, tuple(sizes), tuple(range(len(sizes) - 1, -1, -1)))


def window(
    sizes: Sequence[int],
    strides: Sequence[int] = (),
    padding: Sequence[tuple[int, int]] = (),
    window_dilation: Sequence[int] = (),
    base_dilation: Sequence[int] = (),
) -> tuple[WindowDimension, ...]:
    """Returns window dimensions; arguments left out are neutral in every dimension."""
    rank = len(sizes)
    columns = zip(
        sizes,
        strides or (1,) * rank,
        padding or ((0, 0),) * rank,
        window_dilation or (1,) * rank,
        base_dilation or (1,) * rank,
        strict=True,
    )
    return tuple(WindowDimension(n, s, low, high, w, b) for n, s, (low, high), w, b in columns)


def convolution_numbers(labels: str) -> ConvolutionDimensions:
    """Parses dimension numbers from XLA's labels, such as `b01f_01io->b01f`.

    Raises:
        HloError: if they are not written like that.
    """
    match = re.match(r"^([bf\d]+)_([io\d]+)->([bf\d]+)$", labels)
    if match is None:
        raise HloError(f"no dimension labels: {labels!r}", expected="e.g. b01f_01io->b01f")
    source, kernel, output = match.groups()
    spatial = [str(axis) for axis in range(len(source) - 2)]
    return ConvolutionDimensions(
        input_batch=source.index("b"),
        input_feature=source.index("f"),
        input_spatial=tuple(source.index(axis) for axis in spatial),
        kernel_input_feature=kernel.index("i"),
        kernel_output_feature=kernel.index("o"),
        kernel_spatial=tuple(kernel.index(axis) for axis in spatial),
        output_batch=output.index("b"),
        output_feature=output.index("f"),
        output_spatial=tuple(output.index(axis) for axis in spatial),
    )
