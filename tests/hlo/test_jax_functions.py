"""What JAX hands to XLA and what XLA makes of it is read, and its work counted as XLA counts it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from costbench.compiler.program import compile_program
from costbench.hlo.cost_analysis import module_cost
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module

REPOSITORY = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs the corpus extra (jax)"),
]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    path = os.pathsep.join(map(str, (REPOSITORY / "src", REPOSITORY)))
    command = [sys.executable, "-m", "tests.hlo.jax_functions", str(folder)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True)
    return folder


def test_every_function_is_read_from_both_forms_and_counted_as_xla_counts_it(dumps: Path) -> None:
    counted = json.loads((dumps / "xla.json").read_text())
    assert len(counted) >= 90
    differing = {}
    for stem, theirs in counted.items():
        module = read_module(dumps / f"{stem}.hlo.pb")
        cost = module_cost(module)
        assert module_cost(read_module(dumps / f"{stem}.hlo.txt")) == cost, stem
        # XLA counts -1 for each call of a custom call, we count nothing.
        called = [inst.opcode for one in module.computations for inst in one.instructions]
        calls = called.count(Opcode.CUSTOM_CALL)
        if cost.flops - calls != theirs["flops"] or cost.transcendentals != theirs["transcendentals"]:
            differing[stem] = (cost, theirs, calls)
    assert differing == {}


def test_every_function_compiles_once_fusions_are_taken_apart(dumps: Path) -> None:
    for file in sorted(dumps.glob("*.hlo.pb")):
        program = compile_program(inline_fusions(read_module(file)), file.name)
        running = {
            kernel.instruction(position).opcode
            for kernel in program.kernels
            for position in kernel.instructions
        }
        assert running, file.name
        assert Opcode.FUSION not in running, file.name
