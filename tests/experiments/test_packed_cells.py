"""A fresh clone computes the cells, baselines and rows that its archive lacks, and no others."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from costbench.artifacts import digest_files
from costbench.cli.app import app
from costbench.errors import DataError
from costbench.experiments.archive import (
    FILES,
    ROWS,
    SCHEMAS,
    Part,
    read_manifest,
    read_parts,
    records_of,
    table_of,
    write_archive,
)
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.identity import read_identity
from costbench.experiments.packed_cells import VARIABLE, packed_cells
from costbench.experiments.packing import cells_with_seeds, missing_cells, pack
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.experiments.repeated_cells import RepeatedCell, draw_cells, repeat_cells
from costbench.experiments.stages import evaluate, features, generate, split, train
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.metrics.rows import MetricRow, read_rows
from costbench.params import merge
from tests.pipelines.workplace import PROGRAMS, REPOSITORY, TINY

GRID, POINTS, BOOSTED, START = "grid", "points", "boosted", "start"
ALL = (POINTS, GRID, BOOSTED, START)
SHORT: Mapping[str, object] = {"epochs": 1, "batch": {"per_epoch": 3}}
LONG: Mapping[str, object] = {"epochs": 1, "batch": {"per_epoch": 5}}
FEW_TREES = {"kernels": 8, "configs": 4, "max_trees": 3, "patience": 2}
FROM_POINTS = {"pretrained": {"experiment": POINTS, "chip": "tpu_v2", "variant": "few"}}
EXPERIMENTS: Mapping[str, Any] = {
    # Learning curves, whose shorter point is the grid's network as well.
    POINTS: {"seeds": [0], "variants": {"few": SHORT, "more": LONG}},
    GRID: {
        "seeds": [0, 1],
        "baselines": True,
        "variants": {"main": SHORT, "hybrid": {**LONG, "net": {"residual": "analytical"}}},
    },
    BOOSTED: {"seeds": [0, 1], "variants": {}, "budgets": {"small": FEW_TREES}},
    START: {"seeds": [0], "variants": {"begun": {**SHORT, **FROM_POINTS}}},
}


def write_params(folder: Path, changes: Mapping[str, Any] | None = None) -> Path:
    """The parameters of a project in a folder."""
    sections: Any = load_sections(REPOSITORY / "profiles" / "smoke" / "params.yaml")
    for section, values in TINY.items():
        sections[section] = merge(sections[section], values)
    sections["run"] |= {
        "name": "project", "root": ".", "params": "params.yaml", "out": "out", "reports": "reports",
        "programs": "programs", "jobs": 1,
    }  # fmt: skip
    sections["generate"] |= {"tasks": ["tile"], "chips": ["tpu_v2"], "programs": list(PROGRAMS)}
    sections["split"]["names"] = ["random"]
    sections["features"] = {"tasks": ["tile"], "chips": ["tpu_v2"]}
    sections["evaluate"] = {
        "models": ["learned", "trees", "analytical"],
        "top_k": [1],
        "random_seeds": [0],
    }
    # The autotuners of this project ask none of its models.
    sections["autotune"] = {}
    sections["baselines"]["tile"]["training"] = {"kernels": 8, "configs": 8}
    common = {"task": "tile", "splits": ["random"], "chips": ["tpu_v2"]}
    sections["experiments"] = {name: {**common, **entry} for name, entry in EXPERIMENTS.items()}
    path = folder / "params.yaml"
    path.write_text(json.dumps(merge(sections, changes or {})))
    return path


@dataclass
class Project:
    """A project whose samples are there, and the names of what its stages compute."""

    folder: Path
    trained: list[str] = field(default_factory=list)
    evaluated: list[str] = field(default_factory=list)

    @property
    def workspace(self) -> Workspace:
        return load_workspace(load_params(self.folder / "params.yaml"))

    def run(self, *experiments: str, archive: Path | None = None, seeds: int | None = None) -> None:
        """Trains and evaluates experiments, and notes what is computed for it."""
        self.trained.clear()
        self.evaluated.clear()
        with pytest.MonkeyPatch.context() as patch:
            for stage, name, names in (
                (train, "train_timed", self.trained),
                (train, "fit_item", self.trained),
                (evaluate, "evaluate_program", self.evaluated),
            ):
                patch.setattr(stage, name, noting(getattr(stage, name), names))
            for one in experiments:
                for run in (train.run, evaluate.run):
                    run(self.folder / "params.yaml", one, open_results=packed_cells(archive), seeds=seeds)

    def rows(self, experiment: str) -> tuple[MetricRow, ...]:
        return read_rows(self.folder / "out" / "evaluate" / experiment / "rows.jsonl")

    def weights(self) -> set[str]:
        return {path.parent.name for path in (self.folder / "out" / "train").rglob("weights.pt")}


def noting(function: Any, names: list[str]) -> Any:
    def noted(item: Any) -> Any:
        names.append(item.name)
        return function(item)

    return noted


@pytest.fixture(autouse=True, scope="module")
def _untracked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTBENCH_TRACKING", "off")
        patch.delenv(VARIABLE, raising=False)
        yield


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that has computed everything, and packed it into `archive`. To be read, not changed."""
    folder = tmp_path_factory.mktemp("complete")
    (folder / "programs").symlink_to(REPOSITORY / "data" / "programs")
    params = write_params(folder)
    for run in (generate.run, split.run, features.run):
        run(params)
    project = Project(folder)
    project.run(*ALL)
    assert len(project.trained) == 10
    pack(folder / "archive", project.workspace)
    return project


