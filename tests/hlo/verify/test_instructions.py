from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from costbench.errors import HloError
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.instruction import (
    GatherDimensions,
    Instruction,
    PaddingDimension,
    ScatterDimensions,
    SliceDimension,
)
from costbench.hlo.module import HloModule
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.shape import parse_shape
from tests.hlo.builder import ModuleBuilder, window

X = "f32[8,8]"
SAME = window((3, 3), (1, 1), ((1, 1), (1, 1)))
Build = Callable[[ModuleBuilder, int], int]


def changed(build: Build, change: dict[str, object]) -> HloModule:
    """A program on one f32[8,8] whose last instruction has other attributes than a valid one has."""
    b = ModuleBuilder()
    module = b.build(build(b, b.parameter(X)))
    return with_root(module, lambda inst: dataclasses.replace(inst, **change))


def with_root(module: HloModule, change: Callable[[Instruction], Instruction]) -> HloModule:
    body = module.entry_computation
    instructions = list(body.instructions)
    instructions[body.root] = change(instructions[body.root])
    computation = dataclasses.replace(body, instructions=tuple(instructions))
    return dataclasses.replace(module, computations=(*module.computations[:-1], computation))


def shaped(text: str) -> dict[str, object]:
    return {"shape": parse_shape(text)}


def gather(b: ModuleBuilder, x: int) -> int:
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, 8))
    return b.op("gather", x, b.constant("s32[5]"), shape="f32[5,8]", gather=numbers)


def scatter(b: ModuleBuilder, x: int) -> int:
    numbers = ScatterDimensions((1,), (0,), (0,), 1)
    called = (b.function("add", b.shape(x)),)
    update = b.parameter("f32[5,8]")
    return b.op("scatter", x, b.constant("s32[5]"), update, shape=X, scatter=numbers, called=called)


def gathering(**numbers: object) -> dict[str, object]:
    return {"gather": dataclasses.replace(GatherDimensions((1,), (0,), (0,), 1, (1, 8)), **numbers)}


def scattering(**numbers: object) -> dict[str, object]:
    return {"scatter": dataclasses.replace(ScatterDimensions((1,), (0,), (0,), 1), **numbers)}


def sort(b: ModuleBuilder, x: int) -> int:
    def less(c: ModuleBuilder) -> int:
        return c.op("compare", c.parameter("f32[]"), c.parameter("f32[]"), comparison_direction="LT")

    return b.op("sort", x, dimensions=(0,), called=(b.computation("less", less),))


def convolution(b: ModuleBuilder, x: int) -> int:
    image = b.reshape(x, "f32[1,4,4,4]")
    groups = {"feature_group_count": 2}
    return b.convolution(image, b.parameter("f32[3,3,2,6]"), windows=SAME, groups=groups)


def slid(b: ModuleBuilder, x: int) -> int:
    return b.select_and_scatter(x, b.parameter("f32[4,4]"), window((2, 2), (2, 2)))


def dynamic_slice(b: ModuleBuilder, x: int) -> int:
    zero = b.constant("s32[]")
    return b.op("dynamic-slice", x, zero, zero, shape="f32[2,8]", dynamic_slice_sizes=(2, 8))


def update(b: ModuleBuilder, x: int) -> int:
    zero = b.constant("s32[]")
    return b.op("dynamic-update-slice", x, b.parameter("f32[2,8]"), zero, zero, shape=X)


def loop(b: ModuleBuilder, x: int) -> int:
    state = b.make_tuple(b.constant("s32[]"), x)
    shape = b.shape(state)

    def condition(c: ModuleBuilder) -> int:
        return c.op("compare", c.get(c.parameter(shape), 0), c.constant("s32[]"), comparison_direction="LT")

    return b.while_(condition, lambda c: c.parameter(shape), state)


def call(b: ModuleBuilder, x: int) -> int:
    shape = b.shape(x)
    return b.op("call", x, shape=X, called=(b.computation("f", lambda c: c.op("tanh", c.parameter(shape))),))


def plain(opcode: str, number: int = 1, **attributes: object) -> Build:
    return lambda b, x: b.op(opcode, *[x] * number, **attributes)


