"""`costbench tune --task schedule` as people meet it, without a compiler."""

from __future__ import annotations

import importlib.util
import io
import signal
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from costbench.cli.app import complete_app
from costbench.errors import CostbenchError, DataError
from costbench.installation import install_line
from costbench_schedules.cli.live import (
    Interrupt,
    describe_progress,
    label,
    reporting,
    tune_schedule,
    workloads_of,
)
from costbench_schedules.devices import device as device_module
from costbench_schedules.search.live import LiveProgress
from tests.schedules.devices.fake import fake
from tests.sentences import numbers

PROGRESS = LiveProgress(12, 2, 2_000_000.0, 0.013, 0.25)


def test_progress_says_rate_noise_and_failures() -> None:
    # GFLOPS, milliseconds, noise and interrupted runs in percent, failures.
    assert numbers(describe_progress(PROGRESS, 10**9).replace("%", " ")) == [500.0, 2.0, 1.3, 25, 2]
    assert numbers(describe_progress(LiveProgress(1, 1, float("inf"), 0.0, 0.0), 10**9)) == [1]


def test_a_bar_on_a_terminal_and_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    with reporting(Console(file=screen, force_terminal=True, width=120), "matmul-256", 200) as report:
        report(PROGRESS)
    assert "12/200" in screen.getvalue()
    with reporting(Console(file=io.StringIO()), "matmul-256", 200) as report:
        report(PROGRESS)
    # Size, trials, all of them; 2 * 256^3 operations in 2 ms.
    assert numbers(capsys.readouterr().err)[:4] == [256, 12, 200, 16.8]


def test_an_interrupt_waits_for_the_measurement() -> None:
    interrupt = Interrupt()
    done = []
    with pytest.raises(KeyboardInterrupt), interrupt.held():
        interrupt.pressed(signal.SIGINT, None)
        done.append("measured")
    assert done
    with pytest.raises(KeyboardInterrupt):
        interrupt.pressed(signal.SIGINT, None)


def test_a_file_of_workloads(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("# of my network\nC6\n\nmatmul:m=8,n=8,k=8  # small\n")
    assert workloads_of(str(path)) == ["C6", "matmul:m=8,n=8,k=8"]
    path.write_text("C6\nC99\n")
    with pytest.raises(CostbenchError, match="C99"):
        workloads_of(str(path))
    path.write_text("# none\n")
    with pytest.raises(DataError, match="no workloads"):
        workloads_of(str(path))


def test_labels_are_names_of_folders() -> None:
    assert label("C6") == "C6"
    assert label("conv2d:n=1,h=56") == "conv2d-n-1-h-56"


def test_tuned_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device_module, "Limits", lambda: fake("ran", "ran", "ran", "ran"))
    monkeypatch.chdir(tmp_path)
    tune_schedule("matmul:m=4,n=4,k=4", trials=6)
    said = capsys.readouterr().out
    assert {6, 3} <= set(numbers(said))
    assert (tmp_path / "out" / "tune" / "matmul-m-4-n-4-k-4-schedule" / "best.json").exists()


def test_of_a_file_those_are_resumed_that_have_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "Limits", lambda: fake("ran", "ran", "ran", "ran"))
    path, out = tmp_path / "mine.txt", tmp_path / "out"
    path.write_text("matmul:m=4,n=4,k=4\nmatmul:m=4,n=4,k=8\n")
    first, second = (out / f"matmul-m-4-n-4-k-{k}" / "measurements.jsonl" for k in (4, 8))
    with pytest.raises(DataError, match=r"measurements\.jsonl: no such file"):
        tune_schedule(str(path), trials=6, out=out, resume=True)
    tune_schedule("matmul:m=4,n=4,k=4", trials=6, out=first.parent)
    log = first.read_bytes()
    tune_schedule(str(path), trials=6, out=out, resume=True)
    assert first.read_bytes() == log
    assert len(second.read_text().splitlines()) == 1 + 6


@pytest.mark.parametrize(("kinds", "said"), [("ran", True), ("build", True), ("", False)])
def test_stopped_it_says_whether_it_can_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kinds: str,
    said: bool,
) -> None:
    """Ctrl-C after a measurement that ran, after one that failed, and before the search."""

    def stop(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(device_module, "Limits", lambda: fake(*[kinds or "ran"] * 4))
    where = "cli.live.describe_progress" if kinds else "experiments.live.guidance_of"
    monkeypatch.setattr(f"costbench_schedules.{where}", stop)
    with pytest.raises(typer.Exit):
        tune_schedule("matmul:m=4,n=4,k=4", trials=6, out=tmp_path)
    assert ("--resume" in capsys.readouterr().err) == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["C99", "--task", "schedule"], "unknown workload 'C99'"),
        (["C6", "--task", "schedule", "--budget", "3"], "--budget: has no effect with --task schedule"),
        (["step.hlo", "--trials", "3"], "--trials: has no effect with --task tile"),
        (["C6", "--task", "schedule", "--trials", "0"], "--trials: 0"),
        (["C6", "--task", "layouts"], "unknown task 'layouts'"),
        (["C6", "--task", "schedule", "--model", "nowhere"], "nowhere"),
        (["C6", "--task", "schedule", "--strategy", "clever"], "unknown strategy 'clever'"),
        (["C6", "--task", "schedule", "--records", "nowhere.arrow"], "nowhere.arrow"),
        (["step.hlo", "--records", "x"], "--records: has no effect with --task tile"),
    ],
)
def test_mistakes_are_one_error(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(complete_app(), ["tune", *arguments])
    assert isinstance(result.exception, CostbenchError)
    assert said in str(result.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("tvm") is not None, reason="TVM is installed")
def test_without_the_compiler_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(complete_app(), ["tune", "C6", "--task", "schedule"])
    assert isinstance(result.exception, DataError)
    assert result.exception.expected == install_line("cpu")
    assert not list(tmp_path.iterdir())
