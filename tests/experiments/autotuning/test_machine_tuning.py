"""Fusions tuned on this processor, from the command to the script; and searches of many programs, resumed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.fusion import FusionModelEvaluator, ProgramPricer, fusion_problem
from costbench.autotuning.search import Progress
from costbench.autotuning.trace import SearchTrace, Subject, read_trace
from costbench.compiler.kernel import Kernel
from costbench.datasets.machine_records import open_records
from costbench.datasets.machine_searches import read_card, read_searches
from costbench.datasets.splits import Split, write_split
from costbench.errors import DataError
from costbench.experiments.autotuning import machine_models, machine_searches, machine_tuning
from costbench.experiments.autotuning.machine_models import machine_model, recorded_roofline
from costbench.experiments.autotuning.machine_searches import SearchSettings, search_programs
from costbench.experiments.autotuning.session import Session, Step, TuneOptions
from costbench.hardware.xla_cpu.comparison import Comparison
from costbench.hardware.xla_cpu.program import MachineProgram
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.module import HloModule
from costbench.hlo.proto.hlo_pb2 import HloModuleProto
from costbench.programs.manifest import ProgramEntry, load_manifest
from tests.command_line import costbench, costbench_process, one_error
from tests.datasets.machine_recordings import write_records
from tests.deadline import HANGS_AFTER_S
from tests.hlo.builder import ModuleBuilder
from tests.reports.test_machine_searches import row

CORPUS = Path(__file__).parents[3] / "data" / "programs"
MODEL = """
class Sizes:
    tasks = ("fusion",)

    def predict(self, kernel, decisions):
        bytes_of = sum(kernel.instruction(p).shape.num_elements for p in (*kernel.inputs, *kernel.outputs))
        return [1_000.0 + bytes_of] * len(decisions)
"""
needs_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs the extra jax")


def chain() -> HloModule:
    """Elementwise instructions that share a pass over memory if they are fused."""
    b = ModuleBuilder("chain")
    x = b.parameter("f32[512,512]")
    value = b.op("add", b.op("tanh", x), x)
    return b.build(b.op("multiply", b.op("negate", value), b.op("exponential", x)))


@pytest.mark.slow
@needs_jax
def test_a_program_is_tuned_and_the_script_shows_the_gain(tmp_path: Path) -> None:
    (tmp_path / "chain.hlo.pb").write_bytes(module_to_bytes(chain()))
    (tmp_path / "sized.py").write_text(MODEL)
    command = ["tune", "chain.hlo.pb", "--task", "fusion", "--device", "xla_cpu", "--budget", "0.02"]
    done = costbench_process(
        [*command, "--model", "sized:Sizes", "--model-budget", "0.01", "--out", "out"], tmp_path
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out"
    decisions = json.loads((folder / "decisions.json").read_text())
    assert decisions["chip"] == "xla_cpu"
    assert decisions["num_predicted"] > 0
    assert decisions["num_measured"] > 0
    # The budget is of the processor's seconds.
    assert 0.0 < decisions["hardware_seconds"] <= 0.02 * 60.0
    gain = decisions["gain_of_search"]
    assert 0.0 < gain["low"] <= gain["estimate"] <= gain["high"]
    assert f"{gain['estimate']:.3f} times as fast as with" in done.stdout
    assert decisions["is_own"] == ("XLA's own fusions are kept" in done.stdout) == (gain["estimate"] <= 1.0)
    text = (folder / "tuned.hlo.txt").read_text()
    assert text.startswith("HloModule")
    assert "kind=kLoop" in text
    script = subprocess.run(
        [sys.executable, "run_tuned.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
    )
    assert script.returncode == 0, script.stderr
    shown = r", tuned \d+\.\d{3} ms: \d+\.\d{3} times as fast"
    shown = ": nothing faster was found" if decisions["is_own"] else shown
    assert re.fullmatch(rf"XLA's own fusions \d+\.\d{{3}} ms{shown}\n", script.stdout)
    assert len((folder / "run_tuned.py").read_text().splitlines()) <= 12
    resumed = costbench([*command, "--model", "none", "--out", "out", "--resume"], tmp_path)
    assert "is of model sized:Sizes, not none" in one_error(resumed)


@dataclass
class Tuner:
    """Stands for a `MachineTuner` whose configs and XLA's own fusions take given times."""

    program: MachineProgram
    tuned_ns: tuple[float, ...]
    data: bytes = b"program"
    num_different: int = 0
    num_refused: int = 0

    @property
    def problem(self) -> Any:
        return fusion_problem(self.program.space, "xla_cpu")

    @property
    def nearest(self) -> int:
        return 0

    def module_of(self, number: int) -> bytes:
        return f"module {number}".encode()

    def own_module(self) -> bytes:
        return b"XLA's own module"

    def text_of(self, module: bytes) -> str:
        return module.decode()

    def compare(self, modules: dict[str, bytes]) -> Comparison:
        [name] = modules
        runtimes = {"xla": (100.0, 110.0, 105.0), name: self.tuned_ns}
        return Comparison(runtimes, {"xla": 0.0, name: 1e-8}, 1e-3)


