"""The normal form: equal bytes for modules that differ in numbers, names, order and provenance only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.errors import HloError
from costbench.hlo.proto import hlo_pb2
from costbench.programs.manifest import load_manifest, read_program_bytes
from costbench.programs.normal_form import count_instructions, normalize
from costbench.rng import stream

WITH_LOOPS = "smartcompose_b8_infer_f32"


@pytest.fixture(scope="module")
def program(repository: Path) -> bytes:
    folder = repository / "data" / "programs"
    return read_program_bytes(folder, next(one for one in load_manifest(folder) if one.name == WITH_LOOPS))


def disguise(proto: bytes, random: np.random.Generator) -> bytes:
    """The same program as another process would have numbered, named and annotated it."""
    module = hlo_pb2.HloModuleProto.FromString(proto)
    module.name, module.id = "jit_step", 7
    computation_ids = dict(
        zip(
            [one.id for one in module.computations],
            random.permutation(len(module.computations)).tolist(),
            strict=True,
        )
    )
    module.entry_computation_id = computation_ids[module.entry_computation_id]
    for computation in module.computations:
        shuffled = random.permutation(len(computation.instructions)).tolist()
        new_ids = {
            one.id: (computation.id << 32) + shuffled[at] for at, one in enumerate(computation.instructions)
        }
        computation.id = computation_ids[computation.id]
        computation.name = f"region_{computation.id}"
        computation.root_id = new_ids[computation.root_id]
        for one in computation.instructions:
            one.id, one.name = new_ids[one.id], f"thing_{new_ids[one.id]}"
            one.operand_ids[:] = [new_ids[operand] for operand in one.operand_ids]
            one.called_computation_ids[:] = [computation_ids[called] for called in one.called_computation_ids]
            one.metadata.op_name = "jit(step)/somewhere"
            if one.opcode != "while":
                one.backend_config = b"{}"
    order = random.permutation(len(module.computations)).tolist()
    computations = [
        hlo_pb2.HloComputationProto.FromString(module.computations[i].SerializeToString()) for i in order
    ]
    del module.computations[:]
    module.computations.extend(computations)
    # Field 68 (frontend_attributes, empty) and 40 (sharding) on the first instruction.
    module.computations[0].instructions[0].MergeFromString(b"\xa2\x04\x00\xc2\x02\x00")
    return module.SerializeToString()


def test_the_committed_form_is_a_fixed_point(program: bytes) -> None:
    assert normalize(program, WITH_LOOPS) == program


@pytest.mark.parametrize("seed", range(3))
def test_numbers_names_order_and_provenance_do_not_matter(program: bytes, seed: int) -> None:
    other = disguise(program, stream(seed, "disguise"))
    assert other != program
    assert normalize(other, WITH_LOOPS) == program


def test_computations_come_callees_first_and_ids_are_dense(program: bytes) -> None:
    module = hlo_pb2.HloModuleProto.FromString(program)
    seen_computations: set[int] = set()
    ids = []
    for computation in module.computations:
        seen: set[int] = set()
        for one in computation.instructions:
            assert set(one.operand_ids) <= seen
            assert set(one.called_computation_ids) <= seen_computations
            assert one.name == f"{one.opcode}.{one.id}"
            seen.add(one.id)
            ids.append(one.id)
        seen_computations.add(computation.id)
    assert ids == list(range(count_instructions(program)))
    assert module.entry_computation_id == module.computations[-1].id == len(module.computations)


def test_trip_counts_and_literals_survive(program: bytes) -> None:
    module = hlo_pb2.HloModuleProto.FromString(program)
    instructions = [one for computation in module.computations for one in computation.instructions]
    counted = [one for one in instructions if b"known_trip_count" in one.backend_config]
    assert len(counted) == 2  # the two LSTM scans over the prefix; beam search ends when the data says so
    assert sum(one.opcode == "while" for one in instructions) == 3
    assert all(one.HasField("literal") for one in instructions if one.opcode == "constant")


def small_module() -> hlo_pb2.HloModuleProto:
    """f(a, b) = b, with `a + b` computed for nothing, the parameters in the wrong order."""
    module = hlo_pb2.HloModuleProto(name="m", entry_computation_id=9)
    computation = module.computations.add(id=9, name="main", root_id=30)
    computation.instructions.add(id=30, opcode="parameter", parameter_number=1, name="b")
    computation.instructions.add(id=20, opcode="parameter", parameter_number=0, name="a")
    computation.instructions.add(id=10, opcode="add", operand_ids=[20, 30], name="dead")
    computation.program_shape.parameters.add(element_type=11)
    computation.program_shape.parameters.add(element_type=11)
    return module


def test_parameters_come_first_by_number_and_dead_instructions_last() -> None:
    out = hlo_pb2.HloModuleProto.FromString(normalize(small_module().SerializeToString(), "small"))
    main = out.computations[0]
    assert out.name == "small"
    assert [one.name for one in main.instructions] == ["parameter.0", "parameter.1", "add.2"]
    assert main.root_id == 1
    assert list(main.instructions[2].operand_ids) == [0, 1]
    assert list(main.program_shape.parameter_names) == ["p0", "p1"]


def test_unreachable_computations_are_dropped() -> None:
    module = small_module()
    module.computations.add(id=4, name="nobody_calls", root_id=1).instructions.add(id=1, opcode="parameter")
    out = hlo_pb2.HloModuleProto.FromString(normalize(module.SerializeToString(), "small"))
    assert [computation.id for computation in out.computations] == [1]


def test_dangling_references_are_errors() -> None:
    module = small_module()
    module.computations[0].instructions[2].operand_ids[0] = 99
    with pytest.raises(HloError, match="instruction 99 is missing"):
        normalize(module.SerializeToString(), "x")
    module = small_module()
    module.computations[0].instructions[2].called_computation_ids.append(5)
    with pytest.raises(HloError, match="computation 5 is missing"):
        normalize(module.SerializeToString(), "x")
    with pytest.raises(HloError, match="entry computation is missing"):
        normalize(b"", "x")


def test_bytes_that_are_no_proto_are_an_error() -> None:
    with pytest.raises(HloError, match="not an HloModuleProto"):
        normalize(b"\x0a\xff\xff\xff\xff", "x")
