"""Kernel counts of both compilers for programs small enough to count by hand."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pytest

from benchmarks.kernel_counts import PROGRAMS, SORTS, Counts, compare, main, medians, optimized_by_xla
from costbench.errors import HloError
from costbench.hlo.proto import hlo_pb2

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(
        importlib.util.find_spec("jaxlib") is None, reason="needs the corpus extra (jax): XLA is asked"
    ),
]

CHAIN = """HloModule m
ENTRY e {
  x = f32[64,256]{1,0} parameter(0)
  y = f32[64,256]{1,0} parameter(1)
  a = f32[64,256]{1,0} multiply(x, y)
  b = f32[64,256]{1,0} exponential(a)
  ROOT c = f32[64,256]{1,0} subtract(b, y)
}
"""
TWO_DOTS = """HloModule m
ENTRY e {
  x = f32[64,256]{1,0} parameter(0)
  w = f32[256,512]{1,0} parameter(1)
  v = f32[512,128]{1,0} parameter(2)
  a = f32[64,512]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT b = f32[64,128]{1,0} dot(a, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
DOT_TANH = """HloModule m
ENTRY e {
  x = f32[64,256]{1,0} parameter(0)
  w = f32[256,512]{1,0} parameter(1)
  a = f32[64,512]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT b = f32[64,512]{1,0} tanh(a)
}
"""
TWO_RESULTS = """HloModule m
ENTRY e {
  x = f32[64,256]{1,0} parameter(0)
  y = f32[64,256]{1,0} parameter(1)
  a = f32[64,256]{1,0} exponential(x)
  b = f32[64,256]{1,0} multiply(a, y)
  ROOT t = (f32[64,256]{1,0}, f32[64,256]{1,0}) tuple(a, b)
}
"""
NARROW = """HloModule m
ENTRY e {
  x = f32[64,256]{1,0} parameter(0)
  ROOT c = bf16[64,256]{1,0} convert(x)
}
"""
LOOP = """HloModule m
body {
  s = (s32[], f32[64,256]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,256]{1,0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[64,256]{1,0} cosine(x)
  ROOT t = (s32[], f32[64,256]{1,0}) tuple(j, y)
}
condition {
  s = (s32[], f32[64,256]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(70)
  ROOT p = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[64,256]{1,0} parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[64,256]{1,0}) tuple(zero, x)
  w = (s32[], f32[64,256]{1,0}) while(s), condition=condition, body=body
  ROOT y = f32[64,256]{1,0} get-tuple-element(w), index=1
}
"""


def proto(text: str) -> bytes:
    from jaxlib import _hlo

    data: bytes = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return data


def sorts(counts: Counts) -> dict[str, int]:
    """Sorts that occur."""
    return {sort: number for sort, number in counts.by_sort.items() if number}


@pytest.mark.parametrize(
    ("text", "ours", "xla"),
    [
        (CHAIN, {"compute": 1}, {"compute": 1}),
        (TWO_DOTS, {"contraction": 2}, {"contraction": 2}),
        # XLA:CPU calls a library for a dot and leaves what follows outside.
        (DOT_TANH, {"contraction": 1}, {"contraction": 1, "compute": 1}),
        # XLA:CPU stores the exponential, and a second fusion reads it.
        (TWO_RESULTS, {"compute": 1}, {"compute": 2}),
        (NARROW, {"convert": 1}, {"convert": 1}),
    ],
    ids=["chain", "two dots", "dot and tanh", "two results", "narrow"],
)
def test_counts_are_those_by_hand(text: str, ours: dict[str, int], xla: dict[str, int]) -> None:
    mine, theirs = compare(proto(text), "m")
    assert sorts(mine) == ours
    assert sorts(theirs) == xla
    for counts in (mine, theirs):
        assert counts.kernels == counts.entry == counts.runs == sum(counts.by_sort.values())
    assert mine.instructions == text.count(" = ")


def test_arrays_and_epilogues_tell_the_compilers_apart() -> None:
    ours, xla = compare(proto(DOT_TANH), "m")
    assert (ours.arrays, ours.epilogues) == (1, 1)
    assert (xla.arrays, xla.epilogues) == (2, 0)
    ours, xla = compare(proto(TWO_RESULTS), "m")
    assert (ours.kernels, ours.arrays) == (1, 2)
    assert (xla.kernels, xla.arrays) == (2, 2)


def test_loops_count_once_as_kernels_and_every_time_as_runs() -> None:
    """XLA:CPU makes code for the counter and its test, and copies the loop's first state."""
    ours, xla = compare(proto(LOOP), "m")
    assert (ours.kernels, ours.entry, ours.runs) == (1, 0, 70)
    assert ours.by_computation == {"body": 1}
    # Body: cosine, add. Condition: compare. Entry: copies of the argument and of the constant.
    assert sorted(xla.by_computation.values()) == [1, 2, 2]
    assert sorts(xla) == {"compute": 1, "scalar": 3, "move": 1}
    assert (xla.entry, xla.runs) == (2, 2 * 70 + 71 + 2)


def test_medians_are_of_ratios_and_leave_out_programs_without_a_sort() -> None:
    results = [compare(proto(text), "m") for text in (CHAIN, DOT_TANH, TWO_RESULTS)]
    # Kernels 1/1, 2/1, 2/1; arrays 1/1, 2/1, 2/2; contractions 1/1; compute 1/1 and 2/1.
    assert medians(results) == {"kernels": 2.0, "arrays": 1.0, "contraction": 1.0, "compute": 1.5}
    assert math.isnan(medians(results[:1])["contraction"])


def test_a_module_that_xla_refuses_is_a_clear_error() -> None:
    module = hlo_pb2.HloModuleProto.FromString(proto(TWO_DOTS))
    dot = next(one for one in module.computations[-1].instructions if one.opcode == "dot")
    dot.shape.dimensions[0] = 77
    with pytest.raises(HloError, match="XLA refuses the module"):
        optimized_by_xla(module.SerializeToString())
    # The hook is gone: the next program is captured alone.
    assert compare(proto(CHAIN), "m")[1].kernels == 1


def test_command_prints_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("chain", CHAIN), ("dots", TWO_DOTS)):
        (tmp_path / f"{name}.hlo.pb.zst").write_bytes(proto(text))
    place = ["--programs", str(tmp_path)]
    main(["chain", "dots", *place, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["median_ratio"]["kernels"] == 1.0
    assert {name: both["xla"]["kernels"] for name, both in found["programs"].items()} == {
        "chain": 1,
        "dots": 2,
    }
    main(["chain", "dots", *place])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["chain", "dots"]
    assert all(sort in lines[0] for sort in SORTS)
    assert lines[4].startswith("median of XLA / ours: kernels 1.00")


def test_unknown_program_is_an_error_of_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nothing", "--programs", str(tmp_path)])
    assert "no program" in capsys.readouterr().err


def test_default_programs_are_in_the_corpus(repository: Path) -> None:
    for name in PROGRAMS:
        assert (repository / "data" / "programs" / f"{name}.hlo.pb.zst").is_file()