@pytest.mark.parametrize(
    ("tuned_ns", "is_own", "gain"), [((50.0, 55.0, 52.5), False, 2.0), ((125.0, 137.5, 131.25), True, 0.8)]
)
def test_what_is_slower_when_measured_anew_is_not_kept(
    tmp_path: Path, tuned_ns: tuple[float, ...], is_own: bool, gain: float
) -> None:
    program = MachineProgram(chain(), "chain")
    tuner, session = Tuner(program, tuned_ns), SimpleNamespace(origins={})
    subject = Subject("fusion", "xla_cpu", "chain", "chain", 8)
    unlimited = MeasurementBudget()
    trace = SearchTrace(
        subject, "annealing", "device", "xla_cpu", 0, unlimited, (0, 3), (9.0, 6.0), (1.0, 1.0)
    )
    result, sentence = machine_tuning._finish(tuner, session, tmp_path, 3, None, trace)  # type: ignore[arg-type]
    assert result.decisions["is_own"] is is_own
    assert result.decisions["gain_of_search"]["estimate"] == pytest.approx(gain)
    assert result.decisions["gain"]["estimate"] == pytest.approx(1.0 if is_own else gain)
    assert (result.default_ns, result.best_ns) == (105.0, 105.0 if is_own else 52.5)
    assert (result.changes == ()) is is_own
    assert (tmp_path / "tuned.hlo.pb").read_bytes() == (b"XLA's own module" if is_own else b"module 3")
    functions = (tmp_path / "tuned_program.py").read_text()
    compile(functions, "tuned_program.py", "exec")
    assert ("register_hlo_module_transformation" in functions) is not is_own
    script = (tmp_path / "run_tuned.py").read_text()
    compile(script, "run_tuned.py", "exec")
    assert len(script.splitlines()) <= 12
    assert ("nothing faster was found" in script) is is_own
    assert sentence.startswith("XLA's own fusions are kept") is is_own
    assert f"{gain:.3f} times as fast" in sentence


