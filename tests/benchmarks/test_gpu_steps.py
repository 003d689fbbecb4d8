from __future__ import annotations

import json
import sys

import pytest
import torch

from benchmarks import gpu_steps


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_steps_of_all_tasks_are_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times are not judged here: cores are shared."""
    monkeypatch.setattr(gpu_steps, "SECONDS", 0.0)
    monkeypatch.setattr(gpu_steps, "LAYOUT_SIZES", (5_100, 50, 20))
    monkeypatch.setattr(sys, "argv", ["gpu_steps", "--hidden", "16", "--json"])
    gpu_steps.main()
    speeds = json.loads(capsys.readouterr().out)
    names = {"cpu_steps_per_s"} | ({"gpu_steps_per_s", "ratio"} if torch.cuda.is_available() else set())
    tasks = ("tile", "fusion", "layout", "layout-segment")
    assert set(speeds) == {f"{task}/16/{name}" for task in tasks for name in names}
    assert min(speeds.values()) > 0.0
