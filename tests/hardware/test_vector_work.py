from __future__ import annotations

from pathlib import Path

import pytest

from costbench.compiler.kernel import Kernel
from costbench.errors import UnsupportedKernelError
from costbench.hardware.vector_work import LANE_MOVES, VECTOR_COSTS, VectorCost, moved_rows, vector_cost
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import decompress
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import finish
from tests.hlo.builder import ModuleBuilder

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


def moves(kernel: Kernel) -> float:
    return moved_rows(kernel.body, kernel.instruction(kernel.instructions[-1]))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("{2,1,0}", "{2,1,0}", 0.0),
        ("{2,1,0}", "{2,0,1}", 1.0),  # other rows share a register
        ("{2,1,0}", "{1,2,0}", LANE_MOVES),  # other elements share a row
        ("{0,1,2}", "{2,1,0}", LANE_MOVES),
    ],
)
def test_copies(source: str, target: str, expected: float) -> None:
    assert moves(small.copy(f"f32[32,64,256]{source}", f"f32[32,64,256]{target}")) == expected


@pytest.mark.parametrize(
    ("order", "expected"), [((1, 0, 2), 1.0), ((0, 2, 1), LANE_MOVES), ((2, 1, 0), LANE_MOVES)]
)
def test_transposes(order: tuple[int, ...], expected: float) -> None:
    b = ModuleBuilder()
    assert moves(finish(b, b.transpose(b.parameter("f32[32,64,256]"), order))) == expected


def test_a_transpose_that_names_the_same_memory_anew_is_free() -> None:
    b = ModuleBuilder()
    value = b.parameter("f32[32,64,256]{2,1,0}")
    made = b.op("transpose", value, shape="f32[64,32,256]{2,0,1}", dimensions=(1, 0, 2))
    assert moves(finish(b, made)) == 0.0


@pytest.mark.parametrize(
    ("target", "expected"), [("f32[16,16,16,128]", 0.0), ("f32[4096,128]", 1.0), ("f32[256,2048]", 1.0)]
)
def test_reshapes(target: str, expected: float) -> None:
    b = ModuleBuilder()
    assert moves(finish(b, b.reshape(b.parameter("f32[256,16,128]"), target))) == expected


@pytest.mark.parametrize(
    ("sizes", "axis", "expected"),
    [
        ((96, 160), 0, 0.0),  # the second starts at a multiple of eight rows
        ((100, 156), 0, 1.0),
        ((128, 256), 1, 0.0),
        ((100, 256), 1, LANE_MOVES / 2),
    ],
)
def test_concatenations(sizes: tuple[int, int], axis: int, expected: float) -> None:
    b = ModuleBuilder()
    shapes = [f"f32[{n},512]" if axis == 0 else f"f32[64,{n}]" for n in sizes]
    assert moves(finish(b, b.concatenate([b.parameter(s) for s in shapes], axis))) == expected


@pytest.mark.parametrize(
    ("starts", "expected"),
    [((0, 0, 0), 0.0), ((5, 0, 0), 0.0), ((0, 16, 0), 0.0), ((0, 3, 0), 1.0), ((0, 0, 7), LANE_MOVES / 2)],
)
def test_slices(starts: tuple[int, ...], expected: float) -> None:
    b = ModuleBuilder()
    value = b.parameter("f32[32,64,512]")
    limits = tuple(start + size for start, size in zip(starts, (8, 32, 256), strict=True))
    assert moves(finish(b, b.slice_of(value, starts, limits))) == expected


def test_strides_in_sublanes_gather_rows() -> None:
    assert moves(small.strided_slice()) == 1.0


@pytest.mark.parametrize(("axis", "expected"), [(0, 0.0), (1, 1.0), (2, 1.0)])
def test_reversals(axis: int, expected: float) -> None:
    b = ModuleBuilder()
    assert moves(finish(b, b.op("reverse", b.parameter("f32[4,64,256]"), dimensions=(axis,)))) == expected


def test_indexed_rows_land_anywhere() -> None:
    for make in (small.gather, small.scatter, small.dynamic_slice, small.dynamic_update_slice):
        assert moves(make()) == 1.0


def test_arithmetic_moves_nothing() -> None:
    assert moves(small.elementwise()) == 0.0