def test_stopped_before_anything_was_measured_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was predicted is kept, and the command says that it was stopped."""
    program = MachineProgram(chain(), "chain")
    costs = SimpleNamespace(costs=lambda kernels: np.ones(len(kernels)))
    evaluator = FusionModelEvaluator(ProgramPricer(program.space, costs), "flat", 1e-3)
    tuner = Tuner(program, (1.0,))
    monkeypatch.setattr(Tuner, "predictor", lambda *_: evaluator, raising=False)
    monkeypatch.setattr(Tuner, "device", lambda _: None, raising=False)
    for name, value in (
        ("require_jax", None), ("read_program_proto", HloModuleProto()), ("machine_program", program),
        ("machine_model", costs), ("MachineTuner", tuner),
    ):  # fmt: skip
        monkeypatch.setattr(machine_tuning, name, lambda *_, value=value: value)
    (tmp_path / "chain.hlo.pb").write_bytes(module_to_bytes(chain()))
    options = TuneOptions(tmp_path / "chain.hlo.pb", "fusion", "flat", device="xla_cpu")

    def ctrl_c(step: Step, progress: Progress) -> None:
        raise KeyboardInterrupt

    session = Session(tmp_path / "out", options, None, resume=False, report=ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        machine_tuning.tune_on_machine(session, "chain", tmp_path / "out")
    assert len(read_trace(tmp_path / "out" / "traces" / "predicted.json")) > 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--task", "tile"), "xla_cpu has no tiles to choose"),
        (("--task", "fusion", "--chip", "tpu_v2"), "--chip: has no effect with --device xla_cpu"),
        (("--task", "fusion", "--compile-s", "3"), "--compile-s: has no effect with --device xla_cpu"),
    ],
)
def test_options_of_the_simulated_chip_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "chain.hlo.pb").write_bytes(module_to_bytes(chain()))
    done = costbench(["tune", "chain.hlo.pb", "--device", "xla_cpu", *arguments], tmp_path)
    assert problem in one_error(done)


def test_estimates_are_fitted_to_other_applications(tmp_path: Path) -> None:
    """The records are a roofline with 3% of noise, so the fit finds its constants where they matter."""
    names = ["mlp_mnist_b128_train_f32", "ncf_b8192_infer_bf16", "word2vec_b512_train_f32"]
    records = write_records(tmp_path / "records", CORPUS, names)
    kernels = open_records(records.parent, records.name).kernels
    constants = [recorded_roofline(records.parent, name) for name in (*names, "a program of nobody")]
    # Each leaves out other kernels; of a program that is not recorded all count.
    assert len(set(constants)) == 4
    program = MachineProgram(chain(), "chain")
    model = machine_model("analytical", program.module, "chain", records.parent)
    assert model is not None
    sizes = program.space.compile(program.space.default).kernels
    costs = model.costs(sizes)
    assert costs.shape == (len(sizes),)
    assert np.isfinite(costs).all()
    assert costs.min() >= 0.5 * kernels["first_ns"].min()


@pytest.mark.parametrize(("processors", "expected"), [("xyh", "c"), ("xy", "a"), ("x", "a")])
def test_of_several_machines_this_one_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processors: str, expected: str
) -> None:
    for name, processor in zip("abc", processors, strict=False):
        (tmp_path / name).mkdir()
        (tmp_path / name / "machine.json").write_text(json.dumps({"processor": processor}))
    monkeypatch.setattr(machine_models, "processor_name", lambda: "h")
    monkeypatch.setattr(machine_models, "open_records", lambda folder, name: (folder, name))
    assert machine_models._records_in(tmp_path) == (tmp_path, expected)
    # One machine may be named, too.
    assert machine_models._records_in(tmp_path / "a") == (tmp_path, "a")


def test_models_that_cannot_be_asked_are_one_line(tmp_path: Path) -> None:
    program = MachineProgram(chain(), "chain")
    assert machine_model("none", program.module, "chain") is None
    with pytest.raises(DataError, match=r"no records of a machine .*--model none"):
        machine_model("analytical", program.module, "chain", tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        machine_model(str(tmp_path / "missing"), program.module, "chain")


def test_a_users_model_is_asked_without_tile_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sized_kernels.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    program = MachineProgram(chain(), "chain")
    model = machine_model("sized_kernels:Sizes", program.module, "chain")
    assert model is not None
    kernels: tuple[Kernel, ...] = program.space.compile(np.zeros_like(program.space.default)).kernels
    # The first kernel, a tanh, reads and writes an array of 512 x 512.
    assert model.costs(kernels)[0] == 1_000.0 + 2 * 512 * 512


def entries(*names: str) -> list[ProgramEntry]:
    by_name = {entry.name: entry for entry in load_manifest(CORPUS)}
    return [by_name[name] for name in names]


def test_a_stopped_run_goes_on_with_the_programs_that_have_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = entries("mlp_mnist_b128_train_f32", "word2vec_b512_train_f32", "ncf_b8192_infer_bf16")
    searched: list[str] = []

    def search(order: Any, folder: Path) -> tuple[list[dict[str, Any]], str]:
        if order.name in stops:
            raise KeyboardInterrupt
        searched.append(order.name)
        return ([], "too large") if order.name.startswith("word2vec") else ([row(order.name)], "")

    monkeypatch.setattr(machine_searches, "_in_process", search)
    lines: list[str] = []
    settings, out = SearchSettings(seconds=5.0), tmp_path / "out"
    stops = {"ncf_b8192_infer_bf16"}
    with pytest.raises(KeyboardInterrupt):
        search_programs(programs, CORPUS, out, tmp_path, settings, lines.append)
    assert list(read_searches(out)["program"]) == ["mlp_mnist_b128_train_f32"]
    stops.clear()
    search_programs([*programs, *programs], CORPUS, out, tmp_path, settings, lines.append)
    assert searched == [entry.name for entry in programs]
    assert list(read_searches(out)["program"]) == ["mlp_mnist_b128_train_f32", "ncf_b8192_infer_bf16"]
    assert read_card(out)["left_out"] == {"word2vec_b512_train_f32": "too large"}
    assert lines[1] == "2 of 3: word2vec_b512_train_f32: left out: too large"
    other = SearchSettings(seconds=6.0)
    with pytest.raises(DataError, match="is another settings"):
        search_programs(programs, CORPUS, out, tmp_path, other, lines.append)


def test_a_program_is_searched_by_the_network_of_the_fold_that_tests_it(tmp_path: Path) -> None:
    for number, test in ((1, "a"), (2, "b")):
        others = tuple({"a", "b", "c"} - {test, "c"})
        split = Split(f"fold{number}", others, ("c",), (test,))
        write_split(tmp_path / f"fold{number}.json", split)
    settings = SearchSettings(model="train/{fold}-s0", splits=str(tmp_path))
    assert [settings.model_of(name) for name in "ab"] == ["train/fold1-s0", "train/fold2-s0"]
    with pytest.raises(DataError, match="is in no test set"):
        settings.model_of("c")
    assert SearchSettings(splits=str(tmp_path)).model_of("c") == "analytical"
