from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.autotuning.kernel_costs import EstimatedKernels, TiledKernels
from costbench.autotuning.search import Progress
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.program import PreparedProgram
from costbench.errors import UnsupportedKernelError
from costbench.experiments.autotuning.fusion_tuning import tune_fusion
from costbench.experiments.autotuning.session import Report, Session, Step, TuneOptions, TuningResult
from costbench.hlo.reader import read_module
from costbench.target import load_target
from tests.experiments.autotuning.test_session import nothing
from tests.experiments.small_programs import small_file, small_step

TARGET = load_target("tpu_v3")
PROGRAMS = Path(__file__).resolve().parents[3] / "data" / "programs"


def tuned(
    folder: Path,
    options: TuneOptions,
    program: PreparedProgram | None = None,
    *,
    resume: bool = False,
    report: Report = nothing,
) -> TuningResult:
    program = program or PreparedProgram(small_step(), "small_step")
    tiled = TiledKernels(program.lowering, TARGET.architecture, AnalyticalModel(TARGET.architecture))
    model = EstimatedKernels(tiled) if options.model != "none" else None
    return tune_fusion(program, Session(folder, options, TARGET, resume=resume, report=report), tiled, model)


def stop_in(name: str) -> Report:
    """Presses Ctrl-C in the middle of a search."""

    def report(searched: Step, progress: Progress) -> None:
        if searched.name == name and progress.num_decisions > 1:
            raise KeyboardInterrupt

    return report


def test_stopped_anywhere_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    options = TuneOptions(small_file(tmp_path), "fusion", minutes=2.0, model_minutes=0.005, compile_s=14.4)
    whole = tuned(tmp_path / "a", options)
    assert whole.num_measured > 2
    part = tuned(tmp_path / "b", options, report=stop_in("predicted"))
    # The compiler's config and a batch of the 32 that there are.
    assert (part.num_predicted, part.num_measured) == (17, 0)
    assert part.best_ns == part.default_ns
    assert part.unmeasured is not None
    assert part.unmeasured[0] <= part.unmeasured[1]
    tuned(tmp_path / "b", options, resume=True, report=stop_in("measured"))
    assert tuned(tmp_path / "b", options, resume=True) == whole


def test_predictions_end_at_the_time_limit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on measures what the first one predicted, whatever else it had time to predict."""
    seconds = [0.0]
    monkeypatch.setattr("costbench.experiments.autotuning.session.time.monotonic", lambda: seconds[0])

    def report(searched: Step, progress: Progress) -> None:
        seconds[0] += 61.0 if progress.num_decisions > 1 else 0.0

    file = small_file(tmp_path)
    options = TuneOptions(file, "fusion", minutes=0.8, model_minutes=0.005, compile_s=14.4, time_limit=1.0)
    part = tuned(tmp_path / "a", options, report=report)
    assert (part.num_predicted, part.num_measured) == (17, 3)
    more = tuned(tmp_path / "a", replace(options, minutes=2.0, time_limit=math.inf), resume=True)
    assert (more.num_predicted, more.num_measured) == (17, 7)
    assert more.rows[:3] == part.rows


def test_hardware_alone_stopped_and_resumed(tmp_path: Path) -> None:
    options = TuneOptions(small_file(tmp_path), "fusion", model="none", minutes=3.0, compile_s=14.4)
    whole = tuned(tmp_path / "a", options)
    part = tuned(tmp_path / "b", options, report=stop_in("measured"))
    assert part.num_measured == 2
    assert part.rows == whole.rows[:2]
    assert tuned(tmp_path / "b", options, resume=True) == whole


def test_a_program_of_more_configs_than_a_float_can_hold(tmp_path: Path) -> None:
    file = PROGRAMS / "convdraw_b16_infer_f32.hlo.pb.zst"
    program = PreparedProgram(read_module(file), "convdraw")
    assert len(FusionSpace(program).default) > 1024
    found = tuned(
        tmp_path / "a", TuneOptions(file, "fusion", model="none", minutes=0.6, compile_s=14.4), program
    )
    assert found.num_measured > 1
    assert 0.0 < found.hardware_seconds <= 36.0
    assert 0.0 < found.best_ns <= found.default_ns


def test_a_program_of_which_a_kernel_fits_no_scratchpad(tmp_path: Path) -> None:
    file = PROGRAMS / "retinanet_b1_infer_bf16.hlo.pb.zst"
    program = PreparedProgram(read_module(file), "retinanet")
    with pytest.raises(UnsupportedKernelError, match="retinanet: the default config does not run"):
        tuned(tmp_path / "a", TuneOptions(file, "fusion", model="none", minutes=0.6), program)
