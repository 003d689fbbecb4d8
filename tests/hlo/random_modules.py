"""Random small programs: every value is f32[8,8], so that any two of them can meet."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import strategies as st

from costbench.hlo.instruction import GatherDimensions, Instruction, ScatterDimensions
from costbench.hlo.module import HloComputation, HloModule
from tests.hlo.builder import ModuleBuilder, window

SQUARE = "f32[8,8]{1,0}"
UNARY = ("tanh", "negate", "exponential", "copy")
BINARY = ("add", "multiply", "subtract", "maximum")


def _loop(b: ModuleBuilder, value: int) -> int:
    state = b.make_tuple(b.constant("s32[]"), value)
    shape = b.shape(state)

    def condition(c: ModuleBuilder) -> int:
        return c.op("compare", c.get(c.parameter(shape), 0), c.constant("s32[]"), comparison_direction="LT")

    def body(c: ModuleBuilder) -> int:
        p = c.parameter(shape)
        return c.make_tuple(c.op("add", c.get(p, 0), c.constant("s32[]")), c.op("tanh", c.get(p, 1)))

    return b.get(b.while_(condition, body, state, trip_count=7), 1)


def _gather(b: ModuleBuilder, value: int) -> int:
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, 8))
    return b.op("gather", value, b.constant("s32[8]"), shape=SQUARE, gather=numbers)


def _scatter(b: ModuleBuilder, value: int, update: int) -> int:
    numbers = ScatterDimensions((1,), (0,), (0,), 1)
    called = (b.function("add", b.shape(value)),)
    return b.op("scatter", value, b.constant("s32[8]"), update, shape=SQUARE, scatter=numbers, called=called)


def _convolution(b: ModuleBuilder, value: int) -> int:
    image = b.reshape(value, "f32[1,4,4,4]")
    kernel = b.parameter("f32[3,3,2,4]{0,1,2,3}")
    made = b.convolution(
        image, kernel, windows=window((3, 3), (1, 1), ((1, 1), (1, 1))), groups={"feature_group_count": 2}
    )
    return b.reshape(made, SQUARE)


STEPS = (
    *(lambda b, x, y, kind=kind: b.op(kind, x) for kind in UNARY),
    *(lambda b, x, y, kind=kind: b.op(kind, x, y) for kind in BINARY),
    lambda b, x, y: b.op("select", b.op("compare", x, y, comparison_direction="GT"), x, y),
    lambda b, x, y: b.dot(x, y),
    lambda b, x, y: b.transpose(x, (1, 0)),
    lambda b, x, y: b.op("copy", x, shape="f32[8,8]{0,1}"),
    lambda b, x, y: b.broadcast(b.reduce(x, (1,)), SQUARE, (0,)),
    lambda b, x, y: b.reduce_window(x, window((3, 1), padding=((1, 1), (0, 0))), "maximum"),
    lambda b, x, y: b.select_and_scatter(x, y, window((1, 1))),
    lambda b, x, y: b.pad(b.slice_of(x, (2, 0), (8, 8)), b.constant("f32[]"), ((1, 1, 0), (0, 0, 0))),
    lambda b, x, y: b.slice_of(b.concatenate((x, y), 0), (4, 0), (12, 8)),
    lambda b, x, y: b.convert(b.convert(x, "bf16"), "f32"),
    lambda b, x, y: b.fusion(lambda c: c.op("add", c.parameter(SQUARE), c.parameter(SQUARE)), x, y),
    lambda b, x, y: _loop(b, x),
    lambda b, x, y: _gather(b, x),
    lambda b, x, y: _scatter(b, x, y),
    lambda b, x, y: _convolution(b, x),
)


@st.composite
def modules(draw: st.DrawFn, max_steps: int = 8) -> HloModule:
    """A random program over all kinds of instruction with attributes."""
    b = ModuleBuilder("random")
    values = [b.parameter(SQUARE) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, max_steps))):
        step = draw(st.sampled_from(STEPS))
        values.append(step(b, draw(st.sampled_from(values)), draw(st.sampled_from(values))))
    roots = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
    return b.build(*roots)


def renumbered(module: HloModule, seed: int) -> HloModule:
    """The same program, renamed, its instructions and computations stored in another valid order."""
    generator = np.random.default_rng(seed)
    order = _random_order([_callees(c) for c in module.computations], generator)
    new_index = {old: new for new, old in enumerate(order)}
    computations = tuple(_shuffled(module.computations[old], new_index, generator) for old in order)
    return HloModule("renamed", computations, new_index[module.entry]).verify()


def _callees(computation: HloComputation) -> set[int]:
    return {callee for inst in computation.instructions for callee in inst.called}


def _random_order(needs: list[set[int]], generator: np.random.Generator) -> list[int]:
    done: list[int] = []
    while len(done) < len(needs):
        ready = [i for i, wanted in enumerate(needs) if i not in done and wanted <= set(done)]
        done.append(int(generator.choice(ready)))
    return done


def _shuffled(
    computation: HloComputation, new_index: dict[int, int], generator: np.random.Generator
) -> HloComputation:
    order = _random_order([set(inst.operands) for inst in computation.instructions], generator)
    new = {old: position for position, old in enumerate(order)}
    instructions = tuple(_moved(computation.instructions[old], new, new_index, generator) for old in order)
    return HloComputation(f"c{generator.integers(1 << 30)}", instructions, new[computation.root])


def _moved(
    inst: Instruction, new: dict[int, int], new_index: dict[int, int], generator: np.random.Generator
) -> Instruction:
    return dataclasses.replace(
        inst,
        name=f"i{generator.integers(1 << 30)}",
        operands=tuple(new[o] for o in inst.operands),
        called=tuple(new_index[c] for c in inst.called),
    )
