from __future__ import annotations

from costbench.compiler.fusion.reads import Read, ReadGraph
from costbench.compiler.layout.assign import assign_layouts
from costbench.compiler.program import compile_program, unique_kernels
from tests.hlo.builder import ModuleBuilder

BIG = "f32[256,1024]"


def graph_of(b: ModuleBuilder, *roots: int) -> ReadGraph:
    return ReadGraph(assign_layouts(b.build(*roots)).entry_computation)


def test_duplicated_instructions_are_looked_through_last_operand_first() -> None:
    b = ModuleBuilder()
    x, y = b.parameter("bf16[256,1024]"), b.parameter("f32[1024]")
    wide, rows = b.convert(b.op("negate", x), "f32"), b.broadcast(b.op("tanh", y), BIG, (1,))
    added = b.op("add", wide, rows)
    graph = graph_of(b, added)
    body = graph.body.instructions
    user = next(p for p, inst in enumerate(body) if inst.opcode.xla_name == "add")
    names = {inst.opcode.xla_name: p for p, inst in enumerate(body)}
    assert graph.reads[user] == (
        Read(names["negate"], user, 0, repeated=False),
        Read(names["tanh"], user, 1, repeated=True),
    )


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
    graph = graph_of(b, b.op("multiply", low, value))
    for user, reads in enumerate(graph.reads):
        if graph.is_node(user):
            paths = list(dict.fromkeys(_paths(graph, user)))
            assert list(reads) == paths


def _paths(graph: ReadGraph, user: int) -> list[Read]:
    """Reads along every path, depth first, the last operand first below the user's own."""

    def follow(source: int, place: int, repeated: bool) -> list[Read]:
        if not graph.duplicated[source]:
            return [Read(source, user, place, repeated)]
        inst = graph.instruction(source)
        again = repeated or inst.opcode.xla_name == "broadcast"
        return [read for operand in reversed(inst.operands) for read in follow(operand, place, again)]

    return [
        read
        for place, operand in enumerate(graph.instruction(user).operands)
        for read in follow(operand, place, False)
    ]
