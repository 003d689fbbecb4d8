from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.fusion.facts import CONTROL, KIND, OPCODE, BodyFacts, body_facts
from costbench.compiler.fusion.groups import KernelGroups, leaving, merge_along, separate_groups
from costbench.compiler.fusion.heuristic import default_groups
from costbench.compiler.fusion.space import Edge, fused_edges
from costbench.compiler.layout.assign import assign_layouts
from costbench.hlo.instruction import GatherDimensions, ScatterDimensions, WindowDimension
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from tests.hlo.builder import ModuleBuilder

PROGRAMS = Path(__file__).resolve().parents[3] / "data" / "programs"
BIG = "f32[256,1024]"
SAME = (WindowDimension(3, padding_low=1, padding_high=1),) * 2


def body_of(b: ModuleBuilder, *roots: int) -> BodyFacts:
    return body_facts(assign_layouts(b.build(*roots)).entry_computation)


def opcodes(groups: KernelGroups, positions: Iterable[int]) -> list[str]:
    return [Opcode(groups.body.facts[p, OPCODE]).xla_name for p in positions]


def kernels(groups: KernelGroups) -> list[list[str]]:
    """Opcodes of the kernels, without what is duplicated, in the order in which they run."""
    runs = groups.graph.is_node & (groups.body.facts[:, KIND] != CONTROL)
    members: dict[int, list[int]] = {}
    for position in np.flatnonzero(runs).tolist():
        members.setdefault(int(groups.groups.group[position]), []).append(position)
    return [opcodes(groups, members[group]) for group in sorted(members, key=groups.groups.rank.item)]


def fused(b: ModuleBuilder, *roots: int) -> list[list[str]]:
    return kernels(default_groups(body_of(b, *roots)))


def test_a_chain_is_one_kernel() -> None:
    b = ModuleBuilder()
    b.op("tanh", b.op("add", b.parameter(BIG), b.op("negate", b.parameter(BIG))))
    assert fused(b) == [["negate", "add", "tanh"]]


def test_a_reduction_takes_what_makes_its_operand_and_ends_the_kernel() -> None:
    # As fusion.206 of the recorded AlexNet: subtract, exponential, reduce.
    b = ModuleBuilder()
    x, top = b.parameter(BIG), b.parameter("f32[256]")
    shifted = b.op("subtract", x, b.broadcast(top, BIG, (0,)))
    total = b.reduce(b.op("exponential", shifted), (1,))
    b.op("log", total)
    assert fused(b) == [["subtract", "exponential", "reduce"], ["log"]]


def test_a_contraction_takes_operands_and_epilogue() -> None:
    # As fusion.209 of the recorded AlexNet: select, dot, select and multiply are one kernel.
    b = ModuleBuilder()
    mask, x, w = b.parameter("pred[256,1024]"), b.parameter(BIG), b.parameter("f32[1024,512]")
    zeros = b.broadcast(b.constant("f32[]"), BIG)
    product = b.dot(b.op("select", mask, x, zeros), b.op("negate", w))
    scale = b.broadcast(b.parameter("f32[512]"), "f32[256,512]", (1,))
    b.op("tanh", b.op("multiply", product, scale))
    assert fused(b) == [["select", "negate", "dot", "multiply", "tanh"]]


def test_two_contractions_are_two_kernels_and_the_first_keeps_what_lies_between() -> None:
    b = ModuleBuilder()
    first = b.dot(b.parameter(BIG), b.parameter("f32[1024,512]"))
    b.dot(b.op("tanh", first), b.parameter("f32[512,128]"))
    assert fused(b) == [["dot", "tanh"], ["dot"]]


