"""Profiles of real machines: what ran is read to the nanosecond and joined, the rest is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.datasets.measured_kernels import CompiledPrograms, MeasuredKernels, fusion_parts
from costbench.datasets.profiles.importing import ImportedProfiles, _named, import_profiles
from costbench.datasets.profiles.kernels import (
    AMBIGUOUS_MODULE,
    NO_INSTRUCTION,
    NO_KERNEL,
    NO_MODULE,
    UNEVEN,
    LeftOut,
    ProfiledProgram,
    join,
)
from costbench.datasets.profiles.proto import xplane_pb2
from costbench.datasets.profiles.xplane import ProgramId, read_profile
from costbench.errors import CostbenchError, DataError
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.module import HloModule
from costbench.target import load_target
from tests.datasets.profiles import PlaneBuilder, add_modules, layer, operation_names, tpu_profile, write
from tests.hlo.builder import ComputationBuilder, ModuleBuilder

PROGRAM = {"hlo_module": "jit_layer", "program_id": 7}


def samples(folder: Path, imported: ImportedProfiles) -> MeasuredKernels:
    (program,) = imported.programs
    parts = fusion_parts(folder, imported.chip, program.name)
    return MeasuredKernels(parts, CompiledPrograms(folder), load_target("tpu_v3").architecture)


def test_a_tpu_profile_becomes_samples_of_the_fastest_runs(tmp_path: Path) -> None:
    tpu_profile(tmp_path / "trace")
    imported = import_profiles(tmp_path / "trace", tmp_path / "data")
    assert (imported.chip, imported.device, imported.share) == ("tpu_v3", "TPU v3", 1.0)
    assert [(p.name, p.executions, p.operations) for p in imported.programs] == [("jit_layer", 4, 2)]
    kernels = samples(tmp_path / "data", imported)
    read = [kernels.kernel(index) for index in range(len(kernels))]
    assert [int(kernel.runtime_ns[0]) for kernel in read] == [40_000, 8_000]
    assert [kernel.runs for kernel in read] == [1, 1]
    assert [
        [kernel.kernel.instruction(p).opcode.xla_name for p in kernel.kernel.instructions] for kernel in read
    ] == [["dot"], ["tanh", "exponential", "multiply"]]
    # The fusion reads the dot's result and writes its own.
    assert read[1].kernel.inputs == read[0].kernel.outputs


def gpu_space(starts_of_second: tuple[int, ...]) -> xplane_pb2.XSpace:
    """A dot of two launches on two streams, in two runs."""
    dot, fusion = operation_names(layer())
    space = xplane_pb2.XSpace()
    add_modules(space, {"jit_layer(7)": layer()})
    plane = PlaneBuilder(space, "/device:GPU:0")
    stats = {"gemm": {"hlo_op": dot, **PROGRAM}, "reduce": {"hlo_op": dot, **PROGRAM}}
    plane.line("Stream #1", [("gemm", 0, 700), ("gemm", 5_000, 600)], **stats)
    plane.line("Stream #2", [("reduce", start, 50) for start in starts_of_second], **stats)
    loop = {"loop": {"hlo_op": fusion, **PROGRAM}, "MemcpyD2D": {}}
    plane.line("Stream #3", [("loop", 2_000, 30), ("MemcpyD2D", 2_500, 9), ("loop", 7_000, 40)], **loop)
    PlaneBuilder(space, "/host:CPU").line("python", [("step", 0, 9_000)])
    return space


def test_kernels_that_an_instruction_launches_on_a_gpu_are_added_up(tmp_path: Path) -> None:
    write(gpu_space((800, 5_700)), tmp_path / "trace")
    imported = import_profiles(tmp_path / "trace", tmp_path / "data")
    assert (imported.chip, imported.tiles_of) == ("gpu", "tpu_v3")
    kernels = samples(tmp_path / "data", imported)
    assert [int(kernels.kernel(index).runtime_ns[0]) for index in range(2)] == [650, 30]


def test_launches_that_cannot_be_paired_are_left_out(tmp_path: Path) -> None:
    write(gpu_space((800,)), tmp_path / "trace")
    imported = import_profiles(tmp_path / "trace", tmp_path / "data")
    (part,) = imported.left_out
    assert (part.reason, part.operations, part.example) == (UNEVEN, 1, operation_names(layer())[0])
    # 700 + 600 + 50 ns of the dot, beside 70 ns of the fusion.
    assert part.share == pytest.approx(1350 / 1420)
    assert imported.programs[0].operations == 1


def loop_module() -> HloModule:
    """Ten iterations of a tanh, then a negation."""

    def body(c: ComputationBuilder) -> int:
        state = c.parameter("(s32[], f32[256,256])")
        return c.make_tuple(c.get(state, 0), c.op("tanh", c.get(state, 1)))

    def condition(c: ComputationBuilder) -> int:
        counter = c.get(c.parameter("(s32[], f32[256,256])"), 0)
        return c.op("compare", counter, counter, shape="pred[]", comparison_direction="LT")

    b = ModuleBuilder("jit_loop")
    loop = b.while_(condition, body, b.parameter("(s32[], f32[256,256])"))
    return b.build(b.op("negate", b.get(loop, 1)))


def cpu_space(events: list[tuple[str, int, int]], module: str = "jit_loop") -> xplane_pb2.XSpace:
    """A thread on which operations of a program ran."""
    space = xplane_pb2.XSpace()
    stats = {name.replace(".", "_"): {"hlo_op": name, "hlo_module": module} for name, _, _ in events}
    PlaneBuilder(space, "/host:CPU").line("thread", events, **stats)
    return space


def test_the_time_of_an_event_is_that_without_events_in_it(tmp_path: Path) -> None:
    events = [("outer", 0, 100), ("first", 10, 30), ("inner", 20, 15), ("second", 50, 50), ("next", 100, 5)]
    profile = read_profile(write(cpu_space(events[::-1], "m"), tmp_path))
    assert profile.device == "cpu"
    times = {name: runs[name] for name, runs in profile.self_ns[ProgramId("m", None)].items()}
    assert times == {"outer": (20.0,), "first": (15.0,), "inner": (15.0,), "second": (50.0,), "next": (5.0,)}


def test_a_kernel_in_a_loop_runs_once_an_iteration_and_the_loop_is_none(tmp_path: Path) -> None:
    module = loop_module()
    (tanh,) = [i.name for c in module.computations for i in c.instructions if i.opcode.xla_name == "tanh"]
    loop, _, negate = [inst.name for inst in module.entry_computation.instructions[1:]]
    turns = [(tanh, 100 + 90 * turn, 80 + turn) for turn in range(10)]
    space = cpu_space([(loop, 0, 1_100), *turns, (negate, 2_000, 60), ("stranger", 3_000, 40)])
    add_modules(space, {"jit_loop(3)": module})
    write(space, tmp_path / "trace")
    imported = import_profiles(tmp_path / "trace", tmp_path / "data")
    kernels = samples(tmp_path / "data", imported)
    read = [kernels.kernel(index) for index in range(len(kernels))]
    assert sorted((int(kernel.runtime_ns[0]), kernel.runs) for kernel in read) == [(60, 1), (80, 10)]
    left_out = {part.reason: (part.operations, part.example) for part in imported.left_out}
    assert left_out == {NO_KERNEL: (1, loop), NO_INSTRUCTION: (1, "stranger")}
    # The loop took 1,100 ns, 845 of them in its body.
    assert imported.share == pytest.approx(1 - (1_100 - 845 + 40) / (1_100 + 60 + 40))


def test_programs_of_one_name_are_told_apart_by_a_number() -> None:
    names = ("jit.step", "jit.step", "jit.step", "m", "m.3", "m", "m")
    programs = [ProfiledProgram(name, layer(), (), 1) for name in names]
    assert list(_named(programs)) == ["jit.step", "jit.step.2", "jit.step.3", "m", "m.3", "m.2", "m.4"]


def test_modules_come_from_dumps_where_the_profile_has_none(tmp_path: Path) -> None:
    module = loop_module()
    negate = module.entry_computation.root_instruction.name
    write(cpu_space([(negate, 0, 60)]), tmp_path / "trace")
    with pytest.raises(DataError, match=NO_MODULE):
        import_profiles(tmp_path / "trace", tmp_path / "data")
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    compiled = dumps / "module_0003.jit_loop.cpu_after_optimizations.hlo.pb"
    compiled.write_bytes(module_to_bytes(module))
    (dumps / "module_0003.jit_loop.cpu_after_optimizations-buffer-assignment.txt").write_text(
        "BufferAssignment:"
    )
    (dumps / "module_0003.jit_loop.before_optimizations.hlo.pb").write_bytes(module_to_bytes(layer()))
    for dump in (dumps, compiled):
        imported = import_profiles(tmp_path / "trace", tmp_path / "data", dump=dump)
        assert [program.kernels for program in imported.programs] == [1]


@pytest.mark.parametrize(
    ("shares_names", "number", "expected"),
    [(False, None, "loop"), (True, None, AMBIGUOUS_MODULE), (True, 2, "other"), (True, 1, "loop")],
)
def test_modules_of_one_name_are_told_apart_by_number_then_by_instructions(
    tmp_path: Path, shares_names: bool, number: int | None, expected: str
) -> None:
    """`parameter.0` is in both modules, the root of the loop's in one alone."""
    b = ModuleBuilder("jit_loop")
    modules = {"loop": loop_module(), "other": b.build(b.op("tanh", b.parameter("f32[8,8]")))}
    entry = modules["loop"].entry_computation
    name = entry.instructions[0].name if shares_names else entry.root_instruction.name
    space = cpu_space([(name, 0, 60)])
    if number is not None:
        plane = space.planes[0]
        plane.stat_metadata[99].name = "program_id"
        plane.lines[0].events[0].stats.add(metadata_id=99, uint64_value=number)
    add_modules(space, {"jit_loop(1)": modules["loop"], "jit_loop(2)": modules["other"]})
    left_out = LeftOut()
    joined = join(read_profile(write(space, tmp_path)), (), left_out)
    if expected in modules:
        assert [program.module for program in joined] == [modules[expected]]
    else:
        assert (joined, list(left_out.operations)) == ([], [expected])


