from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.program import PreparedProgram
from costbench.errors import DataError, HloError, UnsupportedKernelError
from costbench.experiments.autotuning.program_tuning import tune_program
from costbench.experiments.autotuning.session import Session, TuneOptions
from costbench.hlo.conversion import module_to_proto
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.reader import read_module
from costbench.models.checkpoint import MODEL_FILE
from costbench.target import load_target
from costbench.tasks import TaskName
from tests.experiments.autotuning.test_session import nothing
from tests.experiments.finished_cells import finish_cell
from tests.experiments.small_programs import LOOP, small_file, small_step
from tests.sentences import numbers

TARGET = load_target("tpu_v3")


def session(folder: Path, options: TuneOptions) -> Session:
    return Session(folder / "out", options, TARGET, resume=False, report=nothing)


def test_a_program_without_fusions_stays_as_it_is(tmp_path: Path) -> None:
    module = read_module(small_file(tmp_path))
    assert inline_fusions(module) is module


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_models_that_are_not_there(tmp_path: Path, task: TaskName) -> None:
    options = TuneOptions(small_file(tmp_path), task, model=str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="nowhere"):
        tune_program(session(tmp_path, options), "small")


@pytest.mark.parametrize(("task", "other"), [("tile", "fusion"), ("fusion", "tile")])
def test_models_of_the_other_task(tmp_path: Path, task: TaskName, other: TaskName) -> None:
    folder = tmp_path / f"{other}-random-tpu_v2-gat-3e-4-s0"
    folder.mkdir()
    (folder / MODEL_FILE).write_text("{}")
    options = TuneOptions(small_file(tmp_path), task, model=str(folder))
    with pytest.raises(DataError, match=f"trained for the task {other} \\(expected a model for {task}\\)"):
        tune_program(session(tmp_path, options), "small")


def test_text_is_a_program_too(tmp_path: Path) -> None:
    path = tmp_path / "step.hlo.txt"
    path.write_text(
        "HloModule step\n\nENTRY main {\n"
        "  x = f32[512,1024]{1,0} parameter(0)\n"
        "  ROOT y = f32[512,1024]{1,0} tanh(x)\n}\n"
    )
    opcodes = [inst.opcode.xla_name for inst in read_module(path).entry_computation.instructions]
    assert opcodes == ["parameter", "tanh"]
    found = tune_program(session(tmp_path, TuneOptions(path, "tile")), "step")
    assert found.num_measured == 10


def test_files_that_are_no_program(tmp_path: Path) -> None:
    path = tmp_path / "wrong.hlo.pb"
    path.write_bytes(b"not a program")
    with pytest.raises(HloError, match=r"wrong\.hlo\.pb"):
        tune_program(session(tmp_path, TuneOptions(path, "tile")), "wrong")


@pytest.mark.parametrize("name", ["outfeed", "fft_empty"])
def test_layouts_need_a_program_that_the_chip_runs_whole(tmp_path: Path, name: str) -> None:
    path = Path(__file__).parents[2] / "hlo" / "corpus" / f"{name}.hlo"
    with pytest.raises(UnsupportedKernelError) as raised:
        tune_program(session(tmp_path, TuneOptions(path, "layout")), name)
    assert raised.value.where == name


@pytest.mark.parametrize("model", ["analytical", "none"])
@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_every_task_with_and_without_a_model(tmp_path: Path, task: TaskName, model: str) -> None:
    options = TuneOptions(
        small_file(tmp_path), task, model=model, minutes=4.0, model_minutes=0.003, compile_s=14.4
    )
    found = tune_program(session(tmp_path, options), "small")
    assert found.speedup >= 1.0
    assert found.num_measured == len(found.rows) == len(found.curve) > 0
    assert (found.num_predicted > 0) == (model == "analytical")
    assert found.hardware_seconds <= 240.0
    times = [ns for _, ns in found.curve]
    assert times == sorted(times, reverse=True)
    assert times[-1] == pytest.approx(found.best_ns)
    assert sum(gain.saved_ns for gain in found.gains) == pytest.approx(found.default_ns - found.best_ns)


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_a_model_of_the_users_own(tmp_path: Path, task: TaskName, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts the instructions of a kernel: fusing everything is then best."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuning_own.py").write_text(
        "class Model:\n    tasks = ('tile', 'fusion')\n\n    def predict(self, kernel, decisions):\n"
        "        return [1000.0 + len(kernel.instructions)] * len(decisions)\n"
    )
    options = TuneOptions(
        small_file(tmp_path), task, model="tuning_own:Model", model_minutes=0.003, compile_s=14.4
    )
    found = tune_program(session(tmp_path, options), "small")
    assert found.num_predicted > 0
    assert found.num_measured > 0


