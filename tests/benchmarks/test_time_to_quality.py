from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import pytest

from benchmarks import time_to_quality
from benchmarks.time_to_quality import Clock, TargetReached


def test_all_bounds_have_to_be_met_in_one_epoch() -> None:
    clock = Clock({"validation/tau": 0.87, "validation/slowdown": 0.018}, time.process_time())
    clock.log_metrics({"validation/tau": 0.9, "validation/slowdown": 0.02}, 10)
    clock.log_metrics({"validation/tau": 0.86, "validation/slowdown": 0.01}, 20)
    assert clock.core_s == math.inf
    with pytest.raises(TargetReached):
        clock.log_metrics({"validation/tau": 0.87, "validation/slowdown": 0.018}, 30)
    assert clock.steps == 30
    assert 0.0 <= clock.core_s < 60.0


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_short_form_compares_recipes_on_both_tasks(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times are not judged here: cores are shared."""
    monkeypatch.chdir(repository)
    monkeypatch.setattr(sys, "argv", ["time_to_quality", "--short", "--seeds", "0", "--json"])
    time_to_quality.main()
    results = json.loads(capsys.readouterr().out)
    metrics = {f"{name}/{metric}" for name in ("adam", "muon") for metric in ("core_s", "steps", "to_adam")}
    metrics |= {f"naive_pyg/{metric}" for metric in ("core_s", "step_ms", "to_adam")}
    assert set(results) == {f"{task}/{name}" for task in ("tile", "fusion") for name in metrics}
    assert all(value > 0.0 for value in results.values())
    for task in ("tile", "fusion"):
        assert results[f"{task}/adam/to_adam"] == 1.0
        ratio = results[f"{task}/muon/core_s"] / results[f"{task}/adam/core_s"]
        assert results[f"{task}/muon/to_adam"] == pytest.approx(ratio)
