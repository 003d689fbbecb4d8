from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.compiler.fusion.facts import PORT, body_facts
from costbench.compiler.fusion.reads import ReadGraph, read_graph
from costbench.compiler.layout.assign import assign_layouts
from costbench.compiler.program import compile_program, unique_kernels
from costbench.hlo.module import HloComputation
from tests.hlo.builder import ModuleBuilder

BIG = "f32[256,1024]"


class Read(NamedTuple):
    """The source, which operand of its reader it is, and whether a broadcast repeats it."""

    source: int
    operand: int
    repeated: bool


def graph_of(b: ModuleBuilder, *roots: int) -> tuple[HloComputation, ReadGraph, list[list[Read]]]:
    """The computation, its graph, and the reads of every instruction."""
    body = assign_layouts(b.build(*roots)).entry_computation
    facts = body_facts(body)
    graph = read_graph(facts, np.zeros(len(body.instructions), dtype=bool))
    operands = graph.port - facts.facts[graph.user, PORT]
    reads = [
        Read(*row)
        for row in zip(graph.source.tolist(), operands.tolist(), graph.repeated.tolist(), strict=True)
    ]
    return (
        body,
        graph,
        [reads[first:stop] for first, stop in zip(graph.reads[:-1], graph.reads[1:], strict=True)],
    )


def test_duplicated_instructions_are_looked_through_last_operand_first() -> None:
    b = ModuleBuilder()
    x, y = b.parameter("bf16[256,1024]"), b.parameter("f32[1024]")
    wide, rows = b.convert(b.op("negate", x), "f32"), b.broadcast(b.op("tanh", y), BIG, (1,))
    added = b.op("add", wide, rows)
    body, _, reads = graph_of(b, added)
    positions = {inst.opcode.xla_name: p for p, inst in enumerate(body.instructions)}
    assert reads[positions["add"]] == [
        Read(positions["negate"], 0, repeated=False),
        Read(positions["tanh"], 1, repeated=True),
    ]


def test_values_used_twice_are_followed_once() -> None:
    """Each of the 2,000 minima is read twice by the next: 2^2000 paths lead from the sum to the constant."""
    b = ModuleBuilder()
    low = b.broadcast(b.constant("f32[]"), BIG)
    for _ in range(2000):
        low = b.op("minimum", low, low)
    b.op("tanh", b.op("add", b.parameter(BIG), low))
    (kernel,) = unique_kernels(compile_program(b.build(), "minima"))
    opcodes = {kernel.kernel.instruction(p).opcode.xla_name for p in kernel.kernel.instructions}
    assert opcodes == {"constant", "broadcast", "minimum", "add", "tanh"}


def test_reads_of_values_used_twice_equal_those_of_a_plain_enumeration_of_paths() -> None:
    b = ModuleBuilder()
    x = b.op("negate", b.parameter("bf16[256,1024]"))
    value = b.convert(x, "f32")
    low = b.broadcast(b.reduce(value, (1,)), BIG, (0,))
    for _ in range(6):
        low = b.op("add", b.op("tanh", low), b.op("reshape", low, shape=BIG))
    body, graph, reads = graph_of(b, b.op("multiply", low, value))
    for user in np.flatnonzero(graph.is_node).tolist():
        assert reads[user] == list(dict.fromkeys(_paths(body, graph, user)))


def _paths(body: HloComputation, graph: ReadGraph, user: int) -> list[Read]:
    """Reads along every path, depth first, the last operand first below the user's own."""

    def follow(source: int, number: int, repeated: bool) -> list[Read]:
        if not graph.duplicated[source]:
            return [Read(source, number, repeated)]
        inst = body.instructions[source]
        again = repeated or inst.opcode.xla_name == "broadcast"
        return [read for operand in reversed(inst.operands) for read in follow(operand, number, again)]

    return [
        read
        for number, operand in enumerate(body.instructions[user].operands)
        for read in follow(operand, number, False)
    ]