CASES: dict[str, tuple[Build, dict[str, object], str]] = {
    "unary extents": (plain("tanh"), shaped("f32[8,7]"), "operand 0 f32[8,8]{1,0} (expected extents"),
    "binary type": (plain("add", 2), shaped("s32[8,8]"), "extents and type of the result s32[8,8]"),
    "binary operands": (plain("add", 2), {"operands": (0,)}, "operands of add: 1 (expected 2)"),
    "array": (plain("add", 2), shaped("(f32[8])"), "add of a tuple (f32[8]{0}) (expected an array)"),
    "compare": (
        plain("compare", 2, shape="pred[8,8]", comparison_direction="EQ"),
        shaped("f32[8,8]"),
        "elements of type pred",
    ),
    "bitcast-convert": (
        plain("bitcast-convert", shape="u16[8,8,2]"),
        shaped("u16[8,8]"),
        "the bits of the operand f32[8,8]",
    ),
    "broadcast axis": (
        lambda b, x: b.broadcast(x, "f32[8,8,2]", (0, 1)),
        {"dimensions": (0, 3)},
        "dimensions (0, 3) (expected distinct axes below 3)",
    ),
    "broadcast rank": (
        lambda b, x: b.broadcast(x, "f32[8,8,2]", (0, 1)),
        {"dimensions": (0,)},
        "dimensions: 1 (expected 2)",
    ),
    "broadcast extent": (
        lambda b, x: b.broadcast(x, "f32[8,8,2]", (0, 1)),
        {"dimensions": (0, 2)},
        "along dimensions (0, 2)",
    ),
    "reshape": (lambda b, x: b.reshape(x, "f32[64]"), shaped("f32[65]"), "elements: 65 (expected 64)"),
    "bitcast": (plain("bitcast", shape="f32[64]"), shaped("f16[64]"), "bits: 1024 (expected 2048)"),
    "transpose axes": (lambda b, x: b.transpose(x, (1, 0)), {"dimensions": (1, 1)}, "distinct axes below 2"),
    "transpose result": (
        lambda b, x: b.transpose(b.slice_of(x, (0, 0), (8, 2)), (1, 0)),
        shaped("f32[8,2]"),
        "expected extents [2,8]",
    ),
    "copy": (plain("copy"), shaped("f32[64]"), "shape f32[64]{0} (expected f32[8,8]"),
    "reduce axis": (lambda b, x: b.reduce(x, (1,)), {"dimensions": (2,)}, "distinct axes below 2"),
    "reduce result": (lambda b, x: b.reduce(x, (1,)), shaped("f32[8,1]"), "expected extents [8]"),
    "reduce pairs": (lambda b, x: b.reduce(x, (1,)), {"operands": (0, 1, 1)}, "a start value for each array"),
    "reduce start": (lambda b, x: b.reduce(x, (1,)), {"operands": (0, 0)}, "a scalar to start from"),
    "window rank": (
        lambda b, x: b.reduce_window(x, window((2, 2))),
        {"window": window((2,))},
        "window dimensions: 1 (expected 2)",
    ),
    "window result": (
        lambda b, x: b.reduce_window(x, window((2, 2))),
        shaped("f32[8,8]"),
        "expected extents [7,7]",
    ),
    "select-and-scatter": (slid, {"window": window((2, 2))}, "source f32[4,4]{1,0} (expected extents [7, 7]"),
    "dot numbers": (lambda b, x: b.dot(x, x), {"dot": None}, "no dot_dimension_numbers"),
    "dot result": (lambda b, x: b.dot(x, x), shaped("f32[8]"), "expected extents [8,8]"),
    "member": (lambda b, x: b.get(b.make_tuple(x), 0), {"tuple_index": 1}, "member 1 of (f32[8,8]"),
    "member shape": (lambda b, x: b.get(b.make_tuple(x), 0), shaped("f32[8]"), "shape f32[8]{0} (expected"),
    "tuple": (lambda b, x: b.make_tuple(x), shaped("(f32[8], f32[8])"), "members: 2 (expected 1)"),
    "tuple member": (
        lambda b, x: b.make_tuple(x),
        shaped("(f32[8])"),
        "member 0 f32[8]{0} (expected f32[8,8]",
    ),
    "slice rank": (lambda b, x: b.slice_of(x, (0, 0), (4, 4)), {"slices": ()}, "slice dimensions: 0"),
    "slice stride": (
        lambda b, x: b.slice_of(x, (0, 0), (4, 4)),
        {"slices": (SliceDimension(0, 4, 0), SliceDimension(0, 4, 1))},
        "slice [0:4:0]",
    ),
    "slice limit": (
        lambda b, x: b.slice_of(x, (0, 0), (4, 4)),
        {"slices": (SliceDimension(0, 9, 1), SliceDimension(0, 4, 1))},
        "0 <= start <= limit <= 8",
    ),
    "slice result": (
        lambda b, x: b.slice_of(x, (0, 0), (4, 4)),
        {"slices": (SliceDimension(0, 4, 3), SliceDimension(0, 4, 1))},
        "expected extents [2,4]",
    ),
    "dynamic-slice": (dynamic_slice, {"dynamic_slice_sizes": (9, 8)}, "at most the extents of the operand"),
    "dynamic-slice starts": (dynamic_slice, {"operands": (0, 1)}, "2 scalars, one for each axis"),
    "update": (update, {"operands": (0, 2, 2, 1)}, "start indices f32[2,8]{1,0}, s32[] (expected integers)"),
    "pad rank": (
        lambda b, x: b.pad(x, b.constant("f32[]"), [(0, 0, 0)] * 2),
        {"padding": ()},
        "padding dimensions: 0",
    ),
    "pad result": (
        lambda b, x: b.pad(x, b.constant("f32[]"), [(0, 0, 0)] * 2),
        {"padding": (PaddingDimension(1, 0, 1), PaddingDimension(-3, 0, 0))},
        "expected extents [16,5]",
    ),
    "concatenate axes": (lambda b, x: b.concatenate([x, x], 0), {"dimensions": (0, 1)}, "dimensions: 2"),
    "concatenate": (lambda b, x: b.concatenate([x, x], 0), shaped("f32[8,16]"), "expected extents [16,8]"),
    "iota": (plain("iota", 0, shape=X, dimensions=(1,)), {"dimensions": (2,)}, "distinct axes below 2"),
    "reverse": (plain("reverse", dimensions=(0,)), {"dimensions": (0, 0)}, "distinct axes below 2"),
    "sort axis": (sort, {"dimensions": (5,)}, "distinct axes below 2"),
    "sort result": (sort, shaped("f32[64]"), "expected extents [8,8]"),
    "update operands": (
        update,
        {"operands": (0,)},
        "operands of dynamic-update-slice: 1 (expected 2 or more)",
    ),
    "gather numbers": (gather, {"gather": None}, "no gather_dimension_numbers"),
    "gather offset": (gather, gathering(offset_dims=(2,)), "offset_dims (2,)"),
    "gather slice": (gather, gathering(slice_sizes=(1, 9)), "slice_sizes (1, 9)"),
    "gather collapsed": (gather, gathering(slice_sizes=(2, 8)), "slice size 2 of axis 0 (expected at most 1"),
    "gather vector": (gather, gathering(index_vector_dim=0), "length of an index vector: 5 (expected 1)"),
    "gather map": (gather, gathering(start_index_map=(2,)), "start_index_map (2,)"),
    "gather result": (gather, shaped("f32[8,5]"), "expected extents [5,8]"),
    "gather batching": (
        gather,
        gathering(operand_batching_dims=(1,)),
        "batching dimensions of the indices: 0 (expected 1)",
    ),
    "scatter pairs": (scatter, {"operands": (0, 1, 1, 1)}, "an update for each array, and the indices"),
    "scatter window": (scatter, scattering(update_window_dims=()), "update_window_dims: 0 (expected 1)"),
    "scatter axis": (scatter, scattering(inserted_window_dims=(2,)), "inserted_window_dims (2,)"),
    "scatter result": (scatter, shaped("f32[8,9]"), "expected extents [8,8]"),
    "fft": (plain("fft", shape="c64[8,5]", fft_length=(8,), fft_type=2), {"fft_length": (7,)}, "[8,7]"),
    "cholesky": (plain("cholesky"), shaped("f32[8]"), "expected extents [8,8]"),
    "triangular-solve": (plain("triangular-solve", 2), shaped("f32[8,7]"), "expected extents [8,8]"),
    "while": (loop, shaped("(s32[], f32[8])"), "expected (s32[], f32[8,8]"),
    "call": (call, shaped("f32[8]"), "shape f32[8]{0} (expected f32[8,8]"),
    "call arguments": (call, {"operands": ()}, "arguments: 0 (expected 1)"),
    "custom-call type": (plain("custom-call", shape=X), shaped("invalid[8]"), "a known element type"),
    "size": (plain("custom-call", shape=X), shaped("f32[4294967296,4294967296]"), "less than 2^63 bits"),
    "negative": (plain("custom-call", shape=X), shaped("f32[8]{1,0}"), "layout (1, 0) of 1 axes"),
    "rng": (lambda b, x: b.op("rng", b.constant("f32[]"), shape=X), {"operands": (0,)}, "a scalar parameter"),
    "select": (
        lambda b, x: b.op("select", b.constant("pred[]"), x, x, shape=X),
        {"operands": (0, 0, 0)},
        "operand 0 f32[8,8]{1,0} (expected elements of type pred)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_the_operands_is_refused_by_name(case: str) -> None:
    build, change, problem = CASES[case]
    with pytest.raises(HloError, match=re.escape(problem)) as caught:
        changed(build, change).verify(where="file.hlo.pb")
    assert re.match(r"file\.hlo\.pb: main/[\w.-]+: ", str(caught.value))
    assert "\n" not in str(caught.value)


VALID: dict[str, Build] = {
    "gather": gather,
    "scatter": scatter,
    "sort": sort,
    "convolution": convolution,
    "select-and-scatter": slid,
    "dynamic-slice": dynamic_slice,
    "dynamic-update-slice": update,
    "while": loop,
    "call": call,
    "older dynamic-slice": lambda b, x: b.op(
        "dynamic-slice", x, b.constant("s32[2]"), shape="f32[2,8]", dynamic_slice_sizes=(2, 8)
    ),
    "mixed precision": lambda b, x: b.op("add", x, b.convert(x, "bf16"), shape=X),
    "inverse real fft": plain("fft", shape="f32[8,14]", fft_length=(14,), fft_type=3),
    "widening bitcast": plain("bitcast", shape="u64[4,8]"),
    "clamp by scalars": lambda b, x: b.op("clamp", b.constant("f32[]"), x, b.constant("f32[]"), shape=X),
    "interior padding": lambda b, x: b.pad(x, b.constant("f32[]"), [(1, 0, 1), (-3, 0, 0)]),
    "custom-call of nothing": plain("custom-call", shape="()"),
}


@pytest.mark.parametrize("case", VALID)
def test_what_xla_accepts_is_accepted(case: str) -> None:
    module = changed(VALID[case], {})
    assert module_from_bytes(module_to_bytes(module), where=case) == module


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("input_batch", 4, "input dimensions (4, 3, 1, 2) (expected distinct axes below 4)"),
        ("input_spatial", (1,), "input dimensions: 3 (expected 4)"),
        ("kernel_output_feature", 2, "kernel dimensions (2, 2, 0, 1)"),
        ("output_feature", -1, "output dimensions (0, -1, 1, 2)"),
    ],
)
def test_convolution_dimension_numbers_are_permutations(field: str, value: object, problem: str) -> None:
    b = ModuleBuilder()
    convolution(b, b.parameter(X))

    def change(inst: Instruction) -> Instruction:
        assert inst.convolution is not None
        return dataclasses.replace(inst, convolution=dataclasses.replace(inst.convolution, **{field: value}))

    with pytest.raises(HloError, match=re.escape(problem)):
        with_root(b.build(), change).verify()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"feature_group_count": 1}, "4 input features (expected 2, those of the kernel times"),
        ({"feature_group_count": 4}, "4 input features (expected 8"),
        ({"feature_group_count": 2, "batch_group_count": 2}, "only one of them above 1"),
        ({"window": window((3, 2), (1, 1), ((1, 1), (1, 1)))}, "window size 2 (expected extent of axis 1"),
        ({"window": window((3, 3), (1, 1), ((1, 1), (1, 0)))}, "expected extents [1,4,3,6]"),
        ({"window": window((3, 3), (0, 1), ((1, 1), (1, 1)))}, "a size, a stride and dilations of 1 or more"),
    ],
)
def test_convolution_groups_and_windows_are_checked(change: dict[str, object], problem: str) -> None:
    with pytest.raises(HloError, match=re.escape(problem)):
        changed(convolution, change).verify()


