from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.errors import HloError
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.text.notation import parse_shape

ARRAY_TYPES = [t for t in ElementType if t not in (ElementType.TUPLE, ElementType.INVALID)]


@st.composite
def arrays(draw: st.DrawFn) -> Shape:
    sizes = draw(st.lists(st.integers(0, 300), max_size=5))
    order = draw(st.permutations(range(len(sizes))))
    return Shape(draw(st.sampled_from(ARRAY_TYPES)), tuple(sizes), tuple(order))


SHAPES = st.recursive(
    arrays(),
    lambda inner: st.lists(inner, max_size=3).map(
        lambda members: Shape(ElementType.TUPLE, tuple_shapes=tuple(members))
    ),
    max_leaves=5,
)


@given(SHAPES)
def test_reading_back_what_is_printed(shape: Shape) -> None:
    assert parse_shape(str(shape)) == shape
    assert parse_shape(shape) is shape


def test_row_major_is_the_default() -> None:
    assert parse_shape("bf16[32, 12,192]").minor_to_major == (2, 1, 0)
    assert parse_shape(" f32[] ") == Shape(ElementType.F32)
    assert parse_shape("(f32[2], (s32[], pred[3]))").tuple_shapes[1].tuple_shapes[1].dimensions == (3,)


@pytest.mark.parametrize("text", ["", "f32", "f31[2]", "f32[2", "f32[a]", "f32[2]{0", "(f32[2]", "tuple[-1]"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(HloError, match="no shape"):
        parse_shape(text)
