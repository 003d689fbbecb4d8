"""Fusions against XLA's own: gains over processes by hand, and results that must not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.hardware.xla_cpu import comparison
from costbench.hardware.xla_cpu.comparison import OWN, Comparison, compare


def processes(monkeypatch: pytest.MonkeyPatch, difference: float = 0.0) -> list[int]:
    """Replaces the processes: XLA's own fusions take 8 us, in the last process 16, the others 4 us."""
    numbers: list[int] = []

    def run(folder: Path, number: int, seconds: float) -> Comparison:
        assert seconds == 2.0
        numbers.append(number)
        assert (folder / "tuned.fused.pb").read_bytes() == b"module"
        own = 16e3 if number == 4 else 8e3
        # Of the rounds of a process the median counts.
        runtimes = {OWN: (own, 9 * own, own), "tuned": (1e3, 4e3, 5e3)}
        return Comparison(runtimes, {OWN: 0.0, "tuned": difference}, 1e-3)

    def compile_all(folder: Path, task: str, seconds: float = 0.0) -> None:
        assert (task, numbers) == ("compile", [])

    monkeypatch.setattr(comparison, "_timed_process", run)
    monkeypatch.setattr(comparison, "_run_process", compile_all)
    return numbers


def test_gains_are_geometric_means_over_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = processes(monkeypatch, 5e-4)
    result = compare(b"program", {"tuned": b"module"}, tmp_path, processes=5, seconds=10.0)
    assert numbers == [0, 1, 2, 3, 4]
    assert result.runtime_ns == {OWN: (8e3, 8e3, 8e3, 8e3, 16e3), "tuned": (4e3,) * 5}
    gain = result.gain("tuned")
    # Twice as fast in four processes, four times in one.
    assert gain.estimate == pytest.approx((2**4 * 4) ** (1 / 5))
    assert 1.0 < gain.low < gain.estimate < gain.high
    assert gain.is_faster
    assert not gain.is_slower
    assert (tmp_path / "program.hlo.pb").read_bytes() == b"program"


def test_fusions_that_change_results_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes(monkeypatch, 0.3)
    with pytest.raises(DataError, match=r"tuned\.fused\.pb: changes the results by 0\.3 .*at most 0\.001"):
        compare(b"program", {"tuned": b"module"}, tmp_path, processes=5, seconds=10.0)


def test_files_of_an_earlier_comparison_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("old.fused.pb", "old.bin", "xla.bin", "0.runs.json"):
        (tmp_path / name).write_bytes(b"old")
    processes(monkeypatch)
    compare(b"program", {"tuned": b"module"}, tmp_path, processes=5, seconds=10.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.hlo.pb", "tuned.fused.pb"]


def test_a_process_that_fails_is_one_line(tmp_path: Path) -> None:
    """No program is there that could be run."""
    with pytest.raises(DataError, match="cannot be run"):
        comparison._timed_process(tmp_path, 0, 1.0)


def test_a_process_that_is_killed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison.sys, "executable", "/bin/sh")
    (tmp_path / "costbench.hardware.xla_cpu.comparison").write_text("kill -9 $$")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="ended by signal 9"):
        comparison._run_process(tmp_path, "compile")
