from __future__ import annotations

from collections.abc import Mapping

from costbench.hardware.xla_cpu.fusing import LIBRARY, OUTSIDE, Fused, Membership, fuse_module
from costbench.hardware.xla_cpu.program import named_bytes
from costbench.hlo.conversion import module_from_proto, module_to_proto
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.text.parser import proto_from_text
from tests.hardware.xla_cpu.programs import small_module, small_program

# Instructions of the small program by the names that XLA is given.
NAMES = {
    "exp": "i5",
    "negate": "i6",
    "multiply": "i7",
    "dot": "i8",
    "add": "i11",
    "tanh": "i12",
    "reduce": "i14",
}


def as_compiled() -> bytes:
    """Returns the small program as it comes out of XLA's passes: instructions remember their names."""
    return remember_names(hlo_pb2.HloModuleProto.FromString(named_bytes(small_module())))


def remember_names(proto: hlo_pb2.HloModuleProto) -> bytes:
    """Returns a module with ids as XLA has them, whose instructions remember their names."""
    for body in proto.computations:
        for inst in body.instructions:
            inst.metadata.op_name = inst.name
            inst.id |= body.id << 32
            inst.operand_ids[:] = [number | body.id << 32 for number in inst.operand_ids]
        body.root_id |= body.id << 32
    return proto.SerializeToString()


def fuse(owner: Mapping[str, int], library: frozenset[str] = frozenset()) -> Fused:
    named = {NAMES[name]: number for name, number in owner.items()}
    fused = fuse_module(as_compiled(), Membership(named, library=library))
    # What comes out is a module: operands first, callees first, shapes that fit.
    module_from_proto(fused.module, where="fused")
    return fused


def opcodes_of(fused: Fused) -> dict[str, list[str]]:
    """Returns the opcodes inside every fusion, parameters left out."""
    bodies = {body.id: body for body in fused.module.computations}
    entry = bodies[fused.module.entry_computation_id]
    return {
        inst.name: [
            i.opcode for i in bodies[inst.called_computation_ids[0]].instructions if i.opcode != "parameter"
        ]
        for inst in entry.instructions
        if inst.opcode == "fusion"
    }


def test_without_kernels_every_operation_has_a_fusion_of_its_own() -> None:
    fused = fuse({})
    inside = sorted(opcodes_of(fused).values())
    # Duplicates are computed where they are read.
    assert inside == [
        ["constant", "broadcast", "add"],
        ["constant", "reduce"],
        ["exponential"],
        ["multiply"],
        ["negate"],
        ["tanh"],
    ]
    assert set(fused.kernels.values()) == {OUTSIDE}


def test_a_kernel_is_one_fusion_and_a_contraction_stays_bare() -> None:
    fused = fuse({"exp": 0, "negate": 0, "multiply": 0, "dot": 1, "add": 2, "tanh": 2})
    inside = sorted(opcodes_of(fused).values())
    assert inside == [
        ["constant", "broadcast", "add", "tanh"],
        ["constant", "reduce"],
        ["exponential", "negate", "multiply"],
    ]
    [dot] = [name for name, kernel in fused.kernels.items() if kernel == 1]
    entry = next(c for c in fused.module.computations if c.id == fused.module.entry_computation_id)
    assert [inst.opcode for inst in entry.instructions if inst.name == dot] == ["dot"]
    assert fused.num_split == 0


def test_outputs_of_several_shapes_become_several_loops() -> None:
    fused = fuse({"add": 0, "tanh": 0, "reduce": 0})
    kernels = [name for name, kernel in fused.kernels.items() if kernel == 0]
    inside = opcodes_of(fused)
    assert sorted(inside[name] for name in kernels) == [
        ["constant", "broadcast", "add", "tanh"],
        ["constant", "reduce"],
    ]
    assert fused.num_split == 1


def test_outputs_of_one_shape_share_a_loop() -> None:
    # The result of `exp` is read by `multiply` outside, so the fusion has two results.
    fused = fuse({"exp": 0, "negate": 0, "multiply": 1})
    [name] = [name for name, kernel in fused.kernels.items() if kernel == 0]
    assert opcodes_of(fused)[name] == ["exponential", "negate", "tuple"]


def test_kernels_that_would_wait_for_each_other_are_taken_apart() -> None:
    # multiply reads exp and negate; negate lies between.
    fused = fuse({"exp": 0, "multiply": 0, "negate": 1})
    assert fused.num_split == 1
    assert ["exponential"] in opcodes_of(fused).values()


def test_a_reduction_alone_goes_to_the_library() -> None:
    library = frozenset({NAMES["reduce"]})
    for owner, kinds in (({"reduce": 0}, ["kCustom"]), ({"tanh": 0, "reduce": 0}, [])):
        fused = fuse(owner, library)
        entry = next(c for c in fused.module.computations if c.id == fused.module.entry_computation_id)
        custom = [inst for inst in entry.instructions if inst.fusion_kind == "kCustom"]
        if kinds:
            assert [inst.backend_config for inst in custom] == [LIBRARY]
        # Split by shape, the reduction is alone again.
        assert len(custom) == 1


def test_membership_of_the_default_kernels() -> None:
    program = small_program()
    membership = program.membership(program.kernels(program.space.default).kernels)
    kernels = [{name for name, kernel in membership.owner.items() if kernel == number} for number in range(3)]
    assert {NAMES["exp"], NAMES["negate"], NAMES["multiply"]} <= kernels[0]
    assert {NAMES["dot"]} == kernels[1]
    assert {NAMES["add"], NAMES["tanh"], NAMES["reduce"]} <= kernels[2]


def test_what_is_changed_in_place_is_in_memory() -> None:
    # A scatter reads zeros from memory, where its result will be; its updates it computes itself.
    text = """HloModule scattered

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  i = s32[4,1]{1,0} parameter(0)
  zero = f32[] constant(0)
  zeros = f32[16]{0} broadcast(zero), dimensions={}
  one = f32[] constant(1)
  ones = f32[4]{0} broadcast(one), dimensions={}
  ROOT s = f32[16]{0} scatter(zeros, i, ones), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum
}
"""
    proto = module_to_proto(module_from_proto(proto_from_text(text, where="scattered"), where="scattered"))
    fused = fuse_module(remember_names(proto), Membership({"s": 0}))
    inside = opcodes_of(fused)
    assert sorted(inside.values()) == [["constant", "broadcast"], ["constant", "broadcast", "scatter"]]
    # Writing the zeros belongs to the scatter.
    assert set(fused.kernels.values()) == {0}
