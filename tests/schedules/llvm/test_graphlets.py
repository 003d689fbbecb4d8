from __future__ import annotations

import numpy as np
import pytest

from costbench.errors import DataError
from costbench_schedules.llvm.features import (
    BIN_DISTANCES,
    bins_of,
    effective_counts,
    profile_of,
    static_features,
)
from costbench_schedules.llvm.operations import FunctionOperations
from costbench_schedules.llvm.program import Block, parse_program
from tests.schedules.llvm import kernels
from tests.schedules.llvm.graphlets import dependences


def graph(text: str) -> FunctionOperations:
    return FunctionOperations(parse_program(text, "kernel").functions[0])


def block(text: str, name: str) -> Block:
    return next(block for block in graph(text).function.blocks if block.name == name)


def test_graphlets_are_those_that_the_paper_draws() -> None:
    function = graph(kernels.FIGURE)
    # Two loads, mul of both, load, add of both, store of the sum, then the branch.
    assert dependences(function, ["for.body9"]) == ((), (), (0, 1), (), (2, 3), (4,), (0, 1, 2, 3, 4, 5))
    assert dependences(function, ["for.cond7"]) == ((), (0,), (0, 1))
    assert dependences(function, ["for.inc"]) == ((), (0,), (1,), (0, 1, 2))


def test_superblock_without_a_dependence_between_its_blocks() -> None:
    result = dependences(graph(kernels.FIGURE), ["for.cond7", "for.body9"])
    assert all(min(waits, default=3) >= 3 for waits in result[3:])


def test_superblock_reads_what_its_first_block_wrote() -> None:
    result = dependences(graph(kernels.FIGURE), ["for.inc", "for.cond7"])
    # The load of %j waits for the store of %j, crop2024, Figure 3(d).
    assert result[4] == (2,)


def test_phis_join_a_block_to_its_own_repetition() -> None:
    waits = dependences(graph(kernels.MATMUL), ["sum", "sum"])
    size = len(waits) // 2
    names = [item.result for item in block(kernels.MATMUL, "sum").instructions]
    assert waits[size + names.index("total")] == (names.index("total.next"),)
    assert waits[names.index("total")] == ()


def test_operations_and_what_machine_code_folds() -> None:
    outcome = graph(kernels.VECTORS).operations["loop"]
    by_result = dict(
        zip((i.result for i in block(kernels.VECTORS, "loop").instructions), outcome, strict=True)
    )
    assert (by_result["some"].kind, by_result["some"].lanes, by_result["some"].bits) == ("masked_load", 8, 32)
    assert (by_result["far"].kind, by_result["far"].lanes) == ("gather", 4)
    assert by_result["at"].kind == "free"
    # Four addresses at once are arithmetic.
    assert (by_result["places"].kind, by_result["places"].lanes) == ("integer", 4)
    assert [(item.kind, item.length) for item in outcome if item.length] == [
        ("set_bytes", 256),
        ("copy_bytes", 20),
    ]


def test_a_broadcast_load_is_a_load() -> None:
    text = """define void @kernel(ptr %a, float %v) {
  %x = load float, ptr %a
  %one = insertelement <8 x float> poison, float %x, i64 0
  %all = shufflevector <8 x float> %one, <8 x float> poison, <8 x i32> zeroinitializer
  %two = insertelement <8 x float> poison, float %v, i64 0
  %both = shufflevector <8 x float> %two, <8 x float> poison, <8 x i32> zeroinitializer
  ret void
}"""
    [kinds] = [[item.kind for item in block] for block in graph(text).operations.values()]
    assert kinds == ["load", "free", "free", "free", "shuffle", "free"]


def test_accesses_meet_where_bytes_of_one_base_overlap() -> None:
    text = """define void @kernel(ptr %a, ptr %b) {
  %a4 = getelementptr i8, ptr %a, i64 4
  %a8 = getelementptr float, ptr %a, i64 2
  store <2 x float> zeroinitializer, ptr %a4
  %w = load float, ptr %a
  %x = load float, ptr %a8
  %y = load float, ptr %b
  ret void
}"""
    waits = dependences(graph(text), ["0"])
    assert [waits[index] for index in (3, 4, 5)] == [(), (1, 2), ()]
    static, _ = static_features(parse_program(text, "kernel"))
    keys = static.keys[2:6, 0].tolist()
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%x = call float @llvm.sin.f32(float 1.0)", "llvm.sin.f32"),
        ("%x = atomicrmw add ptr %a, i32 1 seq_cst", "atomicrmw"),
        ("fence seq_cst", "fence"),
    ],
)
def test_unknown_instructions_are_named(line: str, said: str) -> None:
    text = f"define void @kernel(ptr %a) {{\n  {line}\n  ret void\n}}\ndeclare float @llvm.sin.f32(float)\n"
    with pytest.raises(DataError, match=said):
        static_features(parse_program(text, "kernel"))


def test_bins_are_exact_near_and_close_far_away() -> None:
    near = np.arange(-1, 5)
    assert BIN_DISTANCES[bins_of(near)].tolist() == near.tolist()
    far = np.unique(np.geomspace(5, 1 << 30, 2000).astype(np.int64))
    assert np.max(np.abs(np.log2(BIN_DISTANCES[bins_of(far)] / far))) <= 1 / 8 + 1e-9


def test_profiles_count_samples_of_a_site_and_bin() -> None:
    samples = np.array([[1, 100], [0, -1], [1, 101], [1, 2]])
    assert profile_of(samples).tolist() == [[0, 0, 1], [1, 3, 1], [1, int(bins_of(np.array([100]))[0]), 2]]


def test_effective_counts_are_those_of_the_task_that_does_most() -> None:
    # Ten iterations on four threads are 3 + 3 + 3 + 1: three epochs, crop2024, Figure 2(e).
    rows = [[1, 0], [0, 3], [0, 3], [0, 3], [0, 1]]
    most, every = effective_counts(np.array(row) for row in rows)
    assert most.tolist() == [1, 3]
    assert every.tolist() == [1, 10]
