from __future__ import annotations

from dataclasses import replace

import pytest

from costbench.compiler.trip_counts import assumed_trip_counts, execution_counts, scalar_value
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import parse_shape
from tests.hlo.builder import ComputationBuilder, ModuleBuilder

STATE = "(s32[], s32[])"


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def literal(value: int, field: int = 4) -> bytes:
    """A LiteralProto: shape (field 1, here empty), then packed integers."""
    packed = varint(value)
    return b"\x0a\x00" + bytes([field << 3 | 2, len(packed)]) + packed


def constant(b: ComputationBuilder, value: int) -> int:
    return b.op("constant", shape="s32[]", literal=literal(value))


def loop(
    known: int | None,
    in_condition: int | None = None,
    in_state: int | None = None,
    *,
    first: int | None = 0,
    direction: str = "LT",
    counter_is_left: bool = True,
) -> HloModule:
    """Counts to a bound that the condition holds, or that the state carries along unchanged."""
    b = ModuleBuilder()

    def body(c: ComputationBuilder) -> int:
        p = c.parameter(STATE)
        return c.make_tuple(c.op("add", c.get(p, 0), constant(c, 1)), c.get(p, 1))

    def condition(c: ComputationBuilder) -> int:
        p = c.parameter(STATE)
        bound = c.get(p, 1) if in_condition is None else constant(c, in_condition)
        sides = (c.get(p, 0), bound) if counter_is_left else (bound, c.get(p, 0))
        return c.op("compare", *sides, comparison_direction=direction)

    last = b.parameter("s32[]") if in_state is None else b.op("copy", constant(b, in_state), shape="s32[]")
    start = b.parameter("s32[]") if first is None else constant(b, first)
    return b.build(b.while_(condition, body, b.make_tuple(start, last), trip_count=known))


def counts(module: HloModule, **options: int) -> dict[str, int]:
    runs = execution_counts(module, **options)
    return {c.name.split(".")[0]: n for c, n in zip(module.computations, runs, strict=True)}


def test_a_known_trip_count_is_taken() -> None:
    assert counts(loop(35, in_condition=7)) == {"body": 35, "condition": 36, "main": 1}


def test_an_unknown_loop_is_bounded_by_its_condition() -> None:
    assert counts(loop(None, in_condition=48))["body"] == 48
    assert counts(loop(None, in_state=64))["body"] == 64


@pytest.mark.parametrize(
    ("first", "direction", "limit", "counter_is_left", "iterations"),
    [
        (0, "LE", 30, True, 31),
        (5, "LT", 30, True, 25),
        (0, "GT", 30, False, 30),
        (25, "GE", 1, True, 25),
        (25, "GT", 0, True, 25),
        (25, "LE", 1, False, 25),
        (9, "NE", 2, True, 7),
        (2, "NE", 9, True, 7),
        (None, "LT", 30, True, 30),
        # It falls from somewhere.
        (None, "GE", 1, True, 100),
    ],
)
def test_a_bound_is_how_far_the_counter_goes(
    first: int | None, direction: str, limit: int, counter_is_left: bool, iterations: int
) -> None:
    """By hand: 25, 24, ..., 1 are 25 values of at least 1."""
    for place in ("in_condition", "in_state"):
        module = loop(
            None, **{place: limit}, first=first, direction=direction, counter_is_left=counter_is_left
        )
        assert counts(module)["body"] == iterations, place


def test_a_loop_of_which_nothing_is_known_takes_the_stated_count() -> None:
    assert counts(loop(None))["body"] == 100
    assert counts(loop(None), unknown_trip_count=9)["body"] == 9


def test_what_is_assumed_of_loops_can_be_listed() -> None:
    """Iterations, and whether they come from a bound; a stated count is not assumed."""
    assert assumed_trip_counts(loop(12)) == {}
    assert list(assumed_trip_counts(loop(None, in_condition=7)).values()) == [(7, True)]
    assert list(assumed_trip_counts(loop(None)).values()) == [(100, False)]
    assert list(assumed_trip_counts(loop(None), unknown_trip_count=5).values()) == [(5, False)]


def test_a_sentinel_is_no_bound() -> None:
    assert counts(loop(None, in_condition=2**31 - 1), unknown_trip_count=5)["body"] == 5


def test_a_loop_that_never_runs_tests_once() -> None:
    assert counts(loop(0)) == {"body": 0, "condition": 1, "main": 1}


def test_nested_loops_multiply_and_reducers_do_not_run() -> None:
    b = ModuleBuilder()

    def count(c: ComputationBuilder) -> int:
        return c.op("compare", c.get(c.parameter(STATE), 0), c.constant("s32[]"), comparison_direction="LT")

    def inner(c: ComputationBuilder) -> int:
        p = c.parameter(STATE)
        return c.make_tuple(c.op("add", c.get(p, 0), c.get(p, 1)), c.get(p, 1))

    def outer(c: ComputationBuilder) -> int:
        return c.while_(count, inner, c.parameter(STATE), trip_count=5)

    start = b.make_tuple(b.constant("s32[]"), b.constant("s32[]"))
    b.while_(count, outer, start, trip_count=7)
    b.reduce(b.parameter("f32[8]"), (0,))
    module = b.build()
    reducer = [c.name for c in module.computations].index("add.f32")
    assert execution_counts(module)[module.entry] == 1
    assert execution_counts(module)[reducer] == 0
    assert sorted(execution_counts(module)) == sorted([0, 1, 7, 7 * 5, 7 * (5 + 1), 7 + 1])


def test_callees_run_as_often_as_they_are_called() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[8]")
    callee = b.computation("callee", lambda c: c.op("negate", c.parameter("f32[8]")))
    for _ in range(3):
        x = b.op("call", x, shape="f32[8]", called=(callee,))
    assert counts(b.build())["callee"] == 3


@pytest.mark.parametrize(
    ("shape", "field", "value"), [("s32[]", 4, -3), ("s64[]", 5, 1 << 40), ("u32[]", 6, 7), ("u64[]", 7, 9)]
)
def test_integers_are_read_out_of_literals(shape: str, field: int, value: int) -> None:
    inst = Instruction("c", Opcode.CONSTANT, parse_shape(shape), literal=literal(value, field))
    assert scalar_value(inst) == value


def test_other_literals_have_no_integer_value() -> None:
    inst = Instruction("c", Opcode.CONSTANT, parse_shape("s32[]"))
    assert scalar_value(inst) is None
    assert scalar_value(replace(inst, literal=literal(3, field=6))) is None
    assert scalar_value(replace(inst, shape=parse_shape("f32[]"), literal=literal(3))) is None
    # 0 is not written at all: an empty packed field, or none.
    assert scalar_value(replace(inst, literal=b"\x0a\x00")) is None
