"""Features of tile sizes, layouts and whole kernels by hand."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.arrays import I64
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError
from costbench.features.decision_features import (
    decision_features,
    layout_features,
    loop_features,
    static_performance,
    tile_features,
)
from costbench.features.packed_kernels import gathered_tile_features
from costbench.features.schema import TILE_FEATURES, column
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape
from tests.compiler import small_kernels as small


def _bounds(*rows: tuple[int, ...]) -> I64:
    return np.array(rows, dtype=np.int64)


def test_kernel_then_output_bounds_with_sum_and_product() -> None:
    features = tile_features(TileSizes(_bounds((3, 2, 24, 1)), _bounds((12, 6, 4, 3))))
    assert features.dtype == np.float32
    kernel, output, absent = [3, 2, 24, 1, 0, 0, 30, 144], [12, 6, 4, 3, 0, 0, 25, 864], [0] * 8
    assert features.tolist() == [[*kernel, *output, *absent]]


def test_an_absent_list_has_product_zero() -> None:
    features = tile_features(TileSizes(np.zeros((2, 0), np.int64), _bounds((5,), (7,))))
    assert features[:, :8].tolist() == [[0] * 8] * 2
    assert features[:, column(TILE_FEATURES, "output_bounds_product")].tolist() == [5, 7]


def test_a_kernel_without_any_tile_still_has_rows() -> None:
    empty = np.zeros((3, 0), np.int64)
    assert tile_features(TileSizes(empty, empty)).tolist() == [[0] * 24] * 3


def test_input_bounds_have_their_own_block() -> None:
    features = tile_features(TileSizes(_bounds((1,)), _bounds((2,))), _bounds((3, 4)))
    assert features[0, 16:].tolist() == [3, 4, 0, 0, 0, 0, 7, 12]


def test_more_than_six_bounds_count_in_the_totals_only() -> None:
    features = tile_features(TileSizes(np.zeros((1, 0), np.int64), _bounds((1, 2, 1, 1, 1, 3, 5))))
    assert features[0, 8:16].tolist() == [1, 2, 1, 1, 1, 3, 14, 30]


def test_products_of_bounds_wrap_around() -> None:
    features = tile_features(TileSizes(np.zeros((1, 0), np.int64), _bounds((2**32, 2**31))))
    assert features[0, column(TILE_FEATURES, "output_bounds_product")] == np.float32(-(2**63))


def test_gathered_tile_sizes_are_those_of_their_kernels() -> None:
    """Of no bounds at all, one list only, both, and more than six."""
    sizes = [
        TileSizes(np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int64)),
        TileSizes(np.zeros((2, 0), np.int64), _bounds((5, 7), (2, 9))),
        TileSizes(_bounds((3, 2, 24, 1)), _bounds((12, 6, 4, 3))),
        TileSizes(_bounds((2, 3)), _bounds((1, 2, 1, 1, 1, 3, 5))),
        TileSizes(_bounds((2**16, 2**15, 2**16)), np.zeros((1, 0), np.int64)),
    ]
    pieces = [np.concatenate([s.kernel_bounds, s.output_bounds], axis=1) for s in sizes]
    ranks = np.concatenate(
        [np.tile([s.kernel_bounds.shape[1], s.output_bounds.shape[1]], (len(s), 1)) for s in sizes]
    )
    lengths = ranks.sum(axis=1)
    flat = np.concatenate([piece.ravel() for piece in pieces]).astype(np.int32)
    gathered = gathered_tile_features(flat, np.cumsum(lengths) - lengths, ranks)
    np.testing.assert_array_equal(gathered, np.concatenate([tile_features(s) for s in sizes]))
    assert gathered_tile_features(flat, np.zeros(0, np.int64), ranks[:0]).shape == (0, 24)


def test_bounds_of_different_numbers_of_rows_are_an_error() -> None:
    with pytest.raises(DataError, match="kernel_bounds"):
        tile_features(TileSizes(_bounds((1,), (2,)), _bounds((1,))))


def test_layouts_are_output_input_kernel_with_minus_one_where_absent() -> None:
    layouts = np.full((1, 2, 3, 6), -1, dtype=np.int64)
    layouts[0, 0, 0, :2] = (3, 0)
    layouts[0, 0, 2, :2] = (2, 1)
    features = layout_features(layouts)
    assert features.dtype == np.float32
    assert features.shape == (1, 2, 18)
    assert features[0, 0].tolist() == [3, 0, -1, -1, -1, -1, *[-1] * 6, 2, 1, -1, -1, -1, -1]
    assert (features[0, 1] == -1).all()


def test_layouts_of_another_shape_are_an_error() -> None:
    with pytest.raises(DataError, match=r"expected \[\.\.\., 3, 6\]"):
        layout_features(np.zeros((4, 18), dtype=np.int64))


def test_static_performance_of_a_kernel() -> None:
    shape = Shape(ElementType.F32, (8, 16), (1, 0))
    body = HloComputation(
        "main",
        (
            Instruction(name="x", opcode=Opcode.PARAMETER, shape=shape),
            Instruction(name="y", opcode=Opcode.PARAMETER, shape=shape, parameter_number=1),
            Instruction(name="sum", opcode=Opcode.ADD, shape=shape, operands=(0, 1)),
            Instruction(name="exp", opcode=Opcode.EXPONENTIAL, shape=shape, operands=(2,)),
        ),
        root=3,
    )
    kernel = Kernel(HloModule("m", (body,), entry=0), 0, instructions=(2, 3), inputs=(0, 1), outputs=(3,))
    features = static_performance(kernel)
    # 128 additions; two arrays of 512 bytes read, one written; 128 exponentials.
    assert features.tolist() == [128, 1024, 512, 128]
    assert features.dtype == np.float32


def test_what_tile_sizes_do_to_loops_by_hand() -> None:
    # 8 rows and 3 columns of native tiles, 4 of depth; 3 x 2 of them, 3 deep: 3 x 2 tiles of the output cover
    # 9 x 4 native tiles, and two parts of the depth cover 6.
    nest = loop_nest(small.dot())
    assert nest.units.tolist() == [8, 3, 4]
    sizes = nest.tile_sizes(_bounds((8, 3, 4), (3, 2, 3), (4, 3, 1)))
    expected = [[1, 1, 1, 1], [6, 2, 36 / 24, 6 / 4], [2, 4, 1, 1]]
    assert loop_features(nest, sizes).tolist() == expected
    both = decision_features(nest, sizes)
    np.testing.assert_array_equal(both[:, :24], tile_features(sizes))
    assert both[:, 24:].tolist() == expected


def test_a_kernel_without_loops_is_one_tile() -> None:
    nest = loop_nest(small.unary("f32[]"))
    sizes = nest.tile_sizes(np.ones((1, len(nest.loops)), np.int64))
    assert loop_features(nest, sizes).tolist() == [[1] * 4]