def test_runs_of_several_hosts_are_runs_of_one_program(tmp_path: Path) -> None:
    first = tpu_profile(tmp_path / "trace")
    first.with_name("other.xplane.pb").write_bytes(first.read_bytes())
    imported = import_profiles(tmp_path / "trace", tmp_path / "data")
    assert [(program.executions, program.kernels) for program in imported.programs] == [(8, 2)]
    assert len(imported.files) == 2


def test_profiles_of_two_devices_are_no_data_set(tmp_path: Path) -> None:
    tpu_profile(tmp_path)
    write(gpu_space((800, 5_700)), tmp_path, "gpu_host")
    with pytest.raises(DataError, match="profiles of TPU v3, gpu"):
        import_profiles(tmp_path, tmp_path / "data")


def test_an_import_is_the_same_bytes_again(tmp_path: Path) -> None:
    tpu_profile(tmp_path / "trace")
    for name in ("one", "two"):
        import_profiles(tmp_path / "trace", tmp_path / name)
    for path in (path for path in (tmp_path / "one").rglob("*") if path.is_file()):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()


def test_events_with_impossible_times_are_counted(tmp_path: Path) -> None:
    space = gpu_space((800, 5_700))
    line = space.planes[1].lines[2]
    line.events.add().CopyFrom(line.events[0])
    line.events[-1].duration_ps = -1
    line.events.add(metadata_id=999, offset_ps=4_000, duration_ps=1)
    write(space, tmp_path / "trace")
    imported = import_profiles(tmp_path / "trace", tmp_path / "data")
    assert imported.num_damaged == 2
    assert imported.programs[0].kernels == 2


def test_what_is_no_profile_is_one_line(tmp_path: Path) -> None:
    path = tpu_profile(tmp_path / "trace")
    content = path.read_bytes()
    empty = xplane_pb2.XSpace()
    PlaneBuilder(empty, "/host:CPU").line("python", [("step", 0, 9_000)])
    for damaged, problem in (
        (content[: len(content) // 2], "truncated or damaged"),
        (b"", "no planes"),
        (b"HloModule m", "truncated or damaged"),
        (empty.SerializeToString(), "no operation ran"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=problem) as caught:
            import_profiles(tmp_path / "trace", tmp_path / "data")
        assert str(path) in str(caught.value)
    path.unlink()
    with pytest.raises(DataError, match="no profiles"):
        import_profiles(tmp_path / "trace", tmp_path / "data")


@given(st.data())
def test_damaged_bytes_end_in_a_profile_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = tpu_profile(folder / "trace")
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    offsets = data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=6))
    content[offsets] = data.draw(st.integers(0, 255))
    path.write_bytes(content.tobytes())
    try:
        imported = import_profiles(folder / "trace", folder / "data")
    except CostbenchError as error:
        assert "\n" not in str(error)
    else:
        assert all(program.kernels for program in imported.programs)
