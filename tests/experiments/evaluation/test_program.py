"""Kernels of each kind, the kind that weighs most first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from costbench.compiler.kernel import kernel_from_module
from costbench.experiments.evaluation.program import kernel_kind
from tests.hlo.builder import ModuleBuilder


def _dot(b: ModuleBuilder, x: int) -> int:
    return b.dot(x, x, (1, 1))


def _move(b: ModuleBuilder, x: int) -> int:
    return b.transpose(x, (1, 0))


CASES: dict[str, tuple[Callable[[ModuleBuilder, int], int], str]] = {
    "dot": (_dot, "contraction"),
    "dot with an activation": (lambda b, x: b.op("tanh", _dot(b, x)), "contraction"),
    "dot that is reduced": (lambda b, x: b.reduce(_dot(b, x), (0,)), "contraction"),
    "sum of something": (lambda b, x: b.reduce(b.op("tanh", x), (0,)), "reduction"),
    "tanh": (lambda b, x: b.op("tanh", x), "elementwise"),
    "tanh of moved data": (lambda b, x: b.op("tanh", _move(b, x)), "elementwise"),
    "transposition": (_move, "data movement"),
}


@pytest.mark.parametrize("name", CASES)
def test_kinds(name: str) -> None:
    build, expected = CASES[name]
    builder = ModuleBuilder("kernel")
    build(builder, builder.parameter("f32[64,128]"))
    assert kernel_kind(kernel_from_module(builder.build())) == expected
