"""Parses XLA's notation for shapes."""

from __future__ import annotations

import re

from costbench.errors import HloError
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
