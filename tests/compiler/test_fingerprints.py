from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.fingerprints import ModuleFingerprints, module_fingerprint, subgraph_fingerprint
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelPositions, kernel_arrays
from costbench.errors import HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import KERNELS, as_arrays
from tests.hlo.builder import ModuleBuilder
from tests.hlo.random_modules import SQUARE, modules, renumbered


def whole(module: HloModule) -> str:
    """Fingerprint of the entry computation as a kernel: its parameters are inputs."""
    body = module.entry_computation
    rest = [p for p in range(len(body.instructions)) if p not in body.parameters]
    return subgraph_fingerprint(module, module.entry, body.parameters, rest, (body.root,))


@given(modules(), st.integers(0, 1000))
def test_numbering_names_and_storage_order_do_not_matter(module: HloModule, seed: int) -> None:
    other = renumbered(module, seed)
    assert other.entry_computation.name != module.entry_computation.name
    assert module_fingerprint(other) == module_fingerprint(module)
    assert whole(other) == whole(module)


def variants(inst: Instruction) -> list[Instruction]:
    """The instruction with one thing changed that costs depend on."""
    changed = [
        dataclasses.replace(inst, opcode=Opcode.SINE),
        dataclasses.replace(inst, shape=Shape(ElementType.F32, (8, 9), (1, 0))),
        dataclasses.replace(inst, shape=Shape(ElementType.BF16, (8, 8), (1, 0))),
        dataclasses.replace(inst, shape=Shape(ElementType.F32, (8, 8), (0, 1))),
        dataclasses.replace(inst, dimensions=(*inst.dimensions, 5)),
        dataclasses.replace(inst, feature_group_count=77),
        dataclasses.replace(inst, custom_call_target="other"),
        dataclasses.replace(inst, tuple_index=9),
        dataclasses.replace(inst, trip_count=99),
        dataclasses.replace(inst, is_stable=not inst.is_stable),
        dataclasses.replace(inst, called=()),
    ]
    return [v for v in changed if v != inst]


@given(modules(max_steps=4), st.data())
def test_any_cost_relevant_change_matters(module: HloModule, data: st.DataObject) -> None:
    body = module.entry_computation
    position = data.draw(st.integers(0, len(body.instructions) - 1))
    variant = data.draw(st.sampled_from(variants(body.instructions[position])))
    instructions = (*body.instructions[:position], variant, *body.instructions[position + 1 :])
    changed = dataclasses.replace(
        module,
        computations=(*module.computations[:-1], dataclasses.replace(body, instructions=instructions)),
    )
    assert module_fingerprint(changed) != module_fingerprint(module)


def test_values_of_literals_control_edges_and_names_are_left_out() -> None:
    b = ModuleBuilder()
    b.op("add", b.parameter("f32[]"), b.op("constant", shape="f32[]", literal=b"\x0a\x02\x10\x0b"))
    module = b.build()
    body = module.entry_computation
    blank = tuple(
        dataclasses.replace(i, literal=b"", name="", control_predecessors=()) for i in body.instructions
    )
    other = dataclasses.replace(module, computations=(dataclasses.replace(body, instructions=blank),))
    assert module_fingerprint(other) == module_fingerprint(module)


def test_the_body_of_a_called_computation_matters() -> None:
    def reducing(kind: str) -> HloModule:
        b = ModuleBuilder()
        b.reduce(b.parameter(SQUARE), (1,), kind)
        return b.build()

    assert module_fingerprint(reducing("add")) != module_fingerprint(reducing("maximum"))
    assert module_fingerprint(reducing("add")) == module_fingerprint(reducing("add"))


def test_argument_order_of_a_called_computation_matters() -> None:
    def dividing(swap: bool) -> HloModule:
        b = ModuleBuilder()
        operands = [b.parameter(SQUARE), b.op("tanh", b.parameter(SQUARE))]

        def body(c: ModuleBuilder) -> int:
            p, q = c.parameter(SQUARE), c.parameter(SQUARE)
            return c.op("divide", *((q, p) if swap else (p, q)))

        b.fusion(body, *operands)
        return b.build()

    assert module_fingerprint(dividing(False)) != module_fingerprint(dividing(True))


