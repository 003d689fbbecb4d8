from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.program import PreparedProgram
from costbench.compiler.tile_space import tile_space
from costbench.experiments.autotuning.session import Session, TuneOptions
from costbench.experiments.autotuning.tile_tuning import tune_tiles
from costbench.hardware.device import Device
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.reader import read_module
from costbench.target import load_target
from tests.experiments.autotuning.test_session import ctrl_c, nothing
from tests.experiments.small_programs import small_file, small_step

TARGET = load_target("tpu_v3")
MODEL = AnalyticalModel(TARGET.architecture)


def program() -> PreparedProgram:
    return PreparedProgram(small_step(), "small_step")


def test_with_all_tile_sizes_measured_each_kernel_gets_its_best(tmp_path: Path) -> None:
    options = TuneOptions(small_file(tmp_path), "tile", top_k=100_000)
    session = Session(tmp_path / "out", options, TARGET, resume=False, report=nothing)
    found = tune_tiles(program(), session, MODEL)
    best_ns = 0.0
    for unique in program().unique_kernels:
        space = tile_space(unique.kernel, TARGET.architecture)
        measured = Device(TARGET).measure_nest(space.nest, space.extents(space.legal_ids()))
        best_ns += unique.runs_per_program * float(measured.runtime_ns[~measured.failed].min())
    assert found.best_ns == best_ns


def test_the_budget_is_one_for_all_kernels(tmp_path: Path) -> None:
    file = small_file(tmp_path)
    whole = tune_tiles(
        program(),
        Session(tmp_path / "a", TuneOptions(file, "tile"), TARGET, resume=False, report=nothing),
        MODEL,
    )
    half = TuneOptions(file, "tile", minutes=whole.hardware_seconds / 2 / 60)
    part = tune_tiles(program(), Session(tmp_path / "b", half, TARGET, resume=False, report=nothing), MODEL)
    assert 0 < part.num_measured < whole.num_measured
    assert part.hardware_seconds <= whole.hardware_seconds / 2
    # More time goes on where less ended.
    more = Session(tmp_path / "b", TuneOptions(file, "tile"), TARGET, resume=True, report=nothing)
    assert tune_tiles(program(), more, MODEL).decisions == whole.decisions


def test_a_stopped_run_ends_as_one_that_was_not(tmp_path: Path) -> None:
    options = TuneOptions(small_file(tmp_path), "tile", top_k=3)
    whole = tune_tiles(
        program(), Session(tmp_path / "a", options, TARGET, resume=False, report=nothing), MODEL
    )
    stopped = Session(tmp_path / "b", options, TARGET, resume=False, report=ctrl_c)
    part = tune_tiles(program(), stopped, MODEL)
    assert stopped.interrupted
    assert part.num_measured == 0
    assert part.best_ns == part.default_ns == whole.default_ns
    again = Session(tmp_path / "b", options, TARGET, resume=True, report=nothing)
    assert tune_tiles(program(), again, MODEL) == whole


def test_tiles_are_named_as_compilers_name_them(tmp_path: Path) -> None:
    session = Session(
        tmp_path / "out", TuneOptions(small_file(tmp_path), "tile"), TARGET, resume=False, report=nothing
    )
    found = tune_tiles(program(), session, MODEL)
    for kernel, unique in zip(found.decisions["kernels"], program().unique_kernels, strict=False):  # type: ignore[call-overload]
        assert set(kernel["chosen"]) == {"output_bounds", "kernel_bounds", "runtime_ns"}
        assert kernel["chosen"]["runtime_ns"] <= kernel["default"]["runtime_ns"]
        assert np.prod(kernel["chosen"]["output_bounds"]) >= 1
        assert len(unique.fingerprint) == len(kernel["fingerprint"])


def test_where_the_machine_refuses_a_tile_the_default_is_the_next_smaller_one(tmp_path: Path) -> None:
    """Some seeds give a machine that refuses tiles near the limit of the scratchpad."""
    file = Path(__file__).parents[1] / "mixer_step.hlo.txt"
    mixer = PreparedProgram(inline_fusions(read_module(file)), "mixer_step")
    found = []
    for seed in (0, 1, 7, 10):
        options = TuneOptions(file, "tile", minutes=1e-9, seed=seed)
        session = Session(tmp_path / str(seed), options, TARGET, resume=False, report=nothing)
        found.append(tune_tiles(mixer, session, None).default_ns)
    assert len(set(found)) == 4
    assert max(found) < 1.1 * min(found)
