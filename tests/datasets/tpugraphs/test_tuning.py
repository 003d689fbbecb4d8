"""Records of measured runs: defaults, and the parts of a program."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.datasets.tpugraphs.tuning import TuningProgram, node_splits
from costbench.errors import DataError
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape


def module_of(*parts: tuple[str, int]) -> HloModule:
    inst = Instruction(name="i", opcode=Opcode.IOTA, shape=Shape(ElementType.F32, (2,), (0,)))
    computations = tuple(HloComputation(name, (inst,) * size, root=0) for name, size in parts)
    return HloModule("program", computations, entry=len(computations) - 1)


@pytest.mark.parametrize(
    ("parts", "splits"),
    [
        ([("main", 4)], [0, 4]),
        ([("add", 3), ("while_body.2", 5), ("main", 4)], [0, 8, 12]),
        ([("region_cond", 1), ("fused", 2), ("cluster.7", 3)], [0, 1, 6]),
    ],
)
def test_parts_end_after_clusters_loops_and_conditions(
    parts: list[tuple[str, int]], splits: list[int]
) -> None:
    assert node_splits(module_of(*parts)).tolist() == splits


def _program(runtimes: list[int], defaults: list[bool]) -> TuningProgram:
    return TuningProgram(
        module=module_of(("main", 1)),
        node_config_ids=np.array([0]),
        minor_to_major=np.full((len(runtimes), 1, 3, 6), -1),
        runtime_ns=np.array(runtimes),
        is_default=np.array(defaults, dtype=np.bool_),
        num_failed=0,
        fingerprint=0,
    )


def test_the_normalizer_is_the_first_default_run() -> None:
    assert _program([7, 5, 6], [False, True, True]).normalizer_ns == 5


def test_no_default_run_is_an_error() -> None:
    with pytest.raises(DataError, match="program: no default run"):
        _ = _program([7], [False]).normalizer_ns