def graph(edges: tuple[tuple[int, ...], ...], num_inputs: int, outputs: frozenset[int]) -> str:
    """Fingerprint of equal-looking nodes; `edges[i]` are the operands of node `num_inputs + i`."""
    shape = Shape(ElementType.F32, (4,), (0,))
    nodes = [Instruction("p", Opcode.PARAMETER, shape, parameter_number=i) for i in range(num_inputs)]
    nodes += [Instruction("n", Opcode.TUPLE, shape, operands) for operands in edges]
    module = HloModule("g", (HloComputation("c", tuple(nodes), len(nodes) - 1),), 0)
    instructions = range(num_inputs, len(nodes))
    return subgraph_fingerprint(module, 0, range(num_inputs), instructions, sorted(outputs))


def isomorphic(
    left: tuple[tuple[tuple[int, ...], ...], int, frozenset[int]],
    right: tuple[tuple[tuple[int, ...], ...], int, frozenset[int]],
) -> bool:
    """By trying every renaming: equal operand lists (in order), inputs to inputs, outputs to outputs."""
    (edges_l, inputs_l, out_l), (edges_r, inputs_r, out_r) = left, right
    if (len(edges_l), inputs_l, len(out_l)) != (len(edges_r), inputs_r, len(out_r)):
        return False
    inner = range(inputs_l, inputs_l + len(edges_l))
    for a in itertools.permutations(range(inputs_l)):
        for b in itertools.permutations(inner):
            name = (*a, *b)
            if {name[o] for o in out_l} != out_r:
                continue
            if all(
                tuple(name[o] for o in operands) == edges_r[name[inputs_l + i] - inputs_l]
                for i, operands in enumerate(edges_l)
            ):
                return True
    return False


@st.composite
def single_output_graphs(
    draw: st.DrawFn, num_inputs: int = 3, num_nodes: int = 4
) -> tuple[tuple[tuple[int, ...], ...], int, frozenset[int]]:
    edges = tuple(
        tuple(draw(st.lists(st.integers(0, num_inputs + i - 1), min_size=1, max_size=2)))
        for i in range(num_nodes - 1)
    )
    unused = set(range(num_inputs, num_inputs + num_nodes - 1)) - {o for e in edges for o in e}
    return (*edges, tuple(sorted(unused))), num_inputs, frozenset({num_inputs + num_nodes - 1})


@given(single_output_graphs(), single_output_graphs(), st.data())
def test_equal_exactly_where_the_graphs_are_isomorphic(
    left: tuple[tuple[tuple[int, ...], ...], int, frozenset[int]],
    right: tuple[tuple[tuple[int, ...], ...], int, frozenset[int]],
    data: st.DataObject,
) -> None:
    assert (graph(*left) == graph(*right)) == isomorphic(left, right)
    # Graphs drawn apart seldom look alike, so compare with a neighbour, too: one operand moved.
    edges, inputs, outputs = left
    node = data.draw(st.integers(0, len(edges) - 2))
    operands = list(edges[node])
    operands[data.draw(st.integers(0, len(operands) - 1))] = data.draw(st.integers(0, inputs + node - 1))
    moved = ((*edges[:node], tuple(operands), *edges[node + 1 :]), inputs, outputs)
    assert (graph(*left) == graph(*moved)) == isomorphic(left, moved)


def test_sharing_of_inputs_is_seen() -> None:
    # f(a, b), g(a, c) and f(a, b), g(b, c): the same nodes bottom-up.
    both = frozenset({3, 4})
    assert graph(((0, 1), (0, 2)), 3, both) != graph(((0, 1), (1, 2)), 3, both)
    assert graph(((0, 1), (0, 2)), 3, both) != graph(((0, 1), (0, 2)), 3, frozenset({4}))
    assert graph(((0, 0),), 1, frozenset({1})) != graph(((0, 1),), 2, frozenset({2}))


def test_an_input_is_known_by_its_shape_only() -> None:
    b = ModuleBuilder()
    x = b.parameter(SQUARE)
    y = b.op("exponential", x)
    left, right = b.op("tanh", x), b.op("tanh", y)
    module = b.build(left, right)
    prints = ModuleFingerprints(module)
    assert prints.subgraph(0, (x,), (left,), (left,)) == prints.subgraph(0, (y,), (right,), (right,))
    assert prints.subgraph(0, (x,), (left,), (left,)) != prints.subgraph(0, (x,), (y, right), (right,))


