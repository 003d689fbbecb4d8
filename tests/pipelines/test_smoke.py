"""The pipeline end to end: what it leaves, that it repeats itself, that it survives a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pipelines.workplace import (
    PROGRAMS,
    TINY,
    call,
    call_stages,
    digest_folder,
    environment,
    write_profile,
)

pytestmark = [
    pytest.mark.pipeline,
    # MLflow's own use of SQLAlchemy.
    pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning"),
]


def test_the_run_leaves_tables_figures_and_a_page(smoke: Path) -> None:
    reports = smoke / "out" / "smoke" / "reports"
    for name in (
        "index.html",
        "summary.json",
        "metrics.json",
        "figures/training_tile.svg",
        "tables/leakage.csv",
    ):
        assert (reports / name).is_file(), name
    for suffix in ("csv", "md", "tex"):
        assert (reports / "tables" / f"tile_random_tpu_v2.{suffix}").is_file()
    summary = json.loads((reports / "summary.json").read_text())
    for model in ("learned", "analytical", "iterations", "random"):
        for split in ("random", "manual"):
            for metric in ("ape_mean", "ape_median", "tau_mean", "tau_median"):
                assert f"tile/{split}/tpu_v2/{model}/{metric}" in summary
    assert abs(summary["tile/random/tpu_v2/random/tau_mean"]) < 0.5
    assert summary["tile/random/tpu_v2/iterations/tau_mean"] > 0.3


def test_both_tasks_have_results_and_claims_verdicts(smoke: Path) -> None:
    reports = smoke / "out" / "smoke" / "reports"
    summary = json.loads((reports / "summary.json").read_text())
    for model in ("learned", "analytical"):
        for split in ("random", "manual"):
            assert summary[f"fusion/{split}/tpu_v2/{model}/mape_ge5us_mean"] > 0
    verdicts = {one["id"]: one["verdict"] for one in json.loads((reports / "claims.json").read_text())}
    assert verdicts["lpm2021.tile_random_vs_analytical"] != "not evaluated"
    assert verdicts["lpm2021.fusion_random_vs_analytical"] != "not evaluated"
    assert verdicts["lpm2021.rank_vs_mse_tile"] != "not evaluated"
    # Its variants are no experiment of this profile.
    assert verdicts["lpm2021.sage_beats_gat_tile"] == "not evaluated"


def test_a_second_repro_has_nothing_to_do(smoke: Path) -> None:
    done = call(smoke, ["dvc", "repro", "--dry", "profiles/smoke/dvc.yaml"])
    assert done.returncode == 0, done.stderr
    assert "Running stage" not in done.stdout
    assert "up to date" in done.stdout


def test_a_change_of_one_experiment_reruns_that_one(workplace: Path) -> None:
    """And what hangs on it; of the other experiments, nothing."""
    changed = {"main-fusion": {"variants": {"main": {"optimizer": {"learning_rate": 0.002}}}}}
    write_profile(workplace, "smoke", {**TINY, "experiments": changed})
    done = call(workplace, ["dvc", "repro", "--dry", "profiles/smoke/dvc.yaml"])
    assert done.returncode == 0, done.stderr
    running = re.findall(r"Running stage '(?:[^':]*:)?([^']+)'", done.stdout)
    assert running == ["train@main-fusion", "evaluate@main-fusion", "report"]


def test_runs_are_tracked(smoke: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{smoke / 'mlflow.db'}")
    found = {e.name: client.search_runs([e.experiment_id]) for e in client.search_experiments()}
    (report,) = found["costbench/report"]
    assert len(found["costbench/train"]) == 9
    for run in found["costbench/train"]:
        assert run.info.status == "FINISHED"
        tuned = run.data.params["cell.variant"] == "tuned"
        assert (run.data.params["model.net.hidden"] == "8") is not tuned
        task = run.data.params["cell.task"]
        metric = {"tile": "validation/tau", "fusion": "validation/mape"}[task]
        short = run.data.params["cell.variant"] in ("vanilla", "mse")
        assert len(client.get_metric_history(run.info.run_id, metric)) == (1 if short else 2)
        read = {entry.dataset.name for entry in run.inputs.dataset_inputs}
        assert read == {f"{task} training", f"{task} validation"}
        assert run.data.tags["costbench.data_digest"] == report.data.tags["costbench.data_digest"]
    tables = [file.path for file in client.list_artifacts(report.info.run_id, "tables")]
    assert "tables/tile_random_tpu_v2.csv" in tables


def _kill_when(condition: Path, folder: Path, params: Path) -> bool:
    """Start `generate`, kill all its processes once a file is there; whether it was still running."""
    process = subprocess.Popen(
        [sys.executable, "pipelines/generate.py", "--params", str(params)],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None and not condition.exists():
        time.sleep(0.005)
    running = process.poll() is None
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return running


def test_a_killed_run_ends_with_the_same_bytes(workplace: Path) -> None:
    """A second run in another folder, with two processes, killed in `generate`, then run to the end."""
    params = write_profile(workplace, "again", {**TINY, "run": {"jobs": 2}})
    first, second = (workplace / "out" / name for name in ("smoke", "again"))
    shards = second / "generate" / "tile" / "tpu_v2"
    assert _kill_when(shards / f"{PROGRAMS[0]}.shard", workplace, params)
    assert len(list(shards.glob("*.shard"))) < len(PROGRAMS)
    write_profile(workplace, "again", TINY)
    done = call_stages(workplace, params, PYTHONHASHSEED="7")
    assert done.returncode == 0, done.stderr
    for name in ("generate", "split", "evaluate", "reports/tables", "reports/figures"):
        assert digest_folder(first / name) == digest_folder(second / name), name
    pages = [(out / "reports" / "index.html").read_text() for out in (first, second)]
    assert pages[0].replace("smoke", "again") == pages[1].replace("smoke", "again")
