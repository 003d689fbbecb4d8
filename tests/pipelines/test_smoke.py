"""The pipeline end to end: what it leaves, and that it repeats itself."""

from __future__ import annotations

import json
import shutil
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from costbench.cli.app import app
from costbench.datasets.splits import read_split
from costbench.experiments.stages import train
from costbench.metrics.rows import read_rows
from tests.pipelines.workplace import (
    OWN_MODEL,
    PROGRAMS,
    TINY,
    call,
    digest_folder,
    stages_run,
    would_run,
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
        "pages/tile.html",
        "tables/leakage.csv",
        "tables/tile_random_tpu_v2.csv",
        "../results.parquet",
    ):
        assert (reports / name).is_file(), name
    summary = json.loads((reports / "summary.json").read_text())
    for model in ("learned", "analytical", "iterations", "random"):
        for split in ("random", "manual"):
            for metric in ("ape_mean", "ape_median", "tau_mean", "tau_median"):
                assert f"tile/{split}/tpu_v2/{model}/{metric}" in summary
    assert -1.0 <= summary[f"tile/random/tpu_v2/{OWN_MODEL}/tau_mean"] <= 1.0
    for table in ("tile_random_tpu_v2", "baselines_tile_random_tpu_v2"):
        assert "LargestTile" in (reports / "tables" / f"{table}.csv").read_text(), table
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


def test_folds_test_every_program_once(smoke: Path) -> None:
    """With the models of the fold that has not seen it, and with those that need no training."""
    out = smoke / "out" / "smoke"
    tests = [set(read_split(out / "split" / f"fold{number}.json").test) for number in (1, 2)]
    assert set.union(*tests) == set(PROGRAMS)
    assert not set.intersection(*tests)
    measured = {path.stem for path in (out / "features" / "fusion" / "tpu_v2").glob("*.arrow")}
    rows = read_rows(out / "evaluate" / "folds-fusion" / "rows.jsonl")
    assert {row.split for row in rows} == {"folds"}
    for model in ("learned", "hybrid", "lpm2021", "analytical"):
        tau = [
            row.program
            for row in rows
            if (row.model, row.kernels, row.metric) == (model, "all", "kendall_tau")
        ]
        assert len(tau) == len(set(tau))
        assert set(tau) <= measured & set(PROGRAMS)
        assert len(set(tau)) >= len(PROGRAMS) - 1


def test_searches_have_figures_and_headline_numbers(smoke: Path) -> None:
    reports = smoke / "out" / "smoke" / "reports"
    summary = json.loads((reports / "summary.json").read_text())
    assert summary["autotune/tile/random/tpu_v2/all/learned/top10/fewer_hardware_seconds"] > 1.0
    ends = [
        f"autotune/fusion/random/tpu_v2/all/{start}/hardware/1m/speedup_mean"
        for start in ("default", "random")
    ]
    assert summary[ends[0]] >= 1.0 > summary[ends[1]] > 0.0
    for name in ("lpm2021_figure4", "lpm2021_figure5", "tile_search", "fusion_search"):
        assert list((reports / "figures").glob(f"{name}_random_tpu_v2.*")), name
    page = (reports / "pages" / "searches.html").read_text()
    assert "Not run here" in page
    assert page.index('id="tile-search"') < page.index('id="fusion-search"')


def test_a_second_repro_has_nothing_to_do(smoke: Path) -> None:
    assert would_run(smoke) == []


