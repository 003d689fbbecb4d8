from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.tiled_memory import (
    bitcast_layout,
    compact_layout,
    is_bitcast,
    matching_axes,
    native_tile,
    native_units,
    padded_bytes,
    padded_elements,
    reshape_is_free,
)
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape, parse_shape


@pytest.mark.parametrize(
    ("shape", "tile", "elements"),
    [
        ("f32[]", (), 1),
        ("f32[1025]{0}", (1024,), 2048),
        ("f32[9,129]{1,0}", (8, 128), 16 * 256),
        ("f32[9,129]{0,1}", (8, 128), 136 * 128),
        ("f32[32,12,12,384]{3,0,2,1}", (8, 128), 12 * 12 * 32 * 384),
        ("f32[32,12,12,384]{3,2,1,0}", (8, 128), 32 * 12 * 16 * 384),
        # Few rows have native tiles of few rows; a row too many pads to the next power of two.
        ("f32[1,300]{1,0}", (1, 128), 384),
        ("f32[2,96,96,96,4]{4,0,3,2,1}", (2, 128), 96 * 96 * 96 * 2 * 128),
        ("f32[2,96,96,96,4]{3,4,2,1,0}", (4, 128), 2 * 96 * 96 * 4 * 128),
        ("f32[3,130]{1,0}", (4, 128), 4 * 256),
        ("f32[5,130]{1,0}", (8, 128), 8 * 256),
        ("f32[0,4]{1,0}", (1, 128), 0),
        # Vectors: 256, 512 or whole tiles of 1,024.
        ("f32[3]{0}", (256,), 256),
        ("f32[256]{0}", (256,), 256),
        ("f32[257]{0}", (512,), 512),
        ("f32[513]{0}", (1024,), 1024),
    ],
)
def test_arrays_occupy_whole_tiles(shape: str, tile: tuple[int, ...], elements: int) -> None:
    assert native_tile(parse_shape(shape)) == tile
    assert padded_elements(parse_shape(shape)) == elements
    assert padded_bytes(parse_shape(shape)) == 4 * elements


@pytest.mark.parametrize(
    ("shape", "tile", "num_bytes"),
    [
        # Two rows of 16 bits share a sublane, four of 8 bits: as the recorded bf16 kernels with (32, 3).
        ("bf16[1,128]{1,0}", (2, 128), 512),
        ("bf16[32,3]{0,1}", (4, 128), 1024),
        ("bf16[5,128]{1,0}", (8, 128), 2048),
        ("pred[1,128]{1,0}", (4, 128), 512),
        ("pred[5,128]{1,0}", (8, 128), 1024),
        ("c64[1,128]{1,0}", (1, 128), 1024),
        ("bf16[7]{0}", (256,), 512),
        ("pred[7]{0}", (512,), 512),
    ],
)
def test_narrow_types_share_sublanes(shape: str, tile: tuple[int, ...], num_bytes: int) -> None:
    assert native_tile(parse_shape(shape)) == tile
    assert padded_bytes(parse_shape(shape)) == num_bytes


_TYPES = (ElementType.PRED, ElementType.BF16, ElementType.F32, ElementType.S64)