@pytest.fixture
def clone(complete: Project, tmp_path: Path) -> Project:
    """A clone of it with samples and archive, in which nothing is trained."""
    folder = tmp_path / "clone"
    ignored = shutil.ignore_patterns("train", "evaluate", "machine")
    shutil.copytree(complete.folder, folder, symlinks=True, ignore=ignored)
    return Project(folder)


def contents(folder: Path) -> str:
    """One digest over names and contents of all tables of an archive."""
    return digest_files(folder.glob("*.parquet"), folder)


def texts_of(archive: Path, experiment: str) -> dict[str, str]:
    """Texts of an experiment in an archive, by path."""
    part = read_parts(archive, "project")[f"experiments/{experiment}"]
    return {str(path): str(text) for path, text in records_of(part.tables[FILES])}


def rewrite(archive: Path, experiment: str, texts: Mapping[str, str]) -> None:
    """Replaces the texts of an experiment in an archive."""
    parts, name = read_parts(archive, "project"), f"experiments/{experiment}"
    tables = {**parts[name].tables, FILES: table_of(FILES, list(texts.items()))}
    write_archive(archive, "project", {**parts, name: Part(parts[name].entry, tables)})


def test_what_is_packed_is_not_computed(
    clone: Project, complete: Project, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "costbench")
    archive = clone.folder / "archive"
    before = contents(archive)
    clone.run(*ALL, archive=archive)
    assert (clone.trained, clone.evaluated, clone.weights()) == ([], [], set())
    for experiment in ALL:
        assert clone.rows(experiment) == complete.rows(experiment)
        for stage in ("train", "evaluate"):
            identities = [read_identity(one.workspace.stage(stage) / experiment) for one in (clone, complete)]
            assert identities[0] == identities[1]
    revision = complete.rows(GRID)[0].git_revision[:8]
    told = f"grid: 5 of 5 cells and baselines come from {archive} (revision {revision}), 0 are computed"
    assert told in caplog.messages
    # Packed again, it is the same.
    pack(archive, clone.workspace)
    assert contents(archive) == before
    # Without an archive everything is computed, to the same numbers.
    clone.run(*ALL)
    assert len(clone.trained) == 10
    assert clone.rows(GRID) == complete.rows(GRID)


def test_what_changes_is_computed_and_the_rest_stays(clone: Project, complete: Project) -> None:
    archive = clone.folder / "archive"
    grid = {"seeds": [0, 1, 2], "variants": {"hybrid": {"batch": {"per_epoch": 4}}}}
    write_params(clone.folder, {"experiments": {GRID: grid}})
    clone.run(GRID, archive=archive)
    cells = {f"tile-random-tpu_v2-{name}" for name in ("main-s2", "hybrid-s0", "hybrid-s1", "hybrid-s2")}
    # The baselines beside the cells are fitted wherever any model is evaluated.
    assert set(clone.trained) == {*cells, "baselines-random-tpu_v2"}
    assert clone.weights() == cells
    now, before = (
        {row.key: row.value for row in project.rows(GRID) if (row.model, row.seed) != ("hybrid", 2)}
        for project in (clone, complete)
    )
    assert {key for key in before if now[key] != before[key]} <= {key for key in before if "hybrid" in key}
    assert any(now[key] != before[key] for key in before)
    seeds = {(row.model, row.seed) for row in clone.rows(GRID) if row.model in ("learned", "hybrid")}
    assert seeds == {(model, seed) for model in ("learned", "hybrid") for seed in (0, 1, 2)}
    # The archive gets the new cells and keeps the others; then nothing is left to compute.
    pack(archive, clone.workspace)
    rows = clone.rows(GRID)
    shutil.rmtree(clone.folder / "out" / "train")
    shutil.rmtree(clone.folder / "out" / "evaluate")
    clone.run(*ALL, archive=archive)
    assert (clone.trained, clone.evaluated) == ([], [])
    assert clone.rows(GRID) == rows