def test_another_clone_pulls_what_was_computed(
    workplace: Path, tracking_template: Path, tmp_path: Path
) -> None:
    """Nothing is trained or evaluated there, the report is the same, and the lock stays as it is."""
    profile, clone = "profiles/smoke/dvc.yaml", tmp_path / "clone"
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for folder, command in (
        (workplace, ["dvc", "remote", "add", "--default", "shared", str(tmp_path / "remote")]),
        (workplace, ["git", "add", "profiles/smoke/dvc.lock", ".dvc/config"]),
        (workplace, ["git", *identity, "commit", "-qm", "computed"]),
        (workplace, ["dvc", "push", profile]),
        (workplace, ["git", "clone", "-q", str(workplace), str(clone)]),
        (clone, ["dvc", "pull", profile]),
    ):
        done = call(folder, command)
        assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(tracking_template, clone / "mlflow.db")
    out = clone / "out" / "smoke"
    # The report is made again: it is no output that DVC keeps copies of.
    made_anew = {out, *out.glob("reports/**"), *out.glob("inputs/**"), *out.glob("register/**")}
    results = [path for path in out.rglob("*") if path.is_file() and path.parent not in made_anew]
    pulled = {path: path.stat().st_mtime_ns for path in results}
    assert {"weights.pt", "rows.jsonl"} <= {path.name for path in pulled}
    done = call(clone, ["dvc", "repro", profile])
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(stages_run(done.stdout)) == {"inputs", "register", "report"}
    assert all(path.stat().st_mtime_ns == time for path, time in pulled.items())
    reports = [folder / "out" / "smoke" / "reports" for folder in (workplace, clone)]
    assert digest_folder(reports[0]) == digest_folder(reports[1])
    assert not call(clone, ["git", "status", "--porcelain", "--untracked-files=no"]).stdout
    # Work that is forced upon the clone finds everything there: of the lock, not a line changes.
    stages = [f"{profile}:{stage}@main-tile" for stage in ("train", "evaluate")]
    done = call(clone, ["dvc", "repro", "--force", "--single-item", *stages])
    assert done.returncode == 0, done.stdout + done.stderr
    for kept in ("4 cells to train: 4 kept", "of main-tile: 3 kept"):
        assert f"{kept}, 0 to do" in done.stdout + done.stderr
    assert not call(clone, ["git", "status", "--porcelain", "--untracked-files=no"]).stdout


@pytest.mark.parametrize(
    ("experiment", "variant", "between"),
    [
        ("main-fusion", "main", ["autotune", "evaluate@main-fusion"]),
        # The autotuners do without its models.
        ("ablations-tile", "mse", ["evaluate@ablations-tile"]),
    ],
)
def test_a_change_of_one_experiment_reruns_that_one(
    workplace: Path, experiment: str, variant: str, between: list[str]
) -> None:
    """And what hangs on it; of the other experiments, nothing."""
    changed = {experiment: {"variants": {variant: {"optimizer": {"learning_rate": 0.002}}}}}
    write_profile(workplace, "smoke", {**TINY, "experiments": changed})
    running = would_run(workplace)
    # DVC may take those between training and report in any order. What `register` follows from is the same
    # after a dry run.
    assert running[0] == f"train@{experiment}"
    assert sorted(running[1:]) == sorted([*between, "report"])
    assert max(map(running.index, between)) < running.index("report")


def _runs(folder: Path) -> dict[str, list[Any]]:
    """By experiment of MLflow."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    return {e.name: list(client.search_runs([e.experiment_id])) for e in client.search_experiments()}


def _below_their_grids(runs: list[Any]) -> dict[str, dict[str, Any]]:
    """Finished cells by the name of their grid's run and their own."""
    grids = {run.info.run_id: run for run in runs if run.data.tags["costbench.kind"] == "grid"}
    assert {run.info.status for run in runs} == {"FINISHED"}
    found: dict[str, dict[str, Any]] = {run.info.run_name: {} for run in grids.values()}
    for run in runs:
        if run.info.run_id not in grids:
            grid = grids[run.data.tags["mlflow.parentRunId"]].info.run_name
            assert run.info.run_name not in found[grid]
            found[grid][run.info.run_name] = run
    return found


