"""Graphs of kernels: boundary parameters, flags, edges, and the cache of program features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.program import compile_program
from costbench.datasets.tpugraphs.raw import read_tile_tuning
from costbench.errors import DataError, ParamsError
from costbench.features.graph_tensors import ProgramFeatureCache, kernel_graph
from costbench.features.node import module_node_features
from costbench.features.schema import NODE_FEATURES, absent_row, column
from costbench.hlo.instruction import Instruction, PaddingDimension
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from costbench.hlo.shape import ElementType, Shape

SCALAR = Shape(ElementType.F32)
ROW = Shape(ElementType.BF16, (64,), (0,))
MATRIX = Shape(ElementType.BF16, (32, 64), (0, 1))


def program() -> HloModule:
    """pad(x) -> reduce; the pad is outside of the kernel under test, the reduce and what follows inside."""
    adder = HloComputation(
        "adder",
        (
            Instruction(name="a", opcode=Opcode.PARAMETER, shape=SCALAR),
            Instruction(name="b", opcode=Opcode.PARAMETER, shape=SCALAR, parameter_number=1),
            Instruction(name="a+b", opcode=Opcode.ADD, shape=SCALAR, operands=(0, 1)),
        ),
        root=2,
    )
    padding = (PaddingDimension(1, -1, 0),) * 2
    main = HloComputation(
        "main",
        (
            Instruction(name="x", opcode=Opcode.PARAMETER, shape=MATRIX, parameter_number=0),
            Instruction(name="bias", opcode=Opcode.PARAMETER, shape=ROW, parameter_number=1),
            Instruction(name="zero", opcode=Opcode.CONSTANT, shape=SCALAR),
            Instruction(name="pad", opcode=Opcode.PAD, shape=MATRIX, operands=(0, 2), padding=padding),
            Instruction(
                name="sum", opcode=Opcode.REDUCE, shape=ROW, operands=(3, 2), dimensions=(0,), called=(0,)
            ),
            Instruction(name="square", opcode=Opcode.MULTIPLY, shape=ROW, operands=(4, 4)),
            Instruction(name="out", opcode=Opcode.ADD, shape=ROW, operands=(5, 1)),
        ),
        root=6,
    )
    return HloModule("program", (adder, main), entry=1).verify()


def kernel_of(module: HloModule) -> Kernel:
    return Kernel(module, computation=1, instructions=(2, 4, 5, 6), inputs=(1, 3), outputs=(4, 6))


def test_nodes_are_inputs_then_instructions() -> None:
    graph = kernel_graph(kernel_of(program()), ProgramFeatureCache())
    expected = ["PARAMETER", "PARAMETER", "CONSTANT", "REDUCE", "MULTIPLY", "ADD"]
    assert graph.opcodes.tolist() == [int(Opcode[name]) for name in expected]
    assert graph.opcodes.dtype == np.int64
    assert graph.num_nodes == 6
    assert graph.node_features.shape == (6, 140)
    assert graph.node_features.dtype == np.float32


def test_edges_run_from_producer_to_consumer_once_each() -> None:
    graph = kernel_graph(kernel_of(program()), ProgramFeatureCache())
    # Places: bias 0, pad 1, zero 2, sum 3, square 4, out 5.
    assert graph.edges.tolist() == [[1, 2, 3, 0, 4], [3, 3, 4, 5, 5]]
    assert graph.edges.dtype == np.int64


def test_an_input_keeps_shape_and_layout_of_its_producer_and_nothing_else() -> None:
    graph = kernel_graph(kernel_of(program()), ProgramFeatureCache())
    expected = absent_row(NODE_FEATURES)
    for name, value in {
        "shape_element_type_is_bf16": 1,
        "shape_dimensions_0": 32,
        "shape_dimensions_1": 64,
        "shape_dimensions_sum": 96,
        "shape_dimensions_product": 2048,
        "parameter_number": 1,
        "layout_minor_to_major_1": 1,
    }.items():
        expected[column(NODE_FEATURES, name)] = value
    np.testing.assert_array_equal(graph.node_features[1], expected)
    # `bias` is parameter 1 of the program but input 0 of the kernel.
    assert graph.node_features[0, column(NODE_FEATURES, "parameter_number")] == 0


def test_roots_are_the_outputs_and_other_columns_those_of_the_program() -> None:
    module = program()
    graph = kernel_graph(kernel_of(module), ProgramFeatureCache())
    assert graph.node_features[:, 0].tolist() == [0, 0, 0, 1, 0, 1]
    whole = module_node_features(module)
    offset = module.offsets[1]
    np.testing.assert_array_equal(graph.node_features[2:, 1:], whole[[offset + p for p in (2, 4, 5, 6)], 1:])


def test_gathering_leaves_the_program_as_it_was() -> None:
    module, cache = program(), ProgramFeatureCache()
    before = cache.features(module).node_features.copy()
    first = kernel_graph(kernel_of(module), cache)
    second = kernel_graph(kernel_of(module), cache)
    np.testing.assert_array_equal(cache.features(module).node_features, before)
    np.testing.assert_array_equal(first.node_features, second.node_features)


def test_a_kernel_looks_the_same_wherever_its_inputs_come_from() -> None:
    module = program()
    alone = HloComputation(
        "alone",
        (
            Instruction(name="bias", opcode=Opcode.PARAMETER, shape=ROW, parameter_number=0),
            Instruction(name="pad", opcode=Opcode.PARAMETER, shape=MATRIX, parameter_number=1),
            Instruction(name="zero", opcode=Opcode.CONSTANT, shape=SCALAR),
            *(
                Instruction(
                    name=inst.name,
                    opcode=inst.opcode,
                    shape=inst.shape,
                    operands=tuple({1: 0, 3: 1, 2: 2, 4: 3, 5: 4}[o] for o in inst.operands),
                    dimensions=inst.dimensions,
                    called=inst.called,
                )
                for inst in module.computations[1].instructions[4:]
            ),
        ),
        root=5,
    )
    exported = HloModule("alone", (module.computations[0], alone), entry=1).verify()
    standalone = Kernel(exported, computation=1, instructions=(2, 3, 4, 5), inputs=(0, 1), outputs=(3, 5))
    cache = ProgramFeatureCache()
    one, other = kernel_graph(kernel_of(module), cache), kernel_graph(standalone, cache)
    for field in ("opcodes", "node_features", "edges", "static_features"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


def test_a_value_from_nowhere_is_an_error() -> None:
    kernel = Kernel(program(), computation=1, instructions=(4, 5, 6), inputs=(1, 3), outputs=(6,))
    with pytest.raises(DataError, match="sum: reads zero, which is neither an input nor in the kernel"):
        kernel_graph(kernel, ProgramFeatureCache())


def test_a_kernel_of_one_node_has_an_empty_edge_array() -> None:
    body = HloComputation(
        "c", (Instruction(name="i", opcode=Opcode.IOTA, shape=ROW, dimensions=(0,)),), root=0
    )
    graph = kernel_graph(kernel_from_module(HloModule("m", (body,), entry=0)), ProgramFeatureCache())
    assert graph.edges.shape == (2, 0)
    assert graph.node_features[0, 0] == 1


def test_the_cache_keeps_the_programs_used_last() -> None:
    cache = ProgramFeatureCache(capacity=2)
    a, b, c = program(), program(), program()
    first = cache.features(a)
    cache.features(b)
    assert cache.features(a) is first
    cache.features(c)  # b was used longest ago
    assert len(cache) == 2
    assert cache.features(a) is first


def test_a_cache_of_nothing_is_an_error() -> None:
    with pytest.raises(ParamsError, match="capacity 0"):
        ProgramFeatureCache(capacity=0)


def test_real_kernels_become_graphs(shared_data: Path) -> None:
    cache = ProgramFeatureCache()
    for tuning in read_tile_tuning(shared_data / "real_tpu" / "tile_calibration.pb"):
        graph = kernel_graph(tuning.kernel, cache)
        producers, consumers = graph.edges
        assert (producers < consumers).all()
        assert (consumers >= len(tuning.kernel.inputs)).all()
        # What nobody reads leaves the kernel.
        unread = np.setdiff1d(np.arange(graph.num_nodes), producers)
        assert graph.node_features[unread, 0].all()
        assert graph.node_features[:, 0].sum() == len(tuning.kernel.outputs)
        assert np.isfinite(graph.node_features).all()
        reads, writes = graph.static_features[1:3]
        assert (reads > 0) == bool(tuning.kernel.inputs)
        assert writes > 0


def test_all_kernels_of_a_whole_program_become_graphs(repository: Path) -> None:
    module = read_module(repository / "data" / "programs" / "alexnet_b128_train_f32.hlo.pb.zst")
    compiled = compile_program(module, "alexnet")
    cache = ProgramFeatureCache()
    for kernel in compiled.kernels:
        graph = kernel_graph(kernel, cache)
        num_inputs = len(kernel.inputs)
        assert graph.num_nodes == kernel.num_nodes
        assert (graph.opcodes[:num_inputs] == int(Opcode.PARAMETER)).all()
        assert graph.node_features[:, 0].sum() == len(kernel.outputs)
        assert len(np.unique(graph.edges, axis=1).T) == graph.edges.shape[1]
        # Every input is read by somebody.
        assert set(range(num_inputs)) <= set(graph.edges[0].tolist())
    assert len(cache) == 1