@pytest.mark.parametrize("experiment", [GRID, BOOSTED])
def test_results_are_packed_seed_by_seed(experiment: str, clone: Project, complete: Project) -> None:
    """A machine that is lost takes no more along than the seed in work."""
    archive, trained = clone.folder / "seeds", clone.folder / "out" / "train"
    cells = load_experiment(load_params(clone.folder / "params.yaml"), experiment).cells
    for seeds in (1, 2):
        clone.run(experiment, archive=archive, seeds=seeds)
        pack(archive, clone.workspace, experiments=[experiment])
        before, now = ({row.key: row.value for row in one.rows(experiment)} for one in (complete, clone))
        seed = {row.key: row.seed for row in complete.rows(experiment)}
        assert now == {key: value for key, value in before.items() if seed[key] < seeds}
        assert read_manifest(archive).parts[f"experiments/{experiment}"].cells == len(cells) // 2 * seeds
        part = read_parts(archive, "project")[f"experiments/{experiment}"]
        per_seed = len(cells) // 2 or 1  # or a set of boosted trees
        assert cells_with_seeds(part) == per_seed * seeds
        whole = load_experiment(load_params(clone.folder / "params.yaml"), experiment)
        assert missing_cells(whole, part) == (per_seed * (2 - seeds), per_seed * 2)
        if seeds == 1:
            shutil.rmtree(trained)
    beside = {"baselines-random-tpu_v2"} if experiment == GRID else set()
    of_second = {name for name in clone.trained if name not in beside}
    assert of_second
    assert all(name.endswith(("-s1", "-seed1")) for name in of_second)
    # Asked for fewer seeds than are trained, the others stay, here and in the archive.
    weights = clone.weights()
    clone.run(experiment, seeds=1)
    assert clone.weights() >= weights
    packed = contents(archive)
    assert f"experiments/{experiment}" in pack(archive, clone.workspace, experiments=[experiment]).kept
    assert contents(archive) == packed
    # To another archive they are not packed before their turn.
    archive = clone.folder / "other"
    pack(archive, clone.workspace, experiments=[experiment])
    folders = {PurePosixPath(path).parent.name for path in texts_of(archive, experiment)}
    assert not folders & of_second
    assert read_manifest(archive).parts[f"experiments/{experiment}"].cells == len(cells) // 2


def test_a_new_budget_of_trees_leaves_the_others(clone: Project, complete: Project) -> None:
    larger = {"kernels": 12, "configs": 4, "max_trees": 4, "patience": 2}
    write_params(clone.folder, {"experiments": {BOOSTED: {"budgets": {"large": larger}}}})
    clone.run(BOOSTED, archive=clone.folder / "archive")
    assert sorted(clone.trained) == [f"baselines-random-tpu_v2-large-seed{seed}" for seed in (0, 1)]
    rows = [row for row in clone.rows(BOOSTED) if row.variant == "small"]
    assert rows == [row for row in complete.rows(BOOSTED) if row.variant == "small"] != []
    timing = f"machine/train/{BOOSTED}/baselines-random-tpu_v2-small-seed0.json"
    packed = texts_of(clone.folder / "archive", BOOSTED)[timing]
    assert (clone.folder / "out" / timing).read_text() == packed


