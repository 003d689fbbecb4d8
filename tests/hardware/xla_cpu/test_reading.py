"""Programs as `jax.jit(f).lower(...)` dumps them, with calls of calls, on the real backend."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from costbench.cli.app import complete_app
from costbench.errors import DataError, HloError
from costbench.hardware.xla_cpu.acceptance import LeftOutError
from costbench.hardware.xla_cpu.backend import Backend
from costbench.hardware.xla_cpu.device import ProgramRunner
from costbench.hardware.xla_cpu.program import MachineProgram
from costbench.programs.manifest import save_manifest
from tests.command_line import costbench_process
from tests.hardware.xla_cpu.programs import TEXT, write_small
from tests.hlo.builder import ModuleBuilder

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs the extra jax")


def lowered() -> tuple[Any, Any]:
    """Returns a function whose functions are calls, and its HLO as JAX dumps it."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def layer(x: Any, w: Any) -> Any:
        return jax.nn.relu(jnp.where(x > 0.6, x, -x) @ w - 0.5)

    def network(x: Any, w: Any, v: Any) -> Any:
        h = layer(layer(x, w), w)
        # XLA sums along the first axis, and computes weights of grouped convolutions, between transposes.
        images = jnp.reshape(h, (4, 8, 8, 16))[..., :6] + 1.0
        gradient = jax.grad(lambda v: (jnp.tanh(_grouped(images, v)) ** 2).sum())(v)
        return h, jnp.cumsum(jax.nn.silu(h), axis=0), gradient, jnp.clip(h.sum(0), 0, 3)

    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 64), (64, 64), (3, 3, 3, 8))]
    return network, jax.jit(network).lower(*shapes).compiler_ir("hlo")


def _grouped(images: Any, weights: Any) -> Any:
    from jax import lax

    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        images, weights, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=2
    )


def facts_of_a_dump(folder: Path) -> dict[str, Any]:
    from costbench.hardware.xla_cpu.backend import Backend, largest_difference
    from costbench.hardware.xla_cpu.device import ProgramRunner
    from costbench.hardware.xla_cpu.reading import machine_program, read_program_proto

    backend = Backend()
    import jax

    network, hlo = lowered()
    binary, text = folder / "network.hlo.pb", folder / "network.hlo.txt"
    binary.write_bytes(hlo.as_serialized_hlo_module_proto())
    text.write_text(hlo.as_hlo_text(), "utf-8")
    program, same = (machine_program(read_program_proto(p), p, "network") for p in (binary, text))
    runner = ProgramRunner(program, backend)
    expected = jax.jit(network)(*runner.inputs)
    configs = {"own": runner.own_default, "default": runner.compile(program.space.default)}
    outputs = {name: backend.run(config.executable.loaded, runner.inputs) for name, config in configs.items()}
    rows = configs["default"].rows(runner.measure([configs["default"]])[0])
    return {
        "differences": {
            name: largest_difference(arrays, expected)
            for name, arrays in (outputs | {"unfused": runner.reference}).items()
        },
        "opcodes": {
            inst.opcode.xla_name for body in program.module.computations for inst in body.instructions
        },
        "runs": {row.name: row.runs for row in rows},
        "literals": [
            [inst.literal for body in each.module.computations for inst in body.instructions]
            for each in (program, same)
        ],
    }


@needs_jax
def test_a_dump_with_nested_calls_is_measured_as_what_it_computes(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        facts = process.submit(facts_of_a_dump, tmp_path).result()
    assert set(facts["differences"]) == {"own", "default", "unfused"}
    assert max(facts["differences"].values()) < 1e-5
    assert "call" not in facts["opcodes"]
    # Both products of the two layers are one kind of kernel, which runs twice in all.
    [products] = [runs for name, runs in facts["runs"].items() if "dot_general" in name]
    assert products == 2
    binary, text = facts["literals"]
    assert text == binary
    assert any(np.frombuffer(literal[-4:], np.float32)[0] == np.float32(0.6) for literal in binary if literal)


@needs_jax
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_the_command_takes_text_with_its_constants(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "small.hlo.txt").write_text(TEXT, encoding)
    done = costbench_process(["measure", "small.hlo.txt", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    configs = json.loads(done.stdout)["configs"]
    assert set(configs) == {"XLA's own", "costbench's"}
    assert sorted(kernel["instructions"] for kernel in configs["costbench's"]["kernels"]) == [1, 3, 6]


LOSSY = """HloModule lossy

ENTRY main {
  x = f32[4,4] parameter(0)
  ROOT y = f32[4,4] custom-call(x), custom_call_target="Sharding"
}
"""


@needs_jax
@pytest.mark.parametrize("command", [("measure",), ("tune", "--task", "fusion", "--device", "xla_cpu")])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LOSSY, "p.hlo.txt: y: attributes of custom-call Sharding are not read (expected a program"),
        (LOSSY.replace("custom-call(x)", "nonsense(x)"), "p.hlo.txt: "),
    ],
)
def test_programs_that_cannot_be_given_to_xla_say_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], text: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.hlo.txt").write_text(text, "utf-8")
    result = CliRunner().invoke(complete_app(), [*command, "p.hlo.txt"])
    assert isinstance(result.exception, HloError)
    assert str(result.exception).startswith(problem)


def test_inputs_beyond_memory_are_refused_before_anything_is_compiled() -> None:
    b = ModuleBuilder("huge")
    program = MachineProgram(b.build(b.op("tanh", b.parameter("f32[1000000,1000000]"))), "huge")
    with pytest.raises(LeftOutError, match=r"^huge: inputs of 3,725\.3 GiB \(expected at most the memory"):
        ProgramRunner(program, cast("Backend", None))


@pytest.mark.parametrize(
    "arguments",
    [
        ("measure", "p.hlo.txt"),
        ("measure", "small.hlo.pb"),
        ("measure", ".", "--record", "records"),
        ("tune", "p.hlo.txt", "--task", "fusion", "--device", "xla_cpu"),
        ("search-fusions", "--programs", "."),
    ],
)
def test_without_jax_a_line_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.hlo.txt").write_text(TEXT, "utf-8")
    write_small(tmp_path)
    save_manifest(tmp_path, [], {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    result = CliRunner().invoke(complete_app(), list(arguments))
    assert isinstance(result.exception, DataError)
    assert str(result.exception).startswith("JAX is not installed (expected pip install 'jax")
