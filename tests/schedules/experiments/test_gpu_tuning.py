"""Searches of a folder of tuning tables: rows by table, strategy and repeat; results are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.errors import ChoiceError, DataError
from costbench.metrics.rows import read_rows
from costbench.rng import stream
from costbench_schedules.experiments.gpu_tuning import (
    GpuTuning,
    rows_between,
    search_gpus,
    tuning_files,
    tuning_table,
)
from costbench_schedules.experiments.repeats import Provenance
from costbench_schedules.experiments.replayed_tables import repeat_search
from costbench_schedules.experiments.search_archive import ARCHIVE_FILE, ArchiveFacts, write_archive
from costbench_schedules.experiments.table_scores import TableSearches, score
from costbench_schedules.records.card import check_card, write_card
from costbench_schedules.records.imported.parquet import read_parquet, write_parquet
from costbench_schedules.records.tuning_table import TuningTable
from tests.schedules.experiments.made_up_tuning_tables import OPTIMA, made_up_tuning_table
from tests.schedules.experiments.test_table_scores import table_of
from tests.schedules.workspaces import workspace_in

SECTION = GpuTuning(("random", "genetic"), trials=12, repeats=3, development=("k-a",))


def made_up(device: str, seed: int = 0) -> TuningTable:
    times = np.exp(stream(seed, device).normal(size=30)).tolist()
    return table_of(times, times, device, "k")


def write_tables(root: Path, seed: int = 0) -> None:
    for device in "ab":
        write_parquet(root / SECTION.tables / f"k-{device}.parquet", made_up(device, seed))


def test_rows_are_scores_of_each_repeat(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "gpus"
    assert search_gpus(SECTION, workspace_in(tmp_path), folder) == ""
    write_tables(tmp_path)
    first = search_gpus(SECTION, workspace_in(tmp_path), folder)
    rows = read_rows(folder / "rows.jsonl")
    assert {(row.task, row.split, row.application) for row in rows} == {
        ("schedule", "gpu", "k"),
        ("schedule", "between-gpus", "k"),
    }
    assert {(row.chip, row.program) for row in rows} == {("a", "k-a"), ("b", "k-b")}
    values = {(row.program, row.model, row.seed, row.metric): row.value for row in rows}
    assert len([key for key in values if key[1] == "genetic"]) == 2 * 3 * 6
    files = tuning_files(tmp_path / SECTION.tables)
    order = repeat_search(tuning_table(files[1]), "genetic", 12, 2, (), 0)
    expected = score(tuning_table(files[1]), order, 12)
    assert {metric: values["k-b", "genetic", 2, metric] for metric in expected} == expected
    assert values["k-a", "best", 0, "configs"] == 30.0
    facts = json.loads((folder / "tables.json").read_text())
    assert [(fact["device"], fact["development"]) for fact in facts] == [("a", True), ("b", False)]
    curves = json.loads((folder / "curves.json").read_text())
    assert [(curve["target"], curve["arm"]) for curve in curves] == [
        *(("a", "random"), ("b", "random"), ("a", "genetic"), ("b", "genetic"))
    ]

    kept = {path: path.stat().st_mtime_ns for path in (folder / "searches").iterdir()}
    assert search_gpus(SECTION, workspace_in(tmp_path), folder) == first
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    write_tables(tmp_path, seed=1)
    assert search_gpus(SECTION, workspace_in(tmp_path), folder) != first
    search_gpus(None, workspace_in(tmp_path), folder)
    assert not (folder / "rows.jsonl").exists()


def test_packed_searches_by_other_strategies_join(tmp_path: Path) -> None:
    write_tables(tmp_path)
    files = tuning_files(tmp_path / SECTION.tables)
    orders = [stream(0, "orders", repeat).permutation(30)[:12] for repeat in range(5)]
    searches = [
        TableSearches(tuning_table(file), strategy, 12, orders[:repeats])
        for file in files
        for strategy, repeats in (("kernel-tuner-pso", 5), ("random", 4))
    ]
    digests = {files[0].name: files[0].digest, files[1].name: "of another table"}

    def models(trials: int) -> set[tuple[str, str, int]]:
        facts = ArchiveFacts(trials, 0, digests)
        write_archive(tmp_path / SECTION.archive / ARCHIVE_FILE, searches, facts)
        search_gpus(SECTION, workspace_in(tmp_path), tmp_path / "out")
        rows = [row for row in read_rows(tmp_path / "out/rows.jsonl") if row.metric == "auc"]
        values.update({(row.program, row.model, row.seed): row.value for row in rows})
        return {(row.program, row.model, row.seed) for row in rows}

    values: dict[tuple[str, str, int], float] = {}
    searched = models(13)
    # More repeats of a strategy that was searched with stand for fewer; on the other table nothing does.
    joined = {("k-a", "kernel-tuner-pso", repeat) for repeat in range(5)} | {("k-a", "random", 3)}
    assert models(12) - searched == joined
    expected = score(tuning_table(files[0]), orders[1], 12)["auc"]
    assert values["k-a", "kernel-tuner-pso", 1] == expected


def test_transfer_without_another_device_is_left_out(tmp_path: Path) -> None:
    section = replace(SECTION, strategies=("random", "transfer-target"))
    write_tables(tmp_path)
    write_parquet(
        tmp_path / SECTION.tables / "alone-a.parquet", table_of([3.0, 2.0], [3.0, 2.0], "a", "alone")
    )
    search_gpus(section, workspace_in(tmp_path), tmp_path / "out")
    rows = [row for row in read_rows(tmp_path / "out/rows.jsonl") if row.metric == "auc"]
    assert {(row.program, row.model) for row in rows} == {
        *((table, "random") for table in ("alone-a", "k-a", "k-b")),
        *((table, "transfer-target") for table in ("k-a", "k-b")),
    }


def test_damaged_and_doubled_tables_are_named(tmp_path: Path) -> None:
    write_tables(tmp_path)
    folder = tmp_path / SECTION.tables
    write_parquet(folder / "other.parquet", made_up("a"))
    with pytest.raises(DataError, match="k-a again"):
        tuning_files(folder)
    (folder / "other.parquet").unlink()
    card = write_card(folder, "made up")
    tables: Any = card["tables"]
    assert tables["k-a.parquet"]["random_trials_to_95"] > 1.0
    assert tables["k-a.parquet"]["twice"]["tau"] == 1.0
    write_parquet(folder / "k-a.parquet", made_up("a", seed=2))
    with pytest.raises(DataError, match=r"SHA-256|seal|damaged"):
        tuning_files(folder)


def test_the_choice_of_another_device() -> None:
    """The optimum of `large` is a step from that of `small`, e^-0.3 of the speed; `sum` is another kernel."""
    tables = [made_up_tuning_table(*key) for key in OPTIMA]
    rows = {
        (row.program, row.variant, row.metric): row.value
        for row in rows_between(tables, Provenance("p", "d", "r"))
    }
    assert rows["blur-small", "large", "share_of_best"] == pytest.approx(np.exp(-0.3))
    assert rows["blur-small", "large", "kendall_tau"] > rows["blur-small", "other", "kendall_tau"]
    assert not any(program == "sum-small" for program, _, _ in rows)
    assert len(rows) == 3 * 2 * 2


@pytest.mark.parametrize(
    "wrong", [{"strategies": ("clever",)}, {"strategies": ()}, {"trials": 0}, {"repeats": 0}], ids=str
)
def test_impossible_sections(wrong: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"strategies": ("random",)} | wrong
    with pytest.raises((ValueError, ChoiceError), match=r"strateg|trials"):
        GpuTuning(**settings)


def test_tables_of_the_project_are_whole_and_measured_twice(repository: Path) -> None:
    folder = repository / "data" / "gpu_tuning"
    check_card(folder)
    tables = [read_parquet(path) for path in sorted(folder.glob("*.parquet"))]
    assert len(tables) == 16
    assert {table.kernel for table in tables} == {"convolution", "convolution_ktt", "dedispersion", "gemm"}
    for table in tables:
        assert table.twice
        ran = ~table.failed
        # Means of 15 runs or more agree within a percent, those of 4 within some.
        assert np.median(np.abs(np.log(table.first_ns[ran] / table.second_ns[ran]))) < 0.01
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3_000_000