def test_a_cell_that_another_experiment_has_trained_is_its_rows_under_another_name(
    clone: Project, complete: Project
) -> None:
    archive = clone.folder / "archive"
    parts = read_parts(archive, "project")
    del parts[f"experiments/{GRID}"]
    write_archive(archive, "project", parts)
    clone.run(GRID, archive=archive)
    assert "tile-random-tpu_v2-main-s0" not in clone.trained
    assert len(clone.trained) == 4

    def numbers(project: Project) -> dict[object, float]:
        return {row.key: row.value for row in project.rows(GRID)}

    assert numbers(clone) == numbers(complete)
    histories = [
        p.folder / "out/train/grid/tile-random-tpu_v2-main-s0/history.csv" for p in (clone, complete)
    ]
    assert histories[0].read_bytes() == histories[1].read_bytes()


def test_a_program_that_the_archive_has_no_rows_of_is_tested(clone: Project, complete: Project) -> None:
    """A split may test one more program with the samples, training and validation that there were."""
    archive, (added, *_) = clone.folder / "archive", {row.program for row in complete.rows(POINTS)}
    parts = read_parts(archive, "project")
    for name, part in parts.items():
        of_others = pc.not_equal(part.tables[ROWS]["program"], added)
        parts[name] = Part(part.entry, {**part.tables, ROWS: part.tables[ROWS].filter(of_others)})
    write_archive(archive, "project", parts)
    write_params(clone.folder, {"experiments": {POINTS: {"seeds": [0, 1]}}})
    clone.run(POINTS, archive=archive)
    assert len(clone.trained) == 4
    assert {row.key for row in clone.rows(POINTS)} > {row.key for row in complete.rows(POINTS)}


def test_cells_whose_weights_are_needed_are_trained(
    clone: Project, complete: Project, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "costbench")
    archive = clone.folder / "archive"
    write_params(clone.folder, {"experiments": {START: {"variants": {"begun": {"batch": {"per_epoch": 4}}}}}})
    clone.run(POINTS, START, archive=archive)
    started = "tile-random-tpu_v2-begun-s0"
    assert set(clone.trained) == {"tile-random-tpu_v2-few-s0", "tile-random-tpu_v2-more-s0", started}
    assert f"{START}: training starts from weights of {POINTS}, which is trained for them" in caplog.messages
    assert clone.rows(POINTS) == complete.rows(POINTS)
    write_params(clone.folder, {"autotune": {"tile": {"models": [f"{GRID}.main"]}}})
    clone.run(GRID, archive=archive)
    # Of each split and chip all seeds of the variant, with the baselines beside the cells.
    main = {f"tile-random-tpu_v2-main-s{seed}" for seed in (0, 1)}
    assert set(clone.trained) == {*main, "baselines-random-tpu_v2"}
    told = [text for text in caplog.messages if text.startswith(f"{GRID}: 2 of 5 cells")]
    assert [text.partition("), ")[2] for text in told] == ["3 are computed, 3 of them for their weights"]


def test_code_may_differ_and_settings_of_the_evaluation_may_not(clone: Project, complete: Project) -> None:
    archive = clone.folder / "archive"
    path, texts = f"train/{POINTS}/identity.json", texts_of(archive, POINTS)
    rewrite(archive, POINTS, {**texts, path: json.dumps({**json.loads(texts[path]), "code_digest": "older"})})
    clone.run(POINTS, archive=archive)
    assert clone.trained == []
    assert read_identity(clone.workspace.stage("train") / POINTS).code_digest == "older"
    write_params(clone.folder, {"evaluate": {"top_k": [1, 2]}})
    clone.run(POINTS, archive=archive)
    assert len(clone.trained) == 2


def test_an_archive_that_says_nothing_of_cells_counts_as_a_whole(clone: Project, complete: Project) -> None:
    archive = clone.folder / "archive"
    for name in ALL:
        texts = texts_of(archive, name)
        assert texts.pop(f"train/{name}/cells.json")
        rewrite(archive, name, texts)
    clone.run(GRID, archive=archive)
    assert clone.trained == []
    assert clone.rows(GRID) == complete.rows(GRID)
    write_params(clone.folder, {"experiments": {POINTS: {"seeds": [0, 1]}}})
    clone.run(POINTS, archive=archive)
    assert len(clone.trained) == 4


MAIN_CELL, FEW_CELL, MORE_CELL = (f"tile-random-tpu_v2-{name}-s0" for name in ("main", "few", "more"))


