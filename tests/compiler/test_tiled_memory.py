from __future__ import annotations

import pytest

from costbench.compiler.tiled_memory import (
    bitcast_layout,
    compact_layout,
    is_bitcast,
    matching_axes,
    native_tile,
    padded_bytes,
    padded_elements,
    reshape_is_free,
)
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.text.notation import parse_shape


@pytest.mark.parametrize(
    ("shape", "tile", "elements"),
    [
        ("f32[]", (), 1),
        ("f32[1025]{0}", (1024,), 2048),
        ("f32[9,129]{1,0}", (8, 128), 16 * 256),
        ("f32[9,129]{0,1}", (8, 128), 136 * 128),
        ("f32[32,12,12,384]{3,0,2,1}", (8, 128), 12 * 12 * 32 * 384),
        ("f32[32,12,12,384]{3,2,1,0}", (8, 128), 32 * 12 * 16 * 384),
        ("f32[0,4]{1,0}", (8, 128), 0),
    ],
)
def test_arrays_occupy_whole_tiles(shape: str, tile: tuple[int, ...], elements: int) -> None:
    assert native_tile(parse_shape(shape)) == tile
    assert padded_elements(parse_shape(shape)) == elements
    assert padded_bytes(parse_shape(shape)) == 4 * elements


def test_a_tuple_occupies_what_its_members_do() -> None:
    shape = parse_shape("(f32[8,128]{1,0}, bf16[1]{0})")
    assert padded_elements(shape) == 1024 + 1024
    assert padded_bytes(shape) == 4 * 1024 + 2 * 1024


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
        # An axis of extent 1 in the sublanes would waste seven of eight.
        ((64, 1, 512), (2, 0, 1)),
        ((5,), (0,)),
        ((), ()),
    ],
)
def test_arguments_are_compact(dimensions: tuple[int, ...], order: tuple[int, ...]) -> None:
    assert compact_layout(dimensions) == order


@pytest.mark.parametrize(
    ("source", "target", "free"),
    [
        ("f32[64,128,512]{2,1,0}", "f32[8192,512]{1,0}", True),  # whole sublane tiles are joined
        ("f32[64,12,512]{2,1,0}", "f32[768,512]{1,0}", False),  # 12 rows are padded to 16
        ("f32[32,6400]{1,0}", "f32[32,5,5,256]{3,2,1,0}", False),  # lanes change: the recorded reshape.39
        ("f32[32,1,512]{2,0,1}", "f32[32,512]{1,0}", True),
        ("f32[32,1,512]{2,1,0}", "f32[32,512]{1,0}", False),  # every row had a tile row of its own
        ("f32[384]{0}", "f32[1,1,1,384]{3,2,1,0}", True),
        ("f32[1024]{0}", "f32[8,128]{1,0}", True),
        ("f32[512]{0}", "f32[4,128]{1,0}", False),
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
    one_row = Instruction("c", Opcode.COPY, parse_shape("f32[8,1,128]{2,1,0}"), (0,))
    assert is_bitcast(one_row, parse_shape("f32[8,1,128]{2,1,0}"))
    assert not is_bitcast(one_row, parse_shape("f32[8,1,128]{2,0,1}"))  # 8 rows in one tile, or in eight
    wide = Instruction("c", Opcode.COPY, parse_shape("f32[1,5,7,128]{3,2,1,0}"), (0,))
    assert is_bitcast(wide, parse_shape("f32[1,5,7,128]{3,2,0,1}"))


def test_what_computes_is_no_bitcast() -> None:
    shape = parse_shape("f32[8,128]{1,0}")
    assert not is_bitcast(Instruction("n", Opcode.NEGATE, shape, (0,)), shape)
    assert is_bitcast(Instruction("b", Opcode.BITCAST, shape, (0,)), shape)