def test_reductions_of_a_convolution_are_further_outputs_of_it() -> None:
    # Batch normalisation: mean and mean square come with the convolution, what needs them comes after.
    b = ModuleBuilder()
    shape = "f32[32,8,8,128]"
    conv = b.convolution(b.parameter(shape), b.parameter("f32[3,3,128,128]"), windows=SAME)
    mean = b.reduce(conv, (0, 1, 2))
    square = b.reduce(b.op("multiply", conv, conv), (0, 1, 2))
    centred = b.op("subtract", conv, b.broadcast(b.op("add", mean, square), shape, (3,)))
    b.op("maximum", centred, b.broadcast(b.constant("f32[]"), shape))
    groups = default_groups(body_of(b))
    copy, first, second = kernels(groups)
    assert copy == ["copy"]
    assert first == ["convolution", "reduce", "multiply", "reduce"]
    assert second == ["add", "subtract", "maximum"]
    (position,) = np.flatnonzero(groups.body.facts[:, OPCODE] == Opcode.CONVOLUTION)
    group = groups.groups.group[position]
    outputs = leaving(groups.groups, groups.reads, group, group)
    assert sorted(opcodes(groups, outputs)) == ["convolution", "reduce", "reduce"]


def test_a_weight_update_is_made_with_its_gradient() -> None:
    b = ModuleBuilder()
    x, g = b.parameter("f32[64,256]"), b.parameter("f32[64,512]")
    w, momentum = b.parameter("f32[256,512]"), b.parameter("f32[256,512]")
    rate = b.broadcast(b.constant("f32[]"), "f32[256,512]")
    velocity = b.op("add", b.dot(x, g, contracting=(0, 0)), b.op("multiply", momentum, rate))
    new = b.op("subtract", w, b.op("multiply", velocity, rate))
    assert fused(b, velocity, new) == [["dot", "multiply", "add", "multiply", "subtract"]]


def test_an_update_that_waits_for_a_norm_of_all_gradients_does_not_close_a_circle() -> None:
    b = ModuleBuilder()
    gradient = b.dot(b.parameter("f32[64,256]"), b.parameter("f32[64,512]"), contracting=(0, 0))
    norm = b.reduce(b.op("multiply", gradient, gradient), (0, 1))
    b.op("divide", gradient, b.broadcast(norm, "f32[256,512]"))
    assert fused(b) == [["dot", "multiply", "reduce"], ["divide"]]


def test_reductions_of_one_value_share_a_kernel() -> None:
    b = ModuleBuilder()
    x = b.parameter(BIG)
    low, high = b.reduce(x, (1,), "minimum"), b.reduce(b.op("negate", x), (1,), "maximum")
    other = b.reduce(b.parameter("f32[128,64]"), (1,))
    assert fused(b, low, high, other) == [["reduce", "negate", "reduce"], ["reduce"]]


def test_a_reduction_of_a_reduction_is_a_kernel_of_its_own() -> None:
    b = ModuleBuilder()
    x = b.parameter(BIG)
    mean = b.broadcast(b.reduce(x, (1,)), BIG, (0,))
    b.reduce(b.op("abs", b.op("subtract", x, mean)), (1,))
    assert fused(b) == [["reduce"], ["subtract", "abs", "reduce"]]


def test_dear_values_with_several_readers_are_stored_once() -> None:
    b = ModuleBuilder()
    e = b.op("exponential", b.parameter(BIG))
    total = b.reduce(e, (1,))
    b.op("divide", e, b.broadcast(total, BIG, (0,)))
    assert fused(b) == [["exponential", "reduce"], ["divide"]]


def test_cheap_values_of_what_is_in_memory_are_made_anew() -> None:
    # The centred value would cost a store and a load; subtracting again costs nothing.
    b = ModuleBuilder()
    x = b.parameter(BIG)
    centred = b.op("subtract", x, b.broadcast(b.reduce(x, (1,)), BIG, (0,)))
    variance = b.broadcast(b.reduce(b.op("multiply", centred, centred), (1,)), BIG, (0,))
    b.op("divide", centred, variance)
    groups = default_groups(body_of(b))
    assert kernels(groups) == [["reduce"], ["multiply", "reduce"], ["divide"]]
    (subtract,) = np.flatnonzero(groups.body.facts[:, OPCODE] == Opcode.SUBTRACT)
    assert groups.graph.duplicated[subtract]