@given(modules(), st.data())
def test_a_batch_gives_what_each_part_has_alone(module: HloModule, data: st.DataObject) -> None:
    body = module.entry_computation.instructions
    parts = []
    for _ in range(4):
        part = data.draw(st.sets(st.integers(0, len(body) - 1), min_size=1))
        inputs = {o for p in part for o in body[p].operands} - part
        parts.append(KernelPositions(tuple(sorted(part)), tuple(sorted(inputs)), (max(part),)))
    shared = ModuleFingerprints(module)
    names = [name.hex() for name in shared.kernels(module.entry, kernel_arrays(parts))]
    for name, (inside, inputs, outputs) in zip(names, parts, strict=True):
        assert name == shared.subgraph(module.entry, inputs, inside, outputs)
        assert name == subgraph_fingerprint(module, module.entry, inputs, inside, outputs)


def test_a_missing_operand_or_output_is_an_error() -> None:
    b = ModuleBuilder()
    y = b.op("tanh", b.parameter(SQUARE))
    with pytest.raises(HloError, match="neither an input nor among the instructions"):
        subgraph_fingerprint(b.build(y), 0, (), (y,), (y,))
    with pytest.raises(HloError, match=r"outputs \[7\]"):
        subgraph_fingerprint(b.build(y), 0, (0,), (y,), (7,))


def test_fingerprints_stay_the_same_between_runs_and_machines() -> None:
    b = ModuleBuilder()
    b.op("tanh", b.parameter("f32[2,3]{0,1}"))
    assert module_fingerprint(b.build()) == "ca5e6411212d667cf00ca45e2901a201"


def test_a_fingerprint_is_the_digest_that_the_formula_says() -> None:
    """out = tanh(x) + x, with BLAKE2b of the standard library."""

    def h(*parts: bytes) -> bytes:
        return hashlib.blake2b(b"".join(parts), digest_size=16).digest()

    b = ModuleBuilder()
    x = b.parameter("f32[2,3]{0,1}")
    tanh = b.op("tanh", x)
    add = b.op("add", tanh, x)
    # Operands, opcode, shape with layout; no attribute is set.
    shape = f"{int(ElementType.F32)}(2, 3)(0, 1)"
    first_x = h(f"input {shape}".encode())
    first_tanh = h(first_x, f"1 {int(Opcode.TANH)} {shape}".encode())
    first_add = h(first_tanh, first_x, f"2 {int(Opcode.ADD)} {shape}".encode())
    numbers = [number.to_bytes(4, "little") for number in range(2)]
    second_add = h(first_add, b"out")
    second_tanh = h(first_tanh, b"in", second_add + numbers[0])
    second_x = h(first_x, b"in", *sorted([second_tanh + numbers[0], second_add + numbers[1]]))
    expected = h(*sorted([second_x, second_tanh, second_add])).hex()
    assert subgraph_fingerprint(b.build(), 0, (x,), (tanh, add), (add,)) == expected


def batched(*kernels: Kernel) -> list[str]:
    """Fingerprints of kernels of one computation, by one call."""
    first = kernels[0]
    names = ModuleFingerprints(first.module).kernels(first.computation, as_arrays(kernels))
    return [name.hex() for name in names]


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_repeated_in_a_batch_has_the_same_fingerprint(name: str) -> None:
    kernel = KERNELS[name]()
    assert batched(kernel, kernel) == [kernel.fingerprint] * 2


def parts_of(kernel: Kernel, parts: Sequence[tuple[int, ...]]) -> list[Kernel]:
    body = kernel.body
    return [
        Kernel(
            kernel.module,
            kernel.computation,
            part,
            tuple(sorted({o for p in part for o in body.instructions[p].operands} - set(part))),
            part[-1:],
        )
        for part in parts
    ]


def test_kernels_that_share_instructions_do_not_mix() -> None:
    kernel = small.unary(times=4)
    chain = kernel.instructions
    parts = parts_of(kernel, [chain, chain[:2], chain[1:3], chain[:1], chain[3:]])
    expected = [part.fingerprint for part in parts]
    assert batched(*parts) == expected
    assert expected[1] == expected[2] != expected[0]


def test_many_readers_of_one_value_are_told_by_their_places() -> None:
    b = ModuleBuilder()
    shared = b.parameter("f32[64]")
    total = shared
    for _ in range(40):
        total = b.op("add", b.op("multiply", shared, total), b.op("subtract", total, shared))
    kernel = small.finish(b, total)
    assert batched(kernel) == [kernel.fingerprint]
