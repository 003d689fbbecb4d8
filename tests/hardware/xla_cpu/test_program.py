from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError, HloError
from costbench.hardware.xla_cpu.program import count_runs, named_bytes, row_major
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.text.parser import proto_from_text
from tests.hardware.xla_cpu.programs import TEXT, small_program

TOP_K = """HloModule topk
ENTRY main {
  x = f32[4,1000]{1,0} parameter(0)
  ROOT t = (f32[4,300]{1,0}, s32[4,300]{1,0}) topk(x), k=300, largest=true
}
"""


def test_arrays_are_row_major_and_instructions_stay_where_they_are() -> None:
    read = [
        module_from_proto(proto_from_text(text, where="small"), where="small")
        for text in (TEXT, TEXT.replace("{1,0}", "{0,1}"))
    ]
    assert read[0] != read[1]
    assert row_major(read[1]) == read[0]


def test_only_what_one_loop_holds_is_fused() -> None:
    program = small_program()
    body = program.module.entry_computation.instructions
    edges = {
        (body[source].name, body[user].name)
        for part, _ in program.space.by_computation(program.space.default)
        for source, user in zip(part.sources.tolist(), part.users.tolist(), strict=True)
    }
    assert edges == {("e", "n"), ("e", "m"), ("n", "m"), ("p", "t"), ("t", "r")}


def test_kernels_of_configs() -> None:
    program = small_program()
    default = program.kernels(program.space.default)
    assert [len(kernel.instructions) for kernel in default.kernels] == [3, 1, 6]
    unfused = program.kernels(np.zeros_like(program.space.default))
    assert len(unfused.kernels) == 7
    assert set(count_runs(unfused).values()) == {1}
    # The dot is the same kernel in both.
    assert len(set(default.fingerprints) & set(unfused.fingerprints)) == 1


def test_configs_by_names_and_by_kernels() -> None:
    program = small_program()
    config = program.config_of([["e", "n"], ["p", "t"]], "here")
    kernels = program.kernels(config).kernels
    body = program.module.entry_computation.instructions
    named = {frozenset(body[p].name for p in kernel.instructions) for kernel in kernels}
    assert {frozenset({"e", "n"}), frozenset({"one", "ones", "p", "t"})} <= named
    assert (program.nearest_config(kernels) == config).all()
    with pytest.raises(DataError, match=r"here: fusions: unknown instruction 'x\.9'"):
        program.config_of([["x.9"]], "here")


def test_names_say_which_instruction_it_is() -> None:
    program = small_program()
    assert program.position("i5") == (1, 2)
    assert program.position("jit(f)/i5") == (1, 2)
    assert [program.position(name) for name in ("add.3", "i16", "i-1", "")] == [None] * 4


def test_xlas_own_fusions_are_read_from_what_it_compiled() -> None:
    program = small_program()
    proto = hlo_pb2.HloModuleProto.FromString(named_bytes(program.module))
    entry = proto.computations[-1]
    for inst in entry.instructions:
        inst.metadata.op_name = inst.name
    # A fusion of `e` and `n`, as XLA would write it; `m` reads it.
    by_name = {inst.name: inst for inst in entry.instructions}
    fused = proto.computations.add(name="fused", id=77)
    for number, name in enumerate(("i3", "i5", "i6"), start=1):
        copy = fused.instructions.add()
        copy.CopyFrom(by_name[name])
        copy.id = number
        if number == 1:
            copy.opcode = "parameter"
        else:
            copy.operand_ids[:] = [number - 1]
    fused.root_id = 3
    by_name["i6"].opcode = "fusion"
    by_name["i6"].fusion_kind = "kLoop"
    by_name["i6"].called_computation_ids[:] = [77]
    placed, operations, library = program.own_fusions(proto.SerializeToString())
    kernel = placed.kernels[operations["i6"]]
    assert (kernel.inputs, kernel.instructions, kernel.outputs) == ((0,), (2, 3), (3,))
    assert library == frozenset()
    assert len(placed.kernels) == len(operations) == len(placed.fingerprints)


def test_a_top_k_says_how_many(tmp_path: Path) -> None:
    module = module_from_proto(proto_from_text(TOP_K, where="topk"), where="topk")
    # Field 81 is k, 300 as a varint; field 85 is `largest`.
    assert b"\x88\x05\xac\x02\xa8\x05\x01" in named_bytes(module)


def test_a_constant_of_text_has_no_value() -> None:
    module = module_from_proto(proto_from_text(TEXT, where="small"), where="small")
    with pytest.raises(HloError, match="small: one: has no value"):
        named_bytes(module)