def test_cheap_values_of_what_is_not_in_memory_are_stored() -> None:
    b = ModuleBuilder()
    shape = "f32[256,512]"
    product = b.op("negate", b.dot(b.parameter(BIG), b.parameter("f32[1024,512]")))
    total = b.reduce(product, (1,))
    b.op("divide", product, b.broadcast(total, shape, (0,)))
    assert fused(b) == [["dot", "negate", "reduce"], ["divide"]]


def test_a_dear_row_is_not_computed_again_for_every_row_it_is_added_to() -> None:
    b = ModuleBuilder()
    row = b.op("rsqrt", b.parameter("f32[1024]"))
    b.op("multiply", b.parameter(BIG), b.broadcast(row, BIG, (1,)))
    assert fused(b) == [["rsqrt"], ["multiply"]]
    b = ModuleBuilder()
    row = b.op("negate", b.op("rsqrt", b.parameter("f32[1024]")))
    b.op("multiply", b.parameter(BIG), b.broadcast(row, BIG, (1,)))
    assert fused(b) == [["rsqrt"], ["negate", "multiply"]]


def test_updates_of_moments_are_one_kernel_with_several_outputs() -> None:
    b = ModuleBuilder()
    w, m, v, g = (b.parameter(BIG) for _ in range(4))
    mean = b.op("add", m, g)
    square = b.op("add", v, b.op("multiply", g, g))
    new = b.op("subtract", w, b.op("divide", mean, b.op("sqrt", square)))
    (kernel,) = fused(b, mean, square, new)
    assert sorted(kernel) == ["add", "add", "divide", "multiply", "sqrt", "subtract"]


@pytest.mark.parametrize("alone", ["sort", "fft", "cholesky", "rng-bit-generator"])
def test_some_instructions_never_fuse(alone: str) -> None:
    b = ModuleBuilder()
    square = "f32[512,512]"
    x = b.op("tanh", b.parameter(square))
    called = (b.function("compare", b.shape(x)),) if alone == "sort" else ()
    axes, length = ((1,) if alone == "sort" else ()), ((512,) if alone == "fft" else ())
    b.op("tanh", b.op(alone, x, shape=square, called=called, dimensions=axes, fft_length=length))
    assert [alone] in fused(b)


def test_pooling_takes_cheap_makers_only() -> None:
    windows = tuple(WindowDimension(n, stride=n) for n in (1, 2, 2, 1))
    for opcode, expected in (
        ("negate", [["negate", "reduce-window"]]),
        ("tanh", [["tanh"], ["reduce-window"]]),
    ):
        b = ModuleBuilder()
        b.reduce_window(b.op(opcode, b.parameter("f32[32,8,8,128]")), windows, "maximum")
        assert fused(b) == expected


def test_gathers_take_indices_and_what_follows_but_no_table() -> None:
    b = ModuleBuilder()
    rows = GatherDimensions((1,), (0,), (0,), 1, (1, 256))
    table = b.op("negate", b.parameter("f32[1000,256]"))
    indices = b.op("add", b.parameter("s32[64,1]"), b.broadcast(b.constant("s32[]"), "s32[64,1]"))
    gathered = b.op("gather", table, indices, shape="f32[64,256]", gather=rows)
    b.op("tanh", gathered)
    assert fused(b) == [["negate"], ["add", "gather", "tanh"]]


def test_scatters_take_cheap_updates_and_need_their_start_in_memory() -> None:
    b = ModuleBuilder()
    numbers = ScatterDimensions((1,), (0,), (0,), 1)
    zeros = b.broadcast(b.constant("f32[]"), "f32[1000,256]")
    updates = b.op("negate", b.parameter("f32[64,256]"))
    b.op(
        "scatter",
        zeros,
        b.parameter("s32[64,1]"),
        updates,
        shape="f32[1000,256]",
        scatter=numbers,
        called=(b.function("add", b.shape(zeros)),),
    )
    assert fused(b) == [["broadcast"], ["negate", "scatter"]]


