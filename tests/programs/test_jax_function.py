"""A JAX function of a user's own becomes the HLO of a TPU, and what is wrong with it is one line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.shape import ElementType
from costbench.programs.jax_function import lower_function

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs the corpus extra (jax)")
MODULE = """
import jax
import jax.numpy as jnp

WIDTH = 8

def dense(x, w):
    return jnp.tanh(x @ w)

def many(a, b, c, d):
    return a, b, c, d

def noise(key):
    return jax.random.normal(jax.random.wrap_key_data(key, impl="rbg"), (8, 128))

def loss(weights, x):
    return (dense(x, weights["w"]) + weights["b"]).sum()

def step():
    weights = {"w": jax.ShapeDtypeStruct((16, 8), jnp.float32), "b": jnp.zeros(8)}
    return jax.grad(loss), (weights, jnp.zeros((4, 16)))

def broken(x):
    return x @ x.undefined
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the current folder."""
    name = f"model_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


def entry(proto: bytes) -> tuple[Instruction, ...]:
    made = module_from_bytes(proto, where="made")
    return tuple(made.computations[made.entry].instructions)


@needs_jax
def test_shapes_are_those_of_the_arguments(module: str) -> None:
    body = entry(lower_function(f"{module}:dense", ["f32[32,64]", "f32[64,128]"]))
    shapes = {(inst.opcode, inst.shape.dimensions) for inst in body}
    assert {(Opcode.PARAMETER, (32, 64)), (Opcode.PARAMETER, (64, 128)), (Opcode.TANH, (32, 128))} <= shapes


@needs_jax
def test_every_kind_of_number(module: str) -> None:
    body = entry(lower_function(f"{module}:many", ["bf16[2]", "pred[]", "u8[3,1]", "f8e4m3fn[4]"]))
    given = [inst.shape for inst in body if inst.opcode is Opcode.PARAMETER]
    found = [(shape.element_type, shape.dimensions) for shape in given]
    wanted = [ElementType.BF16, ElementType.PRED, ElementType.U8, ElementType.F8E4M3FN]
    assert found == list(zip(wanted, [(2,), (), (3, 1), (4,)], strict=True))


@needs_jax
def test_it_is_the_program_of_a_tpu(module: str) -> None:
    made = module_from_bytes(lower_function(f"{module}:noise", ["u32[4]"]), where="made")
    opcodes = {inst.opcode for one in made.computations for inst in one.instructions}
    assert Opcode.RNG_BIT_GENERATOR in opcodes


@needs_jax
def test_a_function_may_bring_its_arguments(module: str) -> None:
    body = entry(lower_function(f"{module}:step", []))
    shapes = {inst.shape.dimensions for inst in body if inst.opcode is Opcode.PARAMETER}
    assert {(16, 8), (4, 16)} <= shapes


@needs_jax
@pytest.mark.parametrize(
    ("function", "shapes", "problem"),
    [
        ("dense", ["f32[32,64]", "f32(64)"], r"no shape of an array: 'f32\(64\)'"),
        ("dense", ["f32[32,64]", "(f32[2])"], "no shape of an array"),
        (
            "dense",
            ["f32[32,64]", "f32[65,128]"],
            r"model_of.*:dense: model_of.*line 8, in dense: TypeError: dot",
        ),
        ("broken", ["f32[8,8]"], r"line 24, in broken: AttributeError"),
        ("WIDTH", ["f32[8]"], "is a int"),
        ("missing", ["f32[8]"], "no attribute 'missing'"),
        ("dense", [], "line|missing 2 required"),
    ],
)
def test_what_is_wrong_is_one_line(module: str, function: str, shapes: list[str], problem: str) -> None:
    with pytest.raises(DataError, match=problem) as raised:
        lower_function(f"{module}:{function}", shapes)
    assert "\n" not in str(raised.value)


@needs_jax
def test_what_brings_no_arguments_is_told_so(module: str) -> None:
    (Path.cwd() / f"{module}.py").write_text("def nothing():\n    return 5\n")
    with pytest.raises(DataError, match="without arguments it returned a int"):
        lower_function(f"{module}:nothing", [])


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(DataError, match="JAX is not installed"):
        lower_function("model:step", [])