def test_cells_are_drawn_from_all_that_need_no_others(complete: Project) -> None:
    archive, params = complete.folder / "archive", complete.workspace.params
    everything = draw_cells(archive, params, 100, 0)
    hybrids = [f"tile-random-tpu_v2-{name}-s{seed}" for name in ("hybrid", "main") for seed in (0, 1)]
    assert {name: sorted(cells) for name, cells in everything.items()} == {
        POINTS: [FEW_CELL, MORE_CELL],
        GRID: hybrids,
    }
    draws = [str(draw_cells(archive, params, 2, seed)) for seed in (0, 0, 1, 2, 3)]
    assert draws[0] == draws[1]
    assert len(set(draws)) > 1


def test_repeated_cells_are_equal_and_leave_the_profile_alone(clone: Project, complete: Project) -> None:
    archive, params, work = (clone.folder / name for name in ("archive", "params.yaml", "work"))
    before = {path.name for path in (clone.folder / "out").iterdir()}
    first = list(repeat_cells(archive, params, {POINTS: [FEW_CELL], GRID: [MAIN_CELL]}, work))
    assert [cell.name for cell in first] == [f"{POINTS}/{FEW_CELL}", f"{GRID}/{MAIN_CELL}"]
    assert all(cell.rows == cell.equal > 0 and cell.difference == 0.0 for cell in first)
    assert {path.parent.name for path in work.rglob("weights.pt")} == {FEW_CELL, MAIN_CELL}
    assert {path.name for path in (clone.folder / "out").iterdir()} == before
    # Another draw in the same folder; a cell that follows from other settings now is not repeated.
    write_params(clone.folder, {"experiments": {POINTS: {"variants": {"few": {"batch": {"per_epoch": 4}}}}}})
    second = list(repeat_cells(archive, params, {POINTS: [FEW_CELL, MORE_CELL]}, work))
    assert second[0] == RepeatedCell(f"{POINTS}/{FEW_CELL}", 0, 0, 0.0)
    assert second[1].rows == second[1].equal > 0
    # Of an archive that says nothing of cells, all experiments that are as they were.
    texts = texts_of(archive, GRID)
    assert texts.pop(f"train/{GRID}/cells.json")
    rewrite(archive, GRID, texts)
    (third,) = repeat_cells(archive, params, {GRID: [MAIN_CELL]}, work)
    assert third == first[1]


@pytest.mark.parametrize(
    ("column", "change", "difference"),
    [
        ("value", lambda value: value + 0.25, ""),
        ("value", lambda value: math.nan, "inf"),
        # The archive has rows of another group of kernels.
        ("kernels", lambda group: f"other-{group}", "inf"),
    ],
    ids=["differs", "not-finite", "missing"],
)
def test_a_row_that_is_not_repeated_fails_the_check(
    clone: Project,
    complete: Project,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    change: Callable[[Any], Any],
    difference: str,
) -> None:
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")  # as the command sets it, undone after the test
    archive = clone.folder / "archive"
    arguments = ["results", "check", str(archive), "--params", str(clone.folder / "params.yaml")]
    done = CliRunner().invoke(app, [*arguments, "--cells", "1", "--tolerance", "0"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1].startswith(
        "1 of 1 cells to the same bits, the largest difference is 0"
    )
    ((drawn, (cell,)),) = draw_cells(archive, clone.workspace.params, 1, 0).items()
    parts, name = read_parts(archive, "project"), f"experiments/{drawn}"
    at = SCHEMAS[ROWS].get_field_index(column)
    rows = [(*row[:at], change(row[at]), *row[at + 1 :]) for row in records_of(parts[name].tables[ROWS])]
    tables = {**parts[name].tables, ROWS: table_of(ROWS, rows)}
    write_archive(archive, "project", {**parts, name: Part(parts[name].entry, tables)})
    done = CliRunner().invoke(app, [*arguments, "--cells", "1"])
    assert isinstance(done.exception, DataError)
    assert f"{archive}: rows differ by {difference}" in str(done.exception)
    assert f"{drawn}/{cell}: 0 of " in done.stdout


def test_programs_of_a_users_own_are_in_no_archive(clone: Project) -> None:
    programs = clone.folder / "programs"
    programs.unlink()
    (programs / "user").mkdir(parents=True)
    assert packed_cells(clone.folder / "archive")(clone.workspace) is not None
    (programs / "user" / "mine.hlo").write_text("HloModule mine")
    assert packed_cells(clone.folder / "archive")(clone.workspace) is None
