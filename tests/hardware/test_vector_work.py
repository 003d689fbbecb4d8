from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import UnsupportedKernelError
from costbench.hardware.vector_work import VECTOR_COSTS, VectorCost, vector_cost
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import decompress

CONTROL = {Opcode.WHILE, Opcode.CALL, Opcode.CONDITIONAL, Opcode.FUSION, Opcode.CUSTOM_CALL}
"""What never is inside a kernel."""


def test_known_costs() -> None:
    assert vector_cost(Opcode.ADD) == VectorCost(simple=1.0)
    assert vector_cost(Opcode.RESHAPE) == VectorCost()
    assert vector_cost(Opcode.DIVIDE) == VectorCost(simple=3.0, transcendental=1.0)


def test_no_cost_is_negative() -> None:
    for cost in VECTOR_COSTS.values():
        assert min(cost.simple, cost.transcendental, cost.random) >= 0.0


def test_an_unknown_operation_is_refused_with_the_choices() -> None:
    with pytest.raises(UnsupportedKernelError, match="no routine for 'infeed'") as caught:
        vector_cost(Opcode.INFEED)
    assert "one of abs, add" in str(caught.value)


def test_every_operation_of_the_corpus_has_a_routine(repository: Path) -> None:
    found: set[str] = set()
    for file in sorted((repository / "data" / "programs").glob("*.hlo.pb.zst")):
        # Names alone: reading whole modules would take seconds.
        module = hlo_pb2.HloModuleProto.FromString(decompress(file.read_bytes(), where=file.name))
        found.update(inst.opcode for computation in module.computations for inst in computation.instructions)
    assert len(found) > 40
    opcodes = {Opcode.from_name(name) for name in found} - CONTROL
    assert {opcode.xla_name for opcode in opcodes if opcode not in VECTOR_COSTS} == set()