def test_a_model_of_the_users_own_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuning_fails.py").write_text(
        "class Model:\n    def predict(self, kernel, decisions):\n        return kernel.speed\n"
    )
    options = TuneOptions(small_file(tmp_path), "tile", model="tuning_fails:Model")
    with pytest.raises(DataError, match=r"tuning_fails\.py, line 3, in predict: AttributeError: .*speed"):
        tune_program(session(tmp_path, options), "small")
    with pytest.raises(DataError, match=r"expected a model for fusion"):
        tune_program(session(tmp_path / "other", replace(options, task="fusion")), "small")


def test_small_fusion_spaces_are_enumerated(tmp_path: Path) -> None:
    """Every config is predicted once where the budget pays for all of them."""
    path = tmp_path / "chain.hlo"
    path.write_text(
        "HloModule chain\n\nENTRY main {\n  x = f32[512,1024]{1,0} parameter(0)\n"
        "  a = f32[512,1024]{1,0} tanh(x)\n  b = f32[512,1024]{1,0} negate(a)\n"
        "  ROOT c = f32[512,1024]{1,0} exponential(b)\n}\n"
    )
    steps = []
    options = TuneOptions(path, "fusion", model_minutes=0.1, compile_s=14.4)
    one = Session(tmp_path / "out", options, TARGET, resume=False, report=lambda *told: steps.append(told))
    found = tune_program(one, "chain")
    assert found.num_predicted == 2**2
    step, progress = [told for told in steps if told[0].name == "predicted"][-1]
    assert (progress.num_decisions, step.decisions) == (4, 4)


def test_a_model_of_another_chip_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = finish_cell(tmp_path / "tile-random-tpu_v2-main-s0", "tile", "key", 0.5)
    tune_program(
        session(tmp_path, TuneOptions(small_file(tmp_path), "tile", model=str(folder), top_k=1)), "small"
    )
    (warning,) = (message for message in caplog.messages if "tpu_v2" in message)
    assert "tpu_v3" in warning


def test_names_in_the_users_code_stand_beside_those_of_the_dump(tmp_path: Path) -> None:
    proto = module_to_proto(small_step())
    entry = next(one for one in proto.computations if one.id == proto.entry_computation_id)
    for inst in entry.instructions:
        inst.metadata.op_name = f"jit(step)/{inst.name}"
    path = tmp_path / "named.hlo.pb"
    path.write_bytes(proto.SerializeToString())
    found = tune_program(session(tmp_path, TuneOptions(path, "tile", top_k=1)), "named")
    assert any("jit(step)/" in gain.what for gain in found.gains)
    assert any(kernel["op_name"] for kernel in found.decisions["kernels"])  # type: ignore[attr-defined]
    assert all(row.what and row.described.startswith("output ") for row in found.rows)


def test_assumed_loops_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP)
    tune_program(session(tmp_path, TuneOptions(path, "tile", trip_count=7, top_k=1)), "loop")
    (warning,) = (message for message in caplog.messages if "--trip-count" in message)
    assert warning.startswith("loop: loop l: ")
    assert numbers(warning) == [7]


def test_what_is_chosen_can_be_looked_up_in_the_program(tmp_path: Path) -> None:
    options = TuneOptions(small_file(tmp_path), "fusion", minutes=4.0, model_minutes=0.003, compile_s=14.4)
    found = tune_program(session(tmp_path, options), "small")
    program = PreparedProgram(small_step(), "small")
    names = {inst.name for body in program.module.computations for inst in body.instructions}
    (edges,) = found.decisions["edges"]  # type: ignore[misc]
    assert {name for pair in edges["fused"] for name in pair} <= names
    assert len(edges["fused"]) <= len(FusionSpace(program).default)
    kernels = found.decisions["kernels"]
    assert {name for kernel in kernels for name in kernel["instructions"]} <= names  # type: ignore[attr-defined]
