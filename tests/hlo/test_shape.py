from __future__ import annotations

import pytest

from costbench.hlo.shape import ElementType
from costbench.hlo.text.notation import parse_shape


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
