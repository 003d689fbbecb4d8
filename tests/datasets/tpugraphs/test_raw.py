"""Raw tuning files: the real ones' documented counts, round trips, and files that are something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from costbench.arrays import I64
from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.spaces import TileSizes
from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.datasets.tpugraphs.raw import (
    TuningKernel,
    TuningProgram,
    node_splits,
    read_layout_tuning,
    read_tile_tuning,
    write_layout_tuning,
    write_tile_tuning,
)
from costbench.errors import CostbenchError, DataError
from costbench.hlo.conversion import module_to_bytes, module_to_proto
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape
from tests.datasets.tuning_files import copy_module, layout_file, tile_file

Reader = Callable[[Path], object]
READERS: list[Reader] = [read_tile_tuning, read_layout_tuning]


def test_the_real_tile_file_has_the_documented_counts(shared_data: Path) -> None:
    kernels = read_tile_tuning(shared_data / "real_tpu" / "tile_calibration.pb")
    assert len(kernels) == 7
    # 352 runs, two of which failed to compile.
    assert sum(len(kernel.runtime_ns) for kernel in kernels) == 350
    assert sum(kernel.num_failed for kernel in kernels) == 2
    assert [kernel.is_default.sum() for kernel in kernels] == [0, 1, 1, 1, 1, 1, 1]
    ranks = {
        k.name: (k.tile_sizes.kernel_bounds.shape[1], k.tile_sizes.output_bounds.shape[1]) for k in kernels
    }
    assert ranks["fusion.191"] == (4, 4)  # a convolution
    assert ranks["fusion.209"] == (2, 2)  # a dot
    assert ranks["copy.24"] == (0, 4)
    assert ranks["reshape.39"] == (0, 0)  # entirely empty tile messages
    for kernel in kernels:
        assert kernel.input_bounds.shape == (len(kernel.runtime_ns), 0)
        assert len(kernel.tile_sizes) == len(kernel.runtime_ns) == len(kernel.is_default)
        assert kernel.runtime_ns.dtype == np.int64
        assert kernel.runtime_ns.min() > 1
        assert kernel.fingerprint > 0
        assert Opcode.FUSION not in {kernel.kernel.instruction(p).opcode for p in kernel.kernel.instructions}


def test_the_real_layout_file_has_the_documented_counts(shared_data: Path) -> None:
    program = read_layout_tuning(shared_data / "real_tpu" / "layout_module.pb")
    assert program.module.num_instructions == 3163
    assert len(node_splits(program.module)) == 8
    assert node_splits(program.module)[[0, -1]].tolist() == [0, 3163]
    every = [inst.opcode for c in program.module.computations for inst in c.instructions]
    chosen = Counter(every[node] for node in program.node_config_ids)
    assert chosen == {Opcode.CONVOLUTION: 53, Opcode.RESHAPE: 9}
    assert program.minor_to_major.shape == (112, 62, 3, 6)
    assert (len(program.runtime_ns), program.num_failed) == (112, 10)
    assert program.normalizer_ns == 910_903_932
    assert program.runtime_ns.min() == 910_876_401
    # Convolutions name the two fastest axes of each of three tensors.
    convolutions = np.array([every[node] is Opcode.CONVOLUTION for node in program.node_config_ids])
    assert (program.minor_to_major[:, convolutions, :, :2] >= 0).all()
    assert (program.minor_to_major[:, convolutions, :, 2:] == -1).all()


@pytest.mark.parametrize("name", ["tile_calibration.pb", "layout_module.pb"])
def test_real_files_survive_being_written(name: str, shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "real_tpu" / name
    if name.startswith("tile"):
        kernels = read_tile_tuning(source)
        write_tile_tuning(tmp_path / name, kernels)
        again = read_tile_tuning(tmp_path / name)
        assert [differences(*pair) for pair in zip(kernels, again, strict=True)] == [[]] * len(kernels)
    else:
        program = read_layout_tuning(source)
        write_layout_tuning(tmp_path / name, program)
        assert differences(program, read_layout_tuning(tmp_path / name)) == []


def differences(before: TuningKernel | TuningProgram, after: TuningKernel | TuningProgram) -> list[str]:
    """Fields whose values, or types of values, are not the same."""
    return [field for field, value in vars(before).items() if not same(value, getattr(after, field))]


def same(value: Any, other: Any) -> bool:
    if isinstance(value, np.ndarray):
        return np.array_equal(value, other) and value.dtype == other.dtype
    if isinstance(value, TileSizes):
        return same(value.kernel_bounds, other.kernel_bounds) and same(
            value.output_bounds, other.output_bounds
        )
    if isinstance(value, Kernel):
        parts = ("inputs", "instructions", "outputs")
        return all(getattr(value, part) == getattr(other, part) for part in parts)
    return bool(value == other)


def test_runs_count_unless_failed_or_timed_at_one_nanosecond(tmp_path: Path) -> None:
    runs = [
        {"output_bounds": (2, 2), "time": 50},
        {"output_bounds": (1, 2), "time": 40, "error": True},
        {"output_bounds": (2, 1), "time": 1},
        {"output_bounds": (2, 1), "time": 0},
        {"output_bounds": (1, 1), "time": 2, "default": True},
        {"output_bounds": (2, 2), "time": 51},  # measured twice: both count
    ]
    (kernel,) = read_tile_tuning(tile_file(tmp_path / "t.pb", runs))
    assert kernel.tile_sizes.output_bounds.tolist() == [[2, 2], [1, 1], [2, 2]]
    assert kernel.runtime_ns.tolist() == [50, 2, 51]
    assert kernel.is_default.tolist() == [False, True, False]
    assert kernel.num_failed == 3
    assert kernel.normalizer_ns == 2


def test_a_failed_run_may_have_no_tile(tmp_path: Path) -> None:
    runs = [{"output_bounds": (1, 1)}, {"error": True, "tile": False}, {"error": True, "output_bounds": (1,)}]
    (kernel,) = read_tile_tuning(tile_file(tmp_path / "t.pb", runs))
    assert (len(kernel.tile_sizes), kernel.num_failed) == (1, 2)


def test_a_kernel_without_runs_that_count_stays_without_rows(tmp_path: Path) -> None:
    (kernel,) = read_tile_tuning(tile_file(tmp_path / "t.pb", [{"error": True}]))
    assert kernel.tile_sizes.output_bounds.shape == (0, 0)
    assert kernel.runtime_ns.shape == (0,)


def test_input_bounds_are_kept(tmp_path: Path) -> None:
    (kernel,) = read_tile_tuning(
        tile_file(tmp_path / "t.pb", [{"output_bounds": (1, 1), "input_bounds": (3,)}])
    )
    assert kernel.input_bounds.tolist() == [[3]]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([{"output_bounds": (1, 1)}, {"output_bounds": (1,)}], "output_bounds: lists of 1 and 2 bounds"),
        ([{"output_bounds": (1, 1)}, {}], "output_bounds: lists of 0 and 2 bounds"),
        ([{"kernel_bounds": (1,)}, {"kernel_bounds": (1, 2, 3)}], "kernel_bounds: lists of 1 and 3"),
        ([{"output_bounds": (0, 1)}], r"bound 0 \(expected 1 or more"),
        ([{"output_bounds": (-4, 1)}], "bound -4"),
        ([{"tile": False}], "a run without tile sizes"),
    ],
)
def test_impossible_tiles_name_kernel_and_field(
    runs: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    path = tile_file(tmp_path / "t.pb", runs)
    with pytest.raises(DataError, match=rf"t\.pb: modules\[0\] \(copy\.1\).*{message}"):
        read_tile_tuning(path)


def test_a_kernel_that_computes_nothing_names_its_place(tmp_path: Path) -> None:
    body = copy_module().entry_computation
    module = HloModule("idle", (HloComputation("main", body.instructions[:1], root=0),), entry=0)
    with pytest.raises(DataError, match=r"modules\[0\] \(idle\): a module of parameters alone"):
        read_tile_tuning(tile_file(tmp_path / "t.pb", [], module))


def test_a_broken_module_names_file_and_place(tmp_path: Path) -> None:
    data = tuning_pb2.TuningData.FromString(tile_file(tmp_path / "t.pb", [], kernels=2).read_bytes())
    data.modules[1].module.computations[0].instructions[1].opcode = "teleport"
    (tmp_path / "t.pb").write_bytes(data.SerializeToString())
    with pytest.raises(DataError, match=r"t\.pb: modules\[1\]/main/y: unknown opcode 'teleport'"):
        read_tile_tuning(tmp_path / "t.pb")


def test_layouts_are_sorted_by_node_and_padded(tmp_path: Path) -> None:
    runs = [
        {"layouts": [[(1, 0)], [(0, 1), ()]], "time": 70},
        {"layouts": [[], [(0, 1), (), (2, 3)]], "time": 80, "default": True},
    ]
    program = read_layout_tuning(layout_file(tmp_path / "l.pb", [1, 0], runs))
    assert program.node_config_ids.tolist() == [0, 1]
    absent = [-1] * 6
    assert program.minor_to_major.tolist() == [
        [[[0, 1, -1, -1, -1, -1], absent, absent], [[1, 0, -1, -1, -1, -1], absent, absent]],
        [[[0, 1, -1, -1, -1, -1], absent, [2, 3, -1, -1, -1, -1]], [absent, absent, absent]],
    ]
    assert program.runtime_ns.tolist() == [70, 80]


def test_layouts_longer_than_six_are_cut(tmp_path: Path) -> None:
    runs = [{"layouts": [[(7, 6, 5, 4, 3, 2, 1, 0)]], "default": True}]
    program = read_layout_tuning(layout_file(tmp_path / "l.pb", [0], runs))
    assert program.minor_to_major[0, 0, 0].tolist() == [7, 6, 5, 4, 3, 2]


def test_without_a_default_run_no_layout_run_counts(tmp_path: Path) -> None:
    runs = [{"layouts": [[]]}, {"layouts": [[]], "default": True, "error": True}]
    program = read_layout_tuning(layout_file(tmp_path / "l.pb", [0], runs))
    assert program.minor_to_major.shape == (0, 1, 3, 6)
    assert program.num_failed == 2


@pytest.mark.parametrize(
    ("nodes", "layouts", "message"),
    [
        ([0, 0], [[], []], "config_index_to_node: a node occurs twice"),
        ([2], [[]], r"node 2 does not exist \(expected nodes below 2\)"),
        ([0], [[], []], r"2 nodes in a configuration \(expected 1"),
        ([0], [[(), (), (), ()]], "4 tensors of one node"),
        ([0], [[(1, 1)]], r"layout \[1, 1\]"),
        ([0], [[(0, -1)]], r"layout \[0, -1\]"),
    ],
)
def test_impossible_layouts_name_file_and_field(
    nodes: list[int], layouts: list[Any], message: str, tmp_path: Path
) -> None:
    path = layout_file(tmp_path / "l.pb", nodes, [{"layouts": layouts, "default": True}])
    with pytest.raises(DataError, match=rf"l\.pb: .*{message}"):
        read_layout_tuning(path)


def test_node_numbers_are_refused_where_computations_are_out_of_order(tmp_path: Path) -> None:
    caller = HloComputation(
        "caller",
        (Instruction(name="c", opcode=Opcode.CALL, shape=Shape(ElementType.F32), called=(0,)),),
        root=0,
    )
    callee = HloComputation(
        "callee", (Instruction(name="k", opcode=Opcode.CONSTANT, shape=Shape(ElementType.F32)),), root=0
    )
    proto = module_to_proto(HloModule("m", (callee, caller), entry=1))
    first, second = proto.computations
    swapped = [second, first]
    data = tuning_pb2.ModuleTuningData(module=proto)
    del data.module.computations[:]
    data.module.computations.extend(swapped)
    (tmp_path / "l.pb").write_bytes(data.SerializeToString())
    with pytest.raises(DataError, match="computations out of order"):
        read_layout_tuning(tmp_path / "l.pb")


def test_compressed_files_are_read(tmp_path: Path) -> None:
    plain = tile_file(tmp_path / "t.pb", [{"output_bounds": (1, 1)}])
    packed = tmp_path / "t.pb.zst"
    packed.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    assert read_tile_tuning(packed)[0].runtime_ns.tolist() == [100]
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"t\.pb\.zst"):
        read_tile_tuning(packed)


@pytest.mark.parametrize("read", READERS)
def test_missing_and_empty_files(read: Reader, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.pb: no such file"):
        read(tmp_path / "absent.pb")
    (tmp_path / "empty.pb").touch()
    with pytest.raises(DataError, match=r"empty\.pb: holds no (kernels|program)"):
        read(tmp_path / "empty.pb")


def test_files_of_the_other_kind_say_which(tmp_path: Path) -> None:
    tile = tile_file(tmp_path / "t.pb", [{"output_bounds": (1, 1)}])
    layout = layout_file(tmp_path / "l.pb", [0], [{"layouts": [[(0, 1)]], "default": True}])
    module = tmp_path / "m.pb"
    module.write_bytes(module_to_bytes(copy_module()))
    with pytest.raises(DataError, match=r"l\.pb: .*it reads as a ModuleTuningData"):
        read_tile_tuning(layout)
    with pytest.raises(DataError, match=r"t\.pb: .*it reads as a TuningData"):
        read_layout_tuning(tile)
    for read in READERS:
        with pytest.raises(DataError, match=r"m\.pb: .*it reads as an HloModuleProto"):
            read(module)


def test_every_truncation_of_a_file_is_one_clear_error_or_fewer_kernels(tmp_path: Path) -> None:
    whole = tile_file(tmp_path / "t.pb", [{"output_bounds": (2, 2)}] * 2, kernels=2).read_bytes()
    cut = tmp_path / "cut.pb"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        try:
            assert len(read_tile_tuning(cut)) == 1
            assert length == len(whole) // 2
        except DataError as error:
            assert "cut.pb" in str(error)


@given(noise=st.binary(max_size=200), layout=st.booleans())
def test_noise_is_never_anything_but_an_error_of_ours(
    noise: bytes, layout: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("noise") / "n.pb"
    path.write_bytes(noise)
    with pytest.raises(CostbenchError):
        READERS[layout](path)


def _columns(count: int, rank: int) -> st.SearchStrategy[I64]:
    row = st.lists(st.integers(1, 2**40), min_size=rank, max_size=rank)
    return st.lists(row, min_size=count, max_size=count).map(
        lambda rows: np.array(rows, dtype=np.int64).reshape(count, rank)
    )


@st.composite
def tuning_kernels(draw: st.DrawFn) -> TuningKernel:
    count = draw(st.integers(0, 5))
    ranks = [draw(st.integers(0, 7)) if count else 0 for _ in range(3)]
    module = copy_module(draw(st.sampled_from(["copy.1", "fusion.2"])))
    return TuningKernel(
        module=module,
        kernel=kernel_from_module(module),
        tile_sizes=TileSizes(draw(_columns(count, ranks[0])), draw(_columns(count, ranks[1]))),
        input_bounds=draw(_columns(count, ranks[2])),
        runtime_ns=draw(_columns(count, 1))[:, 0] + 1,
        is_default=np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=np.bool_),
        num_failed=draw(st.integers(0, 3)),
        fingerprint=draw(st.integers(0, 2**64 - 1)),
    )


@given(kernels=st.lists(tuning_kernels(), min_size=1, max_size=3))
def test_any_kernels_survive_being_written(
    kernels: list[TuningKernel], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tiles") / "t.pb"
    write_tile_tuning(path, kernels)
    again = read_tile_tuning(path)
    assert [differences(*pair) for pair in zip(kernels, again, strict=True)] == [[]] * len(kernels)


@st.composite
def tuning_programs(draw: st.DrawFn) -> TuningProgram:
    count, nodes = draw(st.integers(1, 4)), draw(st.sampled_from([(), (1,), (0, 1)]))
    layouts = np.full((count, len(nodes), 3, 6), -1, dtype=np.int64)
    for index in np.ndindex(count, len(nodes), 3):
        axes = draw(st.lists(st.integers(0, 6), max_size=6, unique=True))
        layouts[index][: len(axes)] = axes
    is_default = np.zeros(count, dtype=np.bool_)
    is_default[draw(st.integers(0, count - 1))] = True
    return TuningProgram(
        module=copy_module(),
        node_config_ids=np.array(nodes, dtype=np.int64),
        minor_to_major=layouts,
        runtime_ns=draw(_columns(count, 1))[:, 0] + 1,
        is_default=is_default,
        num_failed=draw(st.integers(0, 3)),
        fingerprint=draw(st.integers(0, 2**64 - 1)),
    )


@given(program=tuning_programs())
def test_any_program_survives_being_written(
    program: TuningProgram, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("layouts") / "l.pb"
    write_layout_tuning(path, program)
    assert differences(program, read_layout_tuning(path)) == []


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