@given(
    st.sampled_from(_TYPES),
    st.lists(st.integers(1, 1100), min_size=1, max_size=2),
    st.lists(st.integers(1, 5), max_size=3),
    st.data(),
)
def test_compact_tiles_hold_the_array_and_no_more_than_whole_ones(
    element_type: ElementType, minor: list[int], major: list[int], data: st.DataObject
) -> None:
    dimensions = (*major, *minor)
    order = tuple(data.draw(st.permutations(range(len(dimensions)))))
    shape = Shape(element_type, dimensions, order)
    physical = [dimensions[axis] for axis in reversed(order)]
    whole = (
        -(-physical[0] // 1024) * 1024
        if len(physical) == 1
        else math.prod(physical[:-2]) * -(-physical[-2] // 8) * 8 * -(-physical[-1] // 128) * 128
    )
    assert shape.num_bytes <= padded_bytes(shape) <= whole * element_type.bits // 8
    # Bounds count units of 8 x 128 or 1,024: as many as there are native tiles.
    bounds = (1024,) if len(physical) == 1 else (1,) * (len(physical) - 2) + (8, 128)
    assert [-(-size // unit) for size, unit in zip(physical, bounds, strict=True)] == [
        -(-size // unit) for size, unit in zip(physical, native_units(shape), strict=True)
    ]


def test_a_tuple_occupies_what_its_members_do() -> None:
    shape = parse_shape("(f32[8,128]{1,0}, bf16[1]{0})")
    assert padded_elements(shape) == 1024 + 256
    assert padded_bytes(shape) == 4 * 1024 + 2 * 256


@pytest.mark.parametrize(
    ("dimensions", "order"),
    [
        # As recorded in real programs: the two minor-most axes change places where that pads less.
        ((2, 96, 96, 96, 4), (3, 4, 2, 1, 0)),
        ((4096, 1000), (0, 1)),
        ((1, 1, 1, 64, 4), (3, 4, 2, 1, 0)),
        ((3, 3, 3, 192, 64), (3, 4, 2, 1, 0)),
        ((3, 3, 192, 384), (3, 2, 1, 0)),
        ((32, 1000), (1, 0)),
        # An axis of extent 1 in the sublanes wastes nothing, but others make larger tiles.
        ((64, 1, 512), (2, 0, 1)),
        ((5, 1, 512), (2, 1, 0)),
        ((2, 1000, 3), (1, 2, 0)),
        ((5,), (0,)),
        ((), ()),
    ],
)
def test_arguments_are_compact(dimensions: tuple[int, ...], order: tuple[int, ...]) -> None:
    assert compact_layout(Shape(ElementType.F32, dimensions)) == order


@pytest.mark.parametrize(
    ("source", "target", "free"),
    [
        ("f32[64,128,512]{2,1,0}", "f32[8192,512]{1,0}", True),  # whole sublane tiles are joined
        ("f32[64,12,512]{2,1,0}", "f32[768,512]{1,0}", False),  # 12 rows are padded to 16
        ("f32[32,6400]{1,0}", "f32[32,5,5,256]{3,2,1,0}", False),  # lanes change: the recorded reshape.39
        ("f32[32,1,512]{2,0,1}", "f32[32,512]{1,0}", True),
        ("f32[32,1,512]{2,1,0}", "f32[32,512]{1,0}", False),  # every row had a tile row of its own
        (
            "f32[32,1,128]{2,1,0}",
            "f32[32,128]{1,0}",
            True,
        ),  # tiles below one another
        ("f32[32,1,100]{2,1,0}", "f32[32,100]{1,0}", True),
        ("f32[30,1,100]{2,1,0}", "f32[30,100]{1,0}", False),  # 30 rows, or 32
        ("f32[8,2,256]{2,1,0}", "f32[4,4,256]{2,1,0}", False),  # T(2,128) and T(4,128)
        ("f32[8,2,64]{2,1,0}", "f32[4,4,64]{2,1,0}", True),
        ("f32[1,2048]{1,0}", "f32[16,128]{1,0}", True),  # both in the order of a vector
        ("f32[10,1,256]{2,1,0}", "f32[2560]{0}", True),
        ("bf16[10,1,256]{2,1,0}", "bf16[2560]{0}", False),  # every other row is padding
        ("bf16[1,384]{1,0}", "bf16[384]{0}", True),
        ("f32[384]{0}", "f32[1,1,1,384]{3,2,1,0}", True),
        ("f32[1024]{0}", "f32[8,128]{1,0}", True),
        ("f32[512]{0}", "f32[4,128]{1,0}", True),
        ("f32[2048]{0}", "f32[8,256]{1,0}", False),
        ("f32[4,8,128]{2,0,1}", "f32[32,128]{1,0}", False),  # joined axes are not neighbours in order
        ("f32[8,16]{0,1}", "f32[8,16,1]{0,1,2}", True),
        ("f32[1,1]{1,0}", "f32[]", True),
    ],
)
def test_a_reshape_is_free_if_the_tiled_image_stays(source: str, target: str, free: bool) -> None:
    reshape = Instruction("r", Opcode.RESHAPE, parse_shape(target), (0,))
    assert is_bitcast(reshape, parse_shape(source)) is free
    assert reshape_is_free(parse_shape(target), parse_shape(source)) is free


def test_the_order_of_a_free_reshape_is_found() -> None:
    source = parse_shape("f32[64,128,512]{2,0,1}")
    assert bitcast_layout(source, (64, 1, 128, 512)) == (3, 0, 2, 1)
    assert bitcast_layout(source, (8192, 512)) is None
    assert bitcast_layout(parse_shape("f32[64,1,1,1000]{3,0,2,1}"), (64, 1000)) == (1, 0)


def test_axes_of_a_reshape_match_in_shortest_runs() -> None:
    assert matching_axes((6, 4, 1, 5), (2, 3, 20)) == [((0,), (0, 1)), ((1, 3), (2,))]
    assert matching_axes((1, 1), (1,)) == []
    assert matching_axes((8, 6), (6, 8)) == [((0, 1), (0, 1))]


def test_a_transpose_is_free_if_only_the_names_of_axes_change() -> None:
    source = parse_shape("f32[64,512]{1,0}")
    transpose = Instruction("t", Opcode.TRANSPOSE, parse_shape("f32[512,64]{0,1}"), (0,), dimensions=(1, 0))
    assert is_bitcast(transpose, source)
    moved = Instruction("t", Opcode.TRANSPOSE, parse_shape("f32[512,64]{1,0}"), (0,), dimensions=(1, 0))
    assert not is_bitcast(moved, source)


def test_a_copy_is_free_only_if_nothing_moves() -> None:
    one_row = Instruction("c", Opcode.COPY, parse_shape("f32[8,1,256]{2,1,0}"), (0,))
    assert is_bitcast(one_row, parse_shape("f32[8,1,256]{2,1,0}"))
    assert not is_bitcast(one_row, parse_shape("f32[8,1,256]{2,0,1}"))  # 8 rows in one tile, or in eight
    wide = Instruction("c", Opcode.COPY, parse_shape("f32[1,5,7,128]{3,2,1,0}"), (0,))
    assert is_bitcast(wide, parse_shape("f32[1,5,7,128]{3,2,0,1}"))


def test_what_computes_is_no_bitcast() -> None:
    shape = parse_shape("f32[8,128]{1,0}")
    assert not is_bitcast(Instruction("n", Opcode.NEGATE, shape, (0,)), shape)
    assert is_bitcast(Instruction("b", Opcode.BITCAST, shape, (0,)), shape)
