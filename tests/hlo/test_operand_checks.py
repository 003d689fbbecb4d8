from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from costbench.errors import HloError
from costbench.hlo.builder import ModuleBuilder
from costbench.hlo.instruction import Instruction, SliceDimension
from costbench.hlo.module import HloModule
from costbench.hlo.text.notation import parse_shape, window

X = "f32[8,8]"


def program(last: Callable[[ModuleBuilder, int], int]) -> HloModule:
    b = ModuleBuilder()
    return b.build(last(b, b.parameter(X)))


def with_root(module: HloModule, change: Callable[[Instruction], Instruction]) -> HloModule:
    body = module.entry_computation
    instructions = list(body.instructions)
    instructions[body.root] = change(instructions[body.root])
    changed = dataclasses.replace(body, instructions=tuple(instructions))
    return dataclasses.replace(module, computations=(*module.computations[:-1], changed))


CASES: dict[str, tuple[Callable[[ModuleBuilder, int], int], dict[str, object], str]] = {
    "broadcast": (lambda b, x: b.broadcast(x, "f32[8,8,2]", (0, 1)), {"dimensions": (0, 3)}, "below 3"),
    "broadcast rank": (lambda b, x: b.broadcast(x, "f32[8,8,2]", (0, 1)), {"dimensions": (0,)}, "expected 2"),
    "reshape": (lambda b, x: b.reshape(x, "f32[64]"), {"shape": parse_shape("f32[65]")}, "elements: 65"),
    "transpose": (lambda b, x: b.transpose(x, (1, 0)), {"dimensions": (1, 1)}, "different axes"),
    "reduce": (lambda b, x: b.reduce(x, (1,)), {"dimensions": (2,)}, "below 2"),
    "reduce pairs": (lambda b, x: b.reduce(x, (1,)), {"operands": (0, 1, 1)}, "start value"),
    "window": (
        lambda b, x: b.reduce_window(x, window((2, 2))),
        {"window": window((2,))},
        "window dimensions",
    ),
    "dot": (lambda b, x: b.dot(x, x), {"dot": None}, "without dimension numbers"),
    "dot rank": (lambda b, x: b.dot(x, x), {"shape": parse_shape("f32[8]")}, "rank: 1, expected 2"),
    "member": (lambda b, x: b.get(b.make_tuple(x), 0), {"tuple_index": 1}, "member 1"),
    "tuple": (lambda b, x: b.make_tuple(x), {"shape": parse_shape("(f32[8], f32[8])")}, "members: 2"),
    "slice": (lambda b, x: b.slice_of(x, (0, 0), (4, 4)), {"slices": ()}, "slices: 0"),
    "stride": (
        lambda b, x: b.slice_of(x, (0, 0), (4, 4)),
        {"slices": (SliceDimension(0, 4, 0), SliceDimension(0, 4, 1))},
        "stride below 1",
    ),
    "pad": (lambda b, x: b.pad(x, b.constant("f32[]"), [(0, 0, 0)] * 2), {"padding": ()}, "padded axes"),
    "concatenate": (lambda b, x: b.concatenate([x, x], 0), {"dimensions": (0, 1)}, "dimensions: 2"),
    "sort": (
        lambda b, x: b.op("sort", x, dimensions=(0,), called=(b.function("compare", b.shape(x)),)),
        {"dimensions": (5,)},
        "below 2",
    ),
    "reverse": (lambda b, x: b.op("reverse", x, dimensions=(0,)), {"dimensions": (0, 0)}, "different axes"),
    "array": (lambda b, x: b.op("add", x, x), {"shape": parse_shape("(f32[8])")}, "add of a tuple"),
    "few": (
        lambda b, x: b.op("dynamic-update-slice", x, x, shape=X),
        {"operands": (0,)},
        "1 operands, expected 2 or more",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_attributes_that_do_not_fit_the_operands_are_refused(case: str) -> None:
    build, change, problem = CASES[case]
    module = program(build)
    with pytest.raises(HloError, match=problem):
        with_root(module, lambda inst: dataclasses.replace(inst, **change)).verify()


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("input_batch", 4, "input axes"),
        ("input_spatial", (1,), "input axes: 3, expected 4"),
        ("kernel_output_feature", 2, "kernel axes .* different"),
        ("output_feature", -1, "output axes"),
    ],
)
def test_convolution_axes_are_checked(field: str, value: object, problem: str) -> None:
    b = ModuleBuilder()
    b.convolution(b.parameter("f32[1,8,8,2]"), b.parameter("f32[3,3,2,4]"))
    with pytest.raises(HloError, match=problem):
        with_root(
            b.build(),
            lambda inst: dataclasses.replace(
                inst, convolution=dataclasses.replace(inst.convolution, **{field: value})
            ),
        ).verify()
