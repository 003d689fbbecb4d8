from __future__ import annotations

from pathlib import Path

from costbench.autotuning.kernel_costs import EstimatedKernels, TiledKernels
from costbench.autotuning.search import Progress
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.program import PreparedProgram
from costbench.experiments.autotuning.fusion_tuning import tune_fusion
from costbench.experiments.autotuning.session import Report, Session, Step, TuneOptions, TuningResult
from costbench.target import load_target
from tests.experiments.autotuning.test_session import nothing
from tests.experiments.small_programs import small_file, small_step

TARGET = load_target("tpu_v3")


def tuned(
    folder: Path, options: TuneOptions, *, resume: bool = False, report: Report = nothing
) -> TuningResult:
    program = PreparedProgram(small_step(), "small_step")
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


def test_hardware_alone_stopped_and_resumed(tmp_path: Path) -> None:
    options = TuneOptions(small_file(tmp_path), "fusion", model="none", minutes=3.0, compile_s=14.4)
    whole = tuned(tmp_path / "a", options)
    part = tuned(tmp_path / "b", options, report=stop_in("measured"))
    assert part.num_measured == 2
    assert part.rows == whole.rows[:2]
    assert tuned(tmp_path / "b", options, resume=True) == whole