@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "problem"),
    [
        ((2,), (0,), "f32[8,6]", "lhs batch and contracting dimensions (2,)"),
        ((1,), (0, 1), "f32[8,6]", "rhs_contracting_dims: 2 (expected 1)"),
        ((0,), (1,), "f32[8,6]", "axis 1 of rhs f32[8,6]{1,0} (expected 8 elements, as axis 0 of lhs"),
        ((1,), (0,), "f32[6,8]", "expected extents [8,6]"),
    ],
)
def test_dot_dimension_numbers_are_checked(
    lhs: tuple[int, ...], rhs: tuple[int, ...], result: str, problem: str
) -> None:
    b = ModuleBuilder()
    b.dot(b.parameter(X), b.parameter("f32[8,6]"))

    def change(inst: Instruction) -> Instruction:
        assert inst.dot is not None
        numbers = dataclasses.replace(inst.dot, lhs_contracting=lhs, rhs_contracting=rhs)
        return dataclasses.replace(inst, dot=numbers, shape=parse_shape(result))

    with pytest.raises(HloError, match=re.escape(problem)):
        with_root(b.build(), change).verify()


def test_called_computations_take_and_return_what_their_callers_say() -> None:
    b = ModuleBuilder()
    x = b.parameter(X)
    vector = b.shape(b.reshape(x, "f32[64]"))
    narrow = b.computation("narrow", lambda c: c.op("tanh", c.parameter(vector)))
    with pytest.raises(HloError, match=r"argument 0 f32\[8,8\].* \(expected f32\[64\]"):
        b.build(b.op("call", x, shape=X, called=(narrow,)))
    b = ModuleBuilder()
    x = b.parameter(X)
    with pytest.raises(HloError, match=r"computation of parameters \(f32\[8,8\].*\(expected 2 scalars"):
        called = (b.computation("unary", lambda c: c.op("tanh", c.parameter(X))),)
        b.build(b.op("reduce", x, b.constant("f32[]"), shape="f32[8]", dimensions=(1,), called=called))
