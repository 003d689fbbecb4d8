"""The published rules on small graphs, by hand; what both heuristics share is tested in test_heuristic."""

from __future__ import annotations

from costbench.compiler.fusion.groups import KernelGroups
from costbench.compiler.fusion.heuristic import default_groups
from costbench.compiler.fusion.published import published_groups
from costbench.compiler.fusion.rules import Kind
from costbench.compiler.layout.assign import assign_layouts
from costbench.hlo.builder import ModuleBuilder

BIG = "f32[256,1024]"


def kernels(groups: KernelGroups) -> list[list[str]]:
    """Opcodes of the kernels, without what is duplicated, in the order in which they run."""
    graph = groups.graph
    found: dict[int, list[int]] = {}
    for position, kind in enumerate(graph.kinds):
        if kind is not Kind.CONTROL and graph.is_node(position):
            found.setdefault(groups.find(position), []).append(position)
    ordered = sorted(found, key=groups.rank)
    return [[graph.instruction(p).opcode.xla_name for p in found[group]] for group in ordered]


def fused(b: ModuleBuilder, *roots: int) -> list[list[str]]:
    return kernels(published_groups(assign_layouts(b.build(*roots)).entry_computation))


def by_default(b: ModuleBuilder, *roots: int) -> list[list[str]]:
    return kernels(default_groups(assign_layouts(b.build(*roots)).entry_computation))


def test_a_chain_is_one_kernel() -> None:
    b = ModuleBuilder()
    b.op("tanh", b.op("add", b.parameter(BIG), b.op("negate", b.parameter(BIG))))
    assert fused(b) == [["negate", "add", "tanh"]]


def test_readers_in_one_kernel_count_as_one() -> None:
    b = ModuleBuilder()
    e = b.op("exponential", b.parameter(BIG))
    b.op("add", b.op("tanh", e), b.op("negate", e))
    assert fused(b) == [["exponential", "tanh", "negate", "add"]]


def test_a_cheap_unary_value_is_duplicated_into_all_its_readers() -> None:
    b = ModuleBuilder()
    x = b.op("negate", b.parameter(BIG))
    assert fused(b, b.op("tanh", x), b.op("exponential", x)) == [["tanh"], ["exponential"]]


def test_an_expensive_value_with_two_readers_is_stored() -> None:
    # By default one kernel with three outputs; the published rules have no multi-output fusion.
    b = ModuleBuilder()
    x = b.op("tanh", b.parameter(BIG))
    roots = b.op("negate", x), b.op("exponential", x)
    assert fused(b, *roots) == [["tanh"], ["negate"], ["exponential"]]
    assert by_default(b, *roots) == [["tanh", "negate", "exponential"]]


def test_a_contraction_takes_what_alone_reads_it() -> None:
    b = ModuleBuilder()
    product = b.dot(b.parameter("f32[256,512]"), b.parameter("f32[512,1024]"))
    scaled = b.op("multiply", product, b.parameter(BIG))
    assert fused(b, b.op("tanh", scaled)) == [["dot", "multiply", "tanh"]]


def test_a_contraction_with_two_readers_is_alone() -> None:
    b = ModuleBuilder()
    product = b.dot(b.parameter("f32[256,512]"), b.parameter("f32[512,1024]"))
    roots = b.op("tanh", product), b.op("exponential", product)
    assert fused(b, *roots) == [["dot"], ["tanh"], ["exponential"]]


def test_the_merger_duplicates_what_transfers_fewer_bytes() -> None:
    # k = 2 readers: 2 arrays read twice are 4, against 2 read, 1 written and 2 read again, which are 5.
    b = ModuleBuilder()
    x = b.op("add", b.parameter(BIG), b.parameter(BIG))
    assert fused(b, b.op("tanh", x), b.op("exponential", x)) == [["tanh"], ["exponential"]]


def test_the_merger_stores_what_would_transfer_more_bytes() -> None:
    # k = 2: 4 arrays read twice are 8, against 4 + 1 + 2 = 7, more than 1.1 times as many.
    b = ModuleBuilder()
    x = b.op("add", b.parameter(BIG), b.parameter(BIG))
    y = b.op("add", b.op("add", x, b.parameter(BIG)), b.parameter(BIG))
    found = fused(b, b.op("tanh", y), b.op("exponential", y))
    assert found == [["add", "add", "add"], ["tanh"], ["exponential"]]


def test_the_merger_leaves_readers_with_a_contraction_alone() -> None:
    b = ModuleBuilder()
    x = b.op("add", b.parameter("f32[256,512]"), b.parameter("f32[256,512]"))
    roots = b.dot(x, b.parameter("f32[512,1024]")), b.op("tanh", x)
    assert fused(b, *roots) == [["add"], ["dot"], ["tanh"]]
