"""Node features by hand, one kind of instruction at a time, and over real files by a second extractor."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.datasets.tpugraphs.raw import read_layout_tuning, read_tile_tuning
from costbench.features import node
from costbench.features.node import ListColumns
from costbench.features.schema import NODE_FEATURES, absent_row, column
from costbench.hlo.instruction import (
    ConvolutionDimensions,
    Instruction,
    PaddingDimension,
    SliceDimension,
    WindowDimension,
)
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import ElementType, Shape

# Not among the 19 types of the one-hot, so that it leaves no trace.
NEUTRAL = Shape(ElementType.S4)
F32 = ElementType.F32


def features_of(inst: Instruction) -> dict[str, float]:
    """What differs from the absent values in the row of an instruction that is no root."""
    root = Instruction(name="root", opcode=Opcode.ADD, shape=NEUTRAL)
    module = HloModule("m", (HloComputation("c", (inst, root), root=1),), entry=0)
    row = node.module_node_features(module)[0]
    absent = absent_row(NODE_FEATURES)
    return {NODE_FEATURES[i].name: float(row[i]) for i in np.flatnonzero(row != absent)}


def test_a_neutral_instruction_has_the_absent_values_of_the_table() -> None:
    assert features_of(Instruction(name="x", opcode=Opcode.ADD, shape=NEUTRAL)) == {}


def test_the_root_of_every_computation_is_flagged() -> None:
    inst = Instruction(name="x", opcode=Opcode.IOTA, shape=NEUTRAL)
    module = HloModule(
        "m", (HloComputation("a", (inst, inst), root=0), HloComputation("b", (inst,), root=0)), entry=1
    )
    assert node.module_node_features(module)[:, 0].tolist() == [1, 0, 1]


def test_parameter() -> None:
    shape = Shape(F32, (8, 3), (1, 0))
    inst = Instruction(name="p", opcode=Opcode.PARAMETER, shape=shape, parameter_number=4)
    assert features_of(inst) == {
        "shape_element_type_is_f32": 1,
        "shape_dimensions_0": 8,
        "shape_dimensions_1": 3,
        "shape_dimensions_sum": 11,
        "shape_dimensions_product": 24,
        "parameter_number": 4,
        "layout_minor_to_major_0": 1,
    }


def test_tuple_counts_direct_members_and_has_no_sizes() -> None:
    inner = Shape(ElementType.TUPLE, tuple_shapes=(Shape(F32, (2,)), Shape(F32, (3,))))
    shape = Shape(ElementType.TUPLE, tuple_shapes=(inner, Shape(F32, (5,)), inner))
    assert features_of(Instruction(name="t", opcode=Opcode.TUPLE, shape=shape)) == {
        "shape_element_type_is_tuple": 1,
        "shape_tuple_shapes_size": 3,
    }


def test_convolution_with_window() -> None:
    inst = Instruction(
        name="conv",
        opcode=Opcode.CONVOLUTION,
        shape=Shape(F32, (32, 56, 28, 64), (3, 0, 2, 1)),
        window=(
            WindowDimension(size=7, stride=2, padding_low=3, padding_high=-1),
            WindowDimension(
                size=5,
                stride=4,
                padding_low=0,
                padding_high=2,
                window_dilation=2,
                base_dilation=3,
                reversal=True,
            ),
        ),
        convolution=ConvolutionDimensions(
            input_batch=1,
            input_feature=3,
            input_spatial=(2, 4),
            kernel_input_feature=2,
            kernel_output_feature=3,
            kernel_spatial=(0, 1),
            output_batch=5,
            output_feature=6,
            output_spatial=(7, 8),
        ),
        feature_group_count=2,
        batch_group_count=1,
    )
    prefix = "convolution_dim_numbers_"
    assert features_of(inst) == {
        "shape_element_type_is_f32": 1,
        "shape_dimensions_0": 32,
        "shape_dimensions_1": 56,
        "shape_dimensions_2": 28,
        "shape_dimensions_3": 64,
        "shape_dimensions_sum": 180,
        "shape_dimensions_product": 32 * 56 * 28 * 64,
        "window_size_0": 7,
        "window_size_1": 5,
        "window_size_sum": 12,
        "window_size_product": 35,
        "window_stride_0": 2,
        "window_stride_1": 4,
        "window_stride_sum": 6,
        "window_stride_product": 8,
        "window_padding_low_0": 3,
        "window_padding_low_sum": 3,
        "window_padding_low_product": 0,
        "window_padding_high_0": -1,
        "window_padding_high_1": 2,
        "window_padding_high_sum": 1,
        "window_padding_high_product": -2,
        "window_window_dilation_0": 1,
        "window_window_dilation_1": 2,
        "window_window_dilation_sum": 3,
        "window_window_dilation_product": 2,
        "window_base_dilation_0": 1,
        "window_base_dilation_1": 3,
        "window_base_dilation_sum": 4,
        "window_base_dilation_product": 3,
        "window_window_reversal_1": 1,
        "window_window_reversal_true_count": 1,
        "window_window_reversal_false_count": 1,
        f"{prefix}input_batch_dim": 1,
        f"{prefix}input_feature_dim": 3,
        f"{prefix}input_spatial_dims_0": 2,
        f"{prefix}input_spatial_dims_1": 4,
        f"{prefix}kernel_input_feature_dim": 2,
        f"{prefix}kernel_output_feature_dim": 3,
        f"{prefix}kernel_spatial_dims_1": 1,
        f"{prefix}output_batch_dim": 5,
        f"{prefix}output_feature_dim": 6,
        "feature_group_count": 2,
        "batch_group_count": 1,
        "layout_minor_to_major_0": 3,
        "layout_minor_to_major_2": 2,
        "layout_minor_to_major_3": 1,
    }


def test_slice_is_start_stride_limit_and_two_places() -> None:
    slices = (SliceDimension(1, 9, 2), SliceDimension(0, 4, 1), SliceDimension(3, 5, 2))
    row = features_of(Instruction(name="s", opcode=Opcode.SLICE, shape=NEUTRAL, slices=slices))
    assert row == {
        "slice_dims_start_0": 1,
        "slice_dims_start_sum": 4,
        "slice_dims_start_product": 0,
        "slice_dims_stride_0": 2,
        "slice_dims_stride_1": 1,
        "slice_dims_stride_sum": 5,
        "slice_dims_stride_product": 4,
        "slice_dims_limit_0": 9,
        "slice_dims_limit_1": 4,
        "slice_dims_limit_sum": 18,
        "slice_dims_limit_product": 180,
    }
    assert column(NODE_FEATURES, "slice_dims_stride_0") < column(NODE_FEATURES, "slice_dims_limit_0")


def test_dynamic_slice() -> None:
    inst = Instruction(name="d", opcode=Opcode.DYNAMIC_SLICE, shape=NEUTRAL, dynamic_slice_sizes=(2, 3, 4))
    assert features_of(inst) == {
        "dynamic_slice_sizes_0": 2,
        "dynamic_slice_sizes_1": 3,
        "dynamic_slice_sizes_sum": 9,
        "dynamic_slice_sizes_product": 24,
    }


def test_pad_leaves_out_interior_padding() -> None:
    padding = (PaddingDimension(low=-2, high=5, interior=7), PaddingDimension(low=3, high=4, interior=9))
    row = features_of(Instruction(name="p", opcode=Opcode.PAD, shape=NEUTRAL, padding=padding))
    prefix = "padding_config_edge_padding_"
    assert row == {
        f"{prefix}low_0": -2,
        f"{prefix}low_1": 3,
        f"{prefix}low_sum": 1,
        f"{prefix}low_product": -6,
        f"{prefix}high_0": 5,
        f"{prefix}high_1": 4,
        f"{prefix}high_sum": 9,
        f"{prefix}high_product": 20,
    }


def test_stable_sort_and_its_dimension_list() -> None:
    inst = Instruction(name="s", opcode=Opcode.SORT, shape=NEUTRAL, dimensions=(1,), is_stable=True)
    assert features_of(inst) == {"dimensions_0": 1, "is_stable": 1}


def test_more_than_six_dimensions_count_in_the_totals_only() -> None:
    shape = Shape(ElementType.S4, (2, 3, 1, 1, 1, 1, 7), (6, 5, 4, 3, 2, 1, 0))
    inst = Instruction(name="b", opcode=Opcode.BROADCAST, shape=shape, dimensions=(0, 1, 2, 3, 4, 5, 6))
    row = features_of(inst)
    assert row["shape_dimensions_sum"] == 16
    assert row["shape_dimensions_product"] == 42
    assert row["shape_dimensions_5"] == 1
    assert row["dimensions_5"] == 5
    assert row["layout_minor_to_major_5"] == 1


@pytest.mark.parametrize(
    ("element_type", "index"),
    [
        (ElementType.INVALID, 2),
        (ElementType.PRED, 3),
        (ElementType.U64, 11),
        (ElementType.F16, 12),
        (ElementType.F64, 14),
        (ElementType.BF16, 15),
        (ElementType.C64, 16),
        (ElementType.C128, 17),
        (ElementType.TUPLE, 18),
        (ElementType.OPAQUE, 19),
        (ElementType.TOKEN, 20),
    ],
)
def test_element_types_stand_in_feature_order_not_code_order(element_type: ElementType, index: int) -> None:
    row = features_of(Instruction(name="x", opcode=Opcode.COPY, shape=Shape(element_type)))
    assert row == {NODE_FEATURES[index].name: 1}


@pytest.mark.parametrize("element_type", [ElementType.F8E5M2, ElementType.U4, ElementType.F8E8M0FNU])
def test_later_element_types_set_nothing(element_type: ElementType) -> None:
    assert features_of(Instruction(name="x", opcode=Opcode.COPY, shape=Shape(element_type))) == {}


@pytest.mark.parametrize(
    ("sizes", "product"),
    [
        ((2**32, 2**31), -(2**63)),  # 2^63 wraps to its negative
        ((2**32 + 1, 2**32), 2**32),  # 2^64 + 2^32
        ((2**31, 2**31), 2**62),  # still fits
    ],
)
def test_products_wrap_around_beyond_63_bits(sizes: tuple[int, ...], product: int) -> None:
    row = features_of(Instruction(name="x", opcode=Opcode.IOTA, shape=Shape(ElementType.S4, sizes)))
    assert row["shape_dimensions_product"] == np.float32(product)
    assert row["shape_dimensions_sum"] == np.float32(sum(sizes))


def test_edges_merge_repeated_operands_and_reach_the_roots_of_called_computations() -> None:
    scalar = Shape(F32)
    body = HloComputation(
        "body",
        (
            Instruction(name="a", opcode=Opcode.PARAMETER, shape=scalar),
            Instruction(name="b", opcode=Opcode.MULTIPLY, shape=scalar, operands=(0, 0)),
            Instruction(name="unused", opcode=Opcode.ADD, shape=scalar, operands=(1, 0)),
        ),
        root=1,
    )
    entry = HloComputation(
        "entry",
        (
            Instruction(name="p", opcode=Opcode.PARAMETER, shape=scalar),
            Instruction(name="k", opcode=Opcode.CONSTANT, shape=scalar, control_predecessors=(0,)),
            Instruction(name="call", opcode=Opcode.CALL, shape=scalar, operands=(1, 0), called=(0,)),
        ),
        root=2,
    )
    module = HloModule("m", (body, entry), entry=1)
    assert node.module_edges(module).tolist() == [[1, 0], [2, 0], [2, 1], [5, 1], [5, 3], [5, 4]]
    codes = [Opcode.PARAMETER, Opcode.MULTIPLY, Opcode.ADD, Opcode.PARAMETER, Opcode.CONSTANT, Opcode.CALL]
    assert node.module_opcodes(module).tolist() == [int(code) for code in codes]


def test_opcodes_unknown_to_tpugraphs_are_zero_in_its_files_only() -> None:
    inst = Instruction(name="e", opcode=Opcode.ERF, shape=Shape(F32))
    module = HloModule("m", (HloComputation("c", (inst,), root=0),), entry=0)
    assert node.module_opcodes(module).tolist() == [129]
    assert node.tpugraphs_opcodes(module).tolist() == [0]


def test_a_module_without_edges_has_an_empty_array_of_pairs() -> None:
    inst = Instruction(name="k", opcode=Opcode.CONSTANT, shape=Shape(F32))
    module = HloModule("m", (HloComputation("c", (inst,), root=0),), entry=0)
    assert node.module_edges(module).shape == (0, 2)


def test_the_real_layout_program_has_the_documented_counts(shared_data: Path) -> None:
    module = read_layout_tuning(shared_data / "real_tpu" / "layout_module.pb").module
    features = node.module_node_features(module)
    assert features.shape == (3163, 140)
    assert features.dtype == np.float32
    assert len(module.computations) == 143
    assert features[:, 0].sum() == 143
    assert not features[:, 1].any()
    edges = node.module_edges(module)
    assert edges.shape == (5112, 2)
    assert (edges[:, 1] < edges[:, 0]).all()
    assert len(np.unique(edges, axis=0)) == 5112
    assert len(np.unique(node.module_opcodes(module))) == 41
    assert max(inst.shape.rank for c in module.computations for inst in c.instructions) == 5
    custom_calls = node.module_opcodes(module) == int(Opcode.CUSTOM_CALL)
    assert features[custom_calls, column(NODE_FEATURES, "batch_group_count")].sum() == 6


def _modules(shared_data: Path) -> list[tuple[hlo_pb2.HloModuleProto, HloModule]]:
    folder = shared_data / "real_tpu"
    layout = tuning_pb2.ModuleTuningData.FromString((folder / "layout_module.pb").read_bytes())
    tiles = tuning_pb2.TuningData.FromString((folder / "tile_calibration.pb").read_bytes())
    modules = [(layout.module, read_layout_tuning(folder / "layout_module.pb").module)]
    kernels = read_tile_tuning(folder / "tile_calibration.pb")
    return modules + [(raw.module, k.module) for raw, k in zip(tiles.modules, kernels, strict=True)]


def test_real_files_agree_with_a_second_extractor(shared_data: Path) -> None:
    for proto, module in _modules(shared_data):
        np.testing.assert_array_equal(node.module_node_features(module), _from_proto(proto))


def _from_proto(module: hlo_pb2.HloModuleProto) -> npt.NDArray[np.float32]:
    """Straight from the message, value by value, in the order that the data set documents."""
    rows = [_row(i, i.id == c.root_id) for c in module.computations for i in c.instructions]
    return np.array([[np.float32(value) for value in row] for row in rows], dtype=np.float32)


def _row(i: hlo_pb2.HloInstructionProto, is_root: bool) -> list[int]:
    codes = [*range(13), 16, 15, 18, 13, 14, 17]
    window = i.window.dimensions
    conv = i.convolution_dimension_numbers
    row = [int(is_root), 0, *(int(i.shape.element_type == code) for code in codes)]
    row += [*_list(i.shape.dimensions, 6), len(i.shape.tuple_shapes), i.parameter_number]
    row += _list(i.dimensions, 6)[:6]
    for field in ("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation"):
        row += _list([getattr(d, field) for d in window], 6)
    reversals = [int(d.window_reversal) for d in window]
    row += [*_list(reversals, 6)[:6], reversals.count(1), reversals.count(0)]
    row += [conv.input_batch_dimension, conv.input_feature_dimension]
    row += _list(conv.input_spatial_dimensions, 4)[:4]
    row += [conv.kernel_input_feature_dimension, conv.kernel_output_feature_dimension]
    row += _list(conv.kernel_spatial_dimensions, 4)[:4]
    row += [conv.output_batch_dimension, conv.output_feature_dimension]
    row += [i.feature_group_count, i.batch_group_count]
    for field in ("start", "stride", "limit"):
        row += _list([getattr(d, field) for d in i.slice_dimensions], 2)
    row += _list(i.dynamic_slice_sizes, 2)
    padding = i.padding_config.dimensions
    row += _list([d.edge_padding_low for d in padding], 2) + _list([d.edge_padding_high for d in padding], 2)
    return [*row, int(i.is_stable), *_list(i.shape.layout.minor_to_major, 6)[:6]]


def _list(values: object, width: int) -> list[int]:
    whole = [int(value) for value in values]  # type: ignore[attr-defined]
    return [*(whole + [0] * width)[:width], sum(whole), math.prod(whole)]


def test_a_chain_of_25_thousand_instructions_has_features() -> None:
    shape = Shape(F32, (32, 56, 56, 64), (3, 0, 2, 1))
    window = (WindowDimension(size=3, padding_low=1, padding_high=1),) * 2
    axes = ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    instructions = [Instruction(name="p", opcode=Opcode.PARAMETER, shape=shape)]
    for i in range(24_999):
        instructions.append(
            Instruction(
                name=f"x{i}",
                opcode=Opcode.CONVOLUTION,
                shape=shape,
                operands=(i,),
                window=window,
                convolution=axes,
            )
        )
    module = HloModule("m", (HloComputation("c", tuple(instructions), root=24_999),), entry=0)
    assert node.module_node_features(module).shape == (25_000, 140)


def _wrapped(value: int) -> int:
    """`value` as a 64-bit integer in two's complement."""
    return (value + 2**63) % 2**64 - 2**63


