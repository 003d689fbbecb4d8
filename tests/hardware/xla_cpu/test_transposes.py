"""Transposes that XLA drops are put back: by hand, and on the real backend."""

from __future__ import annotations

import importlib.util
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from costbench.hardware.xla_cpu.program import MachineProgram
from costbench.hardware.xla_cpu.transposes import Transpose, restore_transposes, transposes_of
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.text.parser import proto_from_text

TEXT = """HloModule transposed
ENTRY main {
  x = f32[1,8,64]{2,1,0} parameter(0)
  w = f32[8,16]{1,0} parameter(1)
  v = f32[64,16]{1,0} parameter(2)
  e = f32[1,8,64]{2,1,0} exponential(x)
  t = f32[64,1,8]{2,1,0} transpose(e), dimensions={2,0,1}
  r = f32[64,8]{1,0} reshape(t)
  d = f32[64,16]{1,0} dot(r, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = f32[8,1,64]{2,1,0} transpose(e), dimensions={1,0,2}
  q = f32[8,64]{1,0} reshape(n)
  g = f32[8,16]{1,0} dot(q, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = (f32[64,16]{1,0}, f32[8,16]{1,0}) tuple(d, g)
}
"""


def program() -> MachineProgram:
    return MachineProgram(module_from_proto(proto_from_text(TEXT, where="text"), where="text"), "transposed")


def names() -> dict[str, str]:
    """Names in XLA's input by names of the text; positions change where a program is prepared."""
    module = program().module
    offset = module.offsets[module.entry]
    return {inst.name: f"i{offset + n}" for n, inst in enumerate(module.entry_computation.instructions)}


def test_transposes_behind_reshapes_have_names() -> None:
    """That of `n` moves an axis of extent 1 alone, which is no move."""
    name = names()
    transpose = Transpose(frozenset({name["e"]}), (1, 8, 64), (2, 0, 1))
    assert transposes_of(program().module) == {name["t"]: transpose, name["r"]: transpose}


def lost(source: str) -> tuple[hlo_pb2.HloComputationProto, hlo_pb2.HloInstructionProto]:
    """What is left of `r`: a bitcast of an instruction with a name."""
    body = hlo_pb2.HloComputationProto(name="main", id=1, root_id=2)
    for number, (opcode, extents, op_name) in enumerate(
        [("exponential", [1, 8, 64], source), ("bitcast", [64, 8], "i5")], start=1
    ):
        inst = body.instructions.add(name=f"n{number}", opcode=opcode, id=number)
        inst.metadata.op_name = op_name
        inst.shape.element_type = 11
        inst.shape.dimensions.extend(extents)
        inst.shape.layout.minor_to_major.extend(reversed(range(len(extents))))
    body.instructions[1].operand_ids.append(1)
    return body, body.instructions[1]


TRANSPOSES = {"i5": Transpose(frozenset({"i3"}), (1, 8, 64), (2, 0, 1))}


def test_a_bitcast_of_what_the_transpose_reads_lost_it() -> None:
    body, bitcast = lost("i3")
    assert restore_transposes(body, TRANSPOSES) == 1
    by_id = {inst.id: inst for inst in body.instructions}
    transpose = by_id[bitcast.operand_ids[0]]
    assert (transpose.opcode, list(transpose.dimensions)) == ("transpose", [2, 0, 1])
    assert list(transpose.shape.dimensions) == [64, 1, 8]
    assert list(transpose.shape.layout.minor_to_major) == [2, 1, 0]
    # It reads the source itself, and belongs to the kernel of the transpose.
    assert list(transpose.operand_ids) == [1]
    assert transpose.metadata.op_name == "i5"
    # A second time nothing is missing.
    assert restore_transposes(body, TRANSPOSES) == 0


def test_a_source_of_another_shape_is_reshaped() -> None:
    body, bitcast = lost("i3")
    body.instructions[0].shape.dimensions[:] = [8, 64]
    body.instructions[0].shape.layout.minor_to_major[:] = [1, 0]
    assert restore_transposes(body, TRANSPOSES) == 1
    by_id = {inst.id: inst for inst in body.instructions}
    before = by_id[by_id[bitcast.operand_ids[0]].operand_ids[0]]
    assert (before.opcode, list(before.shape.dimensions)) == ("bitcast", [1, 8, 64])
    assert list(before.operand_ids) == [1]


def test_other_bitcasts_stay() -> None:
    """One reads the copy that is named after the transpose, one an array that lies transposed."""
    body, _ = lost("i5")
    assert restore_transposes(body, TRANSPOSES) == 0
    body, bitcast = lost("i3")
    bitcast.shape.layout.minor_to_major[:] = [0, 1]
    assert restore_transposes(body, TRANSPOSES) == 0
    assert len(body.instructions) == 2


def own_differences() -> tuple[float, float]:
    from costbench.hardware.xla_cpu.backend import Backend
    from costbench.hardware.xla_cpu.device import ProgramRunner

    transposed = program()
    runner = ProgramRunner(transposed, Backend())
    configs = (runner.own_default, runner.compile(transposed.space.default))
    outputs = [runner.backend.run(config.executable.loaded, runner.inputs) for config in configs]
    return runner.difference(outputs[0]), runner.difference(outputs[1])


@pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs the extra jax")
def test_results_are_those_of_xlas_own_fusions() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        assert max(process.submit(own_differences).result()) < 1e-5