def test_an_update_in_place_takes_the_new_slice_only() -> None:
    b = ModuleBuilder()
    buffer = b.op("tanh", b.parameter("f32[16,8,128]"))
    start = [b.constant("s32[]") for _ in range(3)]
    part = b.op("negate", b.parameter("f32[1,8,128]"))
    b.op("dynamic-update-slice", buffer, part, *start, shape="f32[16,8,128]")
    assert fused(b) == [["tanh"], ["negate", "dynamic-update-slice"]]


def test_nothing_but_free_reshapes_and_constants_is_no_node() -> None:
    b = ModuleBuilder()
    b.reshape(b.transpose(b.parameter("f32[64,128]"), (1, 0)), "f32[128,64,1]")
    assert fused(b) == []


def cut(groups: KernelGroups, edges: Iterable[Edge]) -> KernelGroups:
    """Groups of the same nodes in which the two ends of every edge share a kernel where that is legal."""
    separate = separate_groups(groups.body, groups.graph)
    ordered = sorted(edges, key=lambda edge: (-edge[0], edge[1]))
    sources, users = np.array(ordered, dtype=np.int64).reshape(-1, 2).T.copy()
    merge_along(separate.groups, separate.reads, separate.shaping, sources, users)
    return separate


def test_edges_give_the_same_kernels_again() -> None:
    b = ModuleBuilder()
    x = b.parameter(BIG)
    low, high = b.reduce(x, (1,), "minimum"), b.reduce(b.op("exponential", x), (1,))
    product = b.dot(b.op("tanh", x), b.parameter("f32[1024,512]"))
    body = body_of(b, low, high, b.op("negate", product))
    groups = default_groups(body)
    assert kernels(cut(groups, fused_edges(groups))) == kernels(default_groups(body))


def test_edges_of_a_real_program_give_its_kernels_again() -> None:
    module = assign_layouts(read_module(PROGRAMS / "alexnet_b128_train_f32.hlo.pb.zst"))
    expected = default_groups(body_facts(module.entry_computation))
    again = cut(expected, fused_edges(expected))
    # Two partitions are the same if each group of one is exactly one group of the other.
    pairs = set(zip(again.groups.group.tolist(), expected.groups.group.tolist(), strict=True))
    assert len(pairs) == len({first for first, _ in pairs}) == len({second for _, second in pairs})


def test_without_edges_every_instruction_is_a_kernel() -> None:
    b = ModuleBuilder()
    b.op("tanh", b.op("add", b.parameter(BIG), b.op("negate", b.parameter(BIG))))
    groups = default_groups(body_of(b))
    assert kernels(cut(groups, ())) == [["negate"], ["add"], ["tanh"]]
    assert len(fused_edges(groups)) == 2
    first = min(fused_edges(groups))
    assert kernels(cut(groups, [first])) == [["negate", "add"], ["tanh"]]


def test_edges_that_no_kernel_allows_are_left_out() -> None:
    b = ModuleBuilder()
    x = b.parameter(BIG)
    first = b.dot(x, b.parameter("f32[1024,1024]"))
    second = b.dot(first, b.parameter("f32[1024,128]"))
    total = b.reduce(second, (1,))
    last = b.op("negate", total)
    groups = default_groups(body_of(b, last))
    edges = {(first, second), (second, total), (total, last)}
    assert kernels(cut(groups, edges)) == [["dot"], ["dot", "reduce"], ["negate"]]


def test_an_edge_over_a_detour_is_fused_only_with_the_detour() -> None:
    b = ModuleBuilder()
    e = b.op("exponential", b.parameter(BIG))
    t = b.op("tanh", e)
    s = b.op("add", e, t)
    groups = default_groups(body_of(b, s))
    assert kernels(cut(groups, [(e, s)])) == [["exponential"], ["tanh"], ["add"]]
    assert kernels(cut(groups, [(e, s), (e, t), (t, s)])) == [["exponential", "tanh", "add"]]
