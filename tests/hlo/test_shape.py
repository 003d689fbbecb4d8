from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.errors import HloError
from costbench.hlo.shape import ElementType, Shape, parse_shape


@pytest.mark.parametrize(
    ("text", "elements", "size"),
    [
        ("f32[]", 1, 4),
        ("bf16[3,5]", 15, 30),
        ("pred[9]", 9, 9),
        ("s4[3]", 3, 2),
        ("u1[17]", 17, 3),
        ("c128[2]", 2, 32),
        ("f32[0,7]", 0, 0),
        ("f8e4m3fn[4]", 4, 4),
        ("token[]", 1, 0),
        ("(f32[2], (bf16[3], pred[]))", 0, 8 + 6 + 1),
    ],
)
def test_elements_and_bytes(text: str, elements: int, size: int) -> None:
    shape = parse_shape(text)
    assert (shape.num_elements, shape.num_bytes) == (elements, size)


def test_memory_order() -> None:
    shape = parse_shape("f32[2,3,5]{0,2,1}")
    assert shape.physical_dimensions == (3, 5, 2)
    assert shape.with_layout(()).layout == (2, 1, 0)
    assert shape.with_layout((2, 1, 0)).physical_dimensions == (2, 3, 5)


def test_leaves_of_nested_tuples() -> None:
    assert [str(s) for s in parse_shape("((f32[2]), s32[])").leaves()] == ["f32[2]{0}", "s32[]"]
    assert parse_shape("()").leaves() == ()
    assert len(parse_shape("f32[2]").leaves()) == 1


def test_every_element_type_has_a_size_and_a_kind() -> None:
    assert all(t.bits >= 0 for t in ElementType)
    floats = {t.name for t in ElementType if t.is_floating}
    assert {"F16", "BF16", "F32", "F64", "C64", "C128", "F8E5M2"} <= floats
    assert floats.isdisjoint({"S32", "PRED", "U8", "TUPLE", "TOKEN"})


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
