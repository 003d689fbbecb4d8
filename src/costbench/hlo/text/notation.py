"""Parses XLA's notation for shapes, windows and convolution dimensions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from costbench.errors import HloError
from costbench.hlo.instruction import ConvolutionDimensions, WindowDimension
from costbench.hlo.shape import ElementType, Shape

_ARRAY = re.compile(r"^(?P<type>[a-z0-9]+)\[(?P<sizes>[\d,\s]*)\](?:\{(?P<order>[\d,\s]*)\})?$")


def parse_shape(text: str | Shape) -> Shape:
    """Parses a shape in XLA's notation: `f32[]`, `bf16[32,12]{0,1}`, `(f32[2], s32[])`; default row-major.

    Raises:
        HloError: if it is not written like that.
    """
    if isinstance(text, Shape):
        return text
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        return Shape(ElementType.TUPLE, tuple_shapes=tuple(parse_shape(m) for m in _members(text[1:-1])))
    match = _ARRAY.match(text)
    if match is None or match["type"].upper() not in ElementType.__members__:
        raise HloError(f"no shape: {text!r}", expected="e.g. f32[32,128]{1,0}")
    sizes = tuple(int(size) for size in match["sizes"].split(",") if size.strip())
    shape = Shape(ElementType[match["type"].upper()], sizes)
    order = tuple(int(axis) for axis in (match["order"] or "").split(",") if axis.strip())
    return shape.with_layout(order or shape.layout)


def _members(text: str) -> list[str]:
    depth, start, members = 0, 0, []
    for place, letter in enumerate(text):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "," and depth == 0:
            members.append(text[start:place])
            start = place + 1
    return [*members, text[start:]] if text.strip() else []


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
