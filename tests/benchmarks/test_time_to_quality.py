from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import pytest

from benchmarks import time_to_quality
from benchmarks.time_to_quality import Clock
from costbench.training.spec import BatchSpec, TrainSpec


def test_all_bounds_have_to_be_met_in_one_epoch() -> None:
    clock = Clock(time.process_time())
    for steps, tau, slowdown in ((10, 0.9, 0.02), (20, 0.86, 0.01), (30, 0.87, 0.018), (40, 0.88, 0.01)):
        clock.log_metrics({"validation/tau": tau, "validation/slowdown": slowdown}, steps)
    bounds = {"validation/tau": 0.87, "validation/slowdown": 0.018}
    assert clock.until(bounds) == (clock.points[2][0], 30)
    assert 0.0 <= clock.points[2][0] < 60.0
    assert clock.until({"validation/tau": 0.91}) == (math.inf, 0)
    assert clock.until({"validation/slowdown": 0.01})[1] == 20
    assert (clock.best("validation/tau"), clock.best("validation/slowdown")) == (0.9, 0.01)


def test_adam_has_the_batches_that_training_had_first() -> None:
    spec = TrainSpec(batch=BatchSpec(kernels=48, configs=12))
    found = time_to_quality.recipes(spec, "tile", {"adam": 32, "recipe": 16})
    batches = {
        name: (one.batch.kernels, one.batch.configs, one.batch.per_epoch) for name, one in found.items()
    }
    assert batches == {"adam": (8, 32, 2), "recipe": (48, 12, 1)}


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
    kinds = [
        f"{kind}/{metric}" for kind in ("stated", "matched") for metric in ("core_s", "steps", "to_adam")
    ]
    metrics = {f"{name}/{metric}" for name in ("adam", "recipe") for metric in (*kinds, "core_s", "best")}
    metrics |= {f"naive_pyg/{metric}" for metric in ("step_ms", *kinds) if "steps" not in metric}
    assert set(results) == {f"{task}/{name}" for task in ("tile", "fusion") for name in metrics}
    for task in ("tile", "fusion"):
        assert results[f"{task}/adam/stated/to_adam"] == results[f"{task}/adam/matched/to_adam"] == 1.0
        ratio = results[f"{task}/recipe/stated/core_s"] / results[f"{task}/adam/stated/core_s"]
        assert results[f"{task}/recipe/stated/to_adam"] == pytest.approx(ratio)
        assert 0.0 < results[f"{task}/adam/matched/core_s"] <= results[f"{task}/adam/core_s"]