def test_leading_values_then_totals_of_the_whole_list() -> None:
    table = np.full((3, 5), -7, dtype=np.float32)
    columns = ListColumns(start=1, num_values=2)
    columns.add(0, (4, 5, 6))
    columns.add(2, (9,))
    columns.write(table)
    assert table[0].tolist() == [-7, 4, 5, 15, 120]
    assert table[1].tolist() == [-7, -7, -7, -7, -7]
    assert table[2].tolist() == [-7, 9, -7, 9, 9]


def test_nothing_noted_writes_nothing() -> None:
    table = np.zeros((1, 4), dtype=np.float32)
    columns = ListColumns(start=0, num_values=2)
    columns.add(0, ())
    columns.write(table)
    assert not table.any()


@given(
    rows=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), min_size=1, max_size=8),
    width=st.integers(1, 6),
)
def test_equals_a_row_by_row_computation(rows: list[list[int]], width: int) -> None:
    table = np.zeros((len(rows), width + 2), dtype=np.float32)
    columns = ListColumns(start=0, num_values=width)
    for row, values in enumerate(rows):
        columns.add(row, values)
    columns.write(table)
    for row, values in enumerate(rows):
        expected = np.zeros(width + 2, dtype=np.float32)
        if values:
            leading = values[:width]
            expected[: len(leading)] = np.array(leading, dtype=np.int64)
            expected[width:] = np.array([_wrapped(sum(values)), _wrapped(math.prod(values))], dtype=np.int64)
        np.testing.assert_array_equal(table[row], expected)