def test_runs_are_tracked_below_their_grids(smoke: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{smoke / 'mlflow.db'}")
    found = _runs(smoke)
    (report,) = found["costbench/report"]
    grids = _below_their_grids(found["costbench/train"])
    assert {grid: len(cells) for grid, cells in grids.items()} == {
        "smoke/main-tile": 4, "smoke/main-fusion": 4, "smoke/hybrid-fusion": 2,
        "smoke/hybrid-tile": 1, "smoke/folds-fusion": 6, "smoke/tuned-tile": 1,
        "smoke/ablations-tile": 2, "smoke/tpugraphs-layout": 4,
    }  # fmt: skip
    for task in ("tile", "fusion"):
        cells = grids[f"smoke/main-{task}"]
        names = [
            f"smoke/main-{task}/{task}-{split}-tpu_v2-{variant}-s0"
            for variant in ("main", "lpm2021")
            for split in ("random", "manual")
        ]
        assert sorted(cells) == sorted(names)
        for name, run in ((name, cells[name]) for name in names[:2]):
            assert run.data.params["model.net.hidden"] == "8"
            tags = {
                "task": task, "split": name.split("-")[2], "chip": "tpu_v2", "variant": "main", "seed": "0",
                "encoder": "graphsage", "reduction": "column-wise", "profile": "smoke",
                "experiment": f"main-{task}", "git_revision": report.data.tags["git_revision"],
                "costbench.data_digest": report.data.tags["costbench.data_digest"],
            }  # fmt: skip
            assert tags.items() <= run.data.tags.items()
            metric = {"tile": "validation/tau", "fusion": "validation/mape"}[task]
            history = [one.value for one in client.get_metric_history(run.info.run_id, metric)]
            assert len(history) == 2
            assert run.data.metrics["best_metric"] in history
            read = {entry.dataset.name for entry in run.inputs.dataset_inputs}
            assert read == {f"{task} training", f"{task} validation"}
    (tuned,) = grids["smoke/tuned-tile"].values()
    assert tuned.data.params["model.net.hidden"] != "8"
    for short in grids["smoke/ablations-tile"].values():
        assert len(client.get_metric_history(short.info.run_id, "validation/tau")) == 1
    tables = [file.path for file in client.list_artifacts(report.info.run_id, "tables")]
    assert "tables/tile_random_tpu_v2.csv" in tables


def test_the_best_of_each_task_is_its_champion(smoke: Path) -> None:
    """Of those that are validated on the most kernels: experiments with short trainings take others."""
    from mlflow import MlflowClient

    store = f"sqlite:///{smoke / 'mlflow.db'}"
    client = MlflowClient(store)
    for task, better in (("tile", max), ("fusion", min)):
        version = client.get_model_version_by_alias(f"costbench-{task}-smoke", "champion")
        command = ["runs", "best", "--task", task, "--split", "random", "--chip", "tpu_v2", "--limit", "50"]
        with chdir(smoke):
            done = CliRunner(env={"MLFLOW_TRACKING_URI": store}).invoke(app, [*command, "--json"])
        assert done.exit_code == 0, done.output
        runs = json.loads(done.stdout)
        assert runs[0]["metric"] == better(run["metric"] for run in runs)
        assert all(run["is_there"] and (smoke / run["path"]).is_dir() for run in runs)
        most = max(int(run["params"]["model.validation.kernels"]) for run in runs)
        compared = [run for run in runs if int(run["params"]["model.validation.kernels"]) == most]
        assert version.run_id == compared[0]["run_id"]
        champion = json.loads((smoke / "out" / "smoke" / "register" / "champions.json").read_text())[task]
        assert champion["metric"] == compared[0]["metric"]
        assert champion["key"] == version.tags["costbench.key"]


def test_a_new_store_is_told_of_the_cells_that_are_there(
    workplace: Path, tracking_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of nothing else: no byte of them depends on the store, or on whether there is one.

    That stages after training leave the same bytes without a store, and all of them on a cluster, is seen in
    `test_cluster`.
    """
    params = Path("profiles/smoke/params.yaml")
    out = workplace / "out" / "smoke"
    before = digest_folder(out / "train")
    shutil.copy(tracking_template, workplace / "mlflow.db")
    first = (min((out / "train" / name).glob("*-s0")) for name in ("main-fusion", "tpugraphs-layout"))
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workplace / 'mlflow.db'}")
    train.run(params, "main-tile")
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    for folder in (out / "train" / "main-tile", *first):
        shutil.rmtree(folder)
    train.run(params)
    (cells,) = _below_their_grids(_runs(workplace)["costbench/train"]).values()
    assert len(cells) == 4  # two splits, two variants
    assert digest_folder(out / "train") == before
