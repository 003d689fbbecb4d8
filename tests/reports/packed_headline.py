"""A small archive: a hybrid, and boosted trees of two budgets, on folds of six programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from costbench.artifacts import write_json, write_text
from costbench.experiments.identity import StageIdentity, write_identity
from costbench.experiments.packing import pack
from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import load_workspace
from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.headline import HeadlineParams
from tests.reports.conftest import make_row

EXPERIMENTS = ("headline-tile", "trees-tile", "curves-tile", "estimates-tile")
PARAMS = HeadlineParams("archive", ("headline-tile",), ("trees-tile",), ("curves-tile", "curves-fusion"))
PROGRAMS = tuple((f"A{i // 2}", f"p{i}") for i in range(6))
FACTORS = (0.5, 1.0, 2.0, 0.5, 1.0, 2.0)
"""Errors of programs, by which the geometric mean is multiplied."""
VALIDATION = {"small": (0.80, 0.90), "large": (0.88, 0.86)}
"""Validation values of trees in both folds: 0.85 and 0.87 in the mean."""
CURVES = {"hybrid": {100: 0.80, 200: 0.81}, "learned": {100: 0.50, 200: 0.60}}


def _rows(model: str, error: float, variant: str = "main", seed: int = 0) -> list[MetricRow]:
    """Rows of a model with an error, as geometric mean, and a tau of .9."""
    rows = []
    for (application, program), factor in zip(PROGRAMS, FACTORS, strict=True):
        names = {"application": application, "program": program, "model": model, "variant": variant}
        place = {"split": "folds", "chip": "tpu_v3", "seed": seed, **names}
        rows.append(make_row(**place, metric="tile_size_ape", value=error * factor))
        rows.append(make_row(**place, metric="kendall_tau", value=0.9))
    return rows


def _cell(
    out: Path,
    experiment: str,
    fold: int,
    variant: str,
    steps: int,
    value: float,
    seed: int = 0,
    chip: str = "tpu_v3",
) -> str:
    name = f"tile-fold{fold}-{chip}-{variant}-s{seed}"
    folder = out / "train" / experiment / name
    write_json(
        folder / "done.json", {"steps": steps, "kernels": 8, "configs": 32, "validations": 1, "key": "k"}
    )
    write_text(folder / "history.csv", f"epoch,step,validation/tau\n0,{steps},{value}\n")
    return name


def write_stages(out: Path) -> None:
    """Writes what the stages leave behind."""
    rows = {
        # Trees as they are elsewhere give way to the budget that validation chooses.
        "headline-tile": [
            *_rows("hybrid", 2.0),
            *_rows("learned", 3.0, "hybrid-wide"),
            *_rows("trees_analytical", 9.0),
            *_rows("random", 200.0),
        ],
        "trees-tile": [*_rows("trees_analytical", 6.0, "small"), *_rows("trees_analytical", 4.0, "large")],
        "curves-tile": [
            row
            for network, points in CURVES.items()
            for steps in points
            for row in _rows("learned", 1_000.0 / steps, f"curve-{network}-{steps}")
        ],
        "estimates-tile": [*_rows("hybrid", 3.0, "hybrid-tiles"), *_rows("trees_analytical", 5.0)],
    }
    for fold in (1, 2):
        _cell(out, "headline-tile", fold, "hybrid", 200, 0.81)
        # A variant of a network is another network, and its time is its own.
        other = _cell(out, "headline-tile", fold, "hybrid-wide", 200, 0.80)
        write_json(out / "machine/train/headline-tile" / f"{other}.json", {"core_seconds": 400.0})
        for budget, values in VALIDATION.items():
            name = f"baselines-fold{fold}-tpu_v3-{budget}-seed0"
            kernels = {"small": 10, "large": 20}[budget]
            fit = {
                "kernels": kernels,
                "samples": 10 * kernels,
                "trees": fold * kernels,
                "validation": values[fold - 1],
            }
            write_json(out / "train" / "trees-tile" / name / "fits.json", {"trees_analytical": fit})
            seconds = {"core_seconds": {"trees_analytical": fold * 10.0}}
            write_json(out / "machine" / "train" / "trees-tile" / f"{name}.json", seconds)
        for network, points in CURVES.items():
            for steps, value in points.items():
                name = _cell(out, "curves-tile", fold, f"curve-{network}-{steps}", steps, value)
                if steps == 100 and network == "hybrid":
                    timing = out / "machine" / "train" / "curves-tile" / f"{name}.json"
                    write_json(timing, {"seconds": 99.0, "core_seconds": fold * 4.0})
        _cell(out, "estimates-tile", fold, "hybrid-tiles", 200 + 100 * fold, 0.7, seed=fold)
        fit = {"kernels": 20 + 10 * fold, "samples": 9, "trees": 5, "validation": 0.5}
        name = f"baselines-fold{fold}-tpu_v3"
        write_json(out / "train" / "estimates-tile" / name / "fits.json", {"trees_analytical": fit})
    for name in EXPERIMENTS:
        write_rows(out / "evaluate" / name / "rows.jsonl", rows[name])
        for stage in ("train", "evaluate"):
            write_identity(out / stage / name, StageIdentity("params", "data", "code"))


def packed(archive: Path) -> HeadlineParams:
    """Returns the experiments of the archive in a folder."""
    return replace(PARAMS, results=str(archive))


def write_headline(folder: Path) -> Path:
    """Packs these results into `archive`, and returns its path."""
    experiments = "".join(f"  {name}: {{task: tile}}\n" for name in EXPERIMENTS)
    write_text(
        folder / "params.yaml",
        f"run: {{name: headline, root: ., params: params.yaml, out: out, reports: reports}}\n"
        f"experiments:\n{experiments}",
    )
    workspace = load_workspace(load_params(folder / "params.yaml"))
    write_stages(workspace.out)
    pack(folder / "archive", workspace)
    return folder / "archive"


def add_second_chip(folder: Path) -> None:
    """Packs trainings of the hybrid on samples of another chip, too, on which a step took 2 core-seconds."""
    workspace = load_workspace(load_params(folder / "params.yaml"))
    for fold in (1, 2):
        name = _cell(workspace.out, "headline-tile", fold, "hybrid", 200, 0.8, chip="tpu_v2")
        timing = workspace.out / "machine" / "train" / "headline-tile" / f"{name}.json"
        write_json(timing, {"core_seconds": 400.0})
    write_identity(workspace.out / "train" / "headline-tile", StageIdentity("params", "data", "later"))
    pack(folder / "archive", workspace, experiments=["headline-tile"])


def add_runs(folder: Path) -> None:
    """Packs an experiment with a second seed of the hybrid."""
    text = (folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(f"{text}  runs-tile: {{task: tile}}\n")
    workspace = load_workspace(load_params(folder / "params.yaml"))
    for fold in (1, 2):
        _cell(workspace.out, "runs-tile", fold, "hybrid", 200, 0.8, seed=1)
    rows = [*_rows("hybrid", 6.0, seed=1), *_rows("random", 300.0)]
    write_rows(workspace.out / "evaluate" / "runs-tile" / "rows.jsonl", rows)
    for stage in ("train", "evaluate"):
        write_identity(workspace.out / stage / "runs-tile", StageIdentity("params", "data", "code"))
    pack(folder / "archive", workspace, experiments=["runs-tile"])


def add_searches(folder: Path, speedups: Mapping[str, float]) -> None:
    """Packs searches for tile sizes, too: of each model ten measured candidates, alike in all programs."""
    workspace = load_workspace(load_params(folder / "params.yaml"))
    tuned = workspace.stage("autotune")
    place = {"split": "folds", "chip": "tpu_v3", "variant": "top10", "metric": "speedup"}
    rows = [
        make_row(**place, model=model, application=application, program=program, value=speedup)
        for model, speedup in speedups.items()
        for application, program in PROGRAMS
    ]
    write_rows(tuned / "rows.jsonl", rows)
    write_json(tuned / "search.json", [])
    write_identity(tuned, StageIdentity("params", "data", "code"))
    pack(folder / "archive", workspace, experiments=["autotune"])
