"""Progress of searches and rows by hand; files of the stage are kept, and made again when tables change."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.metrics.rows import read_rows
from costbench_schedules.experiments.recorded_tables import TableFile, complete_tables, runtimes, table_of
from costbench_schedules.experiments.repeats import Provenance, RepeatedSearch
from costbench_schedules.experiments.search_archive import ARCHIVE_FILE
from costbench_schedules.experiments.table_rows import (
    facts_of,
    gflops_by_trial,
    rows_of_searches,
    trials_to_enough,
)
from costbench_schedules.experiments.table_tuning import (
    SearchGroup,
    list_searches,
    pack_searches,
    tune_schedules,
)
from costbench_schedules.records.card import write_card
from costbench_schedules.records.table import write_table
from costbench_schedules.search.guided import GuidedSpec
from tests.schedules.experiments.made_up_tables import SECTION, made_up_table, write_tables
from tests.schedules.workspaces import workspace_in


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TableFile:
    folder = tmp_path_factory.mktemp("schedules")
    write_tables(folder)
    return complete_tables(folder)["native", "C2"]


def test_progress_by_hand(file: TableFile) -> None:
    """Configuration 7 failed; a trial of `random-x2` is two measurements; all took twice as long again."""
    flops = table_of(file).space.operator.flops
    times = 2.0 * runtimes(file)
    assert np.isinf(times[7])
    speed = [flops / times[n] for n in (1, 2, 3)]
    best = [0.0, speed[0], max(speed[:2]), max(speed), max(speed)]
    assert gflops_by_trial(file, [7, 1, 2, 3], 5) == pytest.approx(best)
    assert gflops_by_trial(file, [7, 1, 2, 3], 2, measurements=2) == pytest.approx([speed[0], max(speed)])


def searched(file: TableFile, arm: str, *lines: list[float]) -> RepeatedSearch:
    best = float(table_of(file).gflops.max()) / 2.0
    return RepeatedSearch(file, arm, best * np.array(lines))


def test_trials_until_a_schedule_is_fast_enough(file: TableFile) -> None:
    assert trials_to_enough(searched(file, "random", [0.1, 0.96, 1.0], [0.1, 0.2, 0.94])).tolist() == [
        2.0,
        4.0,
    ]


def test_rows_by_hand(file: TableFile) -> None:
    never, late, soon = [0.1] * 50, [0.1] * 39 + [0.96] * 11, [0.1] * 9 + [0.96] * 41
    scratch, transfer = (
        searched(file, "gbt-rank", late, never),
        searched(file, "transfer-relation", soon, late),
    )
    rows = list(rows_of_searches([scratch, transfer], Provenance("p", "d", "r")))
    values = {
        (row.model, row.metric, row.seed): row.value
        for row in rows
        if row.kernels == "conv2d:all" and row.program == "C2"
    }
    assert len(rows) == 2 * len(values)
    best = values["best", "gflops_best", 0]
    assert values["gbt-rank", "gflops_25", 0] == pytest.approx(0.1 * best)
    assert values["gbt-rank", "gflops_50", 0] == pytest.approx(0.96 * best)
    assert ("gbt-rank", "gflops_100", 0) not in values
    assert values["gbt-rank", "trials_to_95", 1] == 51
    assert values["transfer-relation", "speedup_transfer", 0] == 4.0
    assert values["transfer-relation", "speedup_transfer", 1] == pytest.approx(51 / 40)
    assert best == pytest.approx(table_of(file).gflops.max() / 2.0)
    assert values["best", "gflops_confirmed", 0] == pytest.approx(best)
    assert values["best", "failed", 0] == sum(table_of(file).failed)


def test_a_curve_has_quartiles(file: TableFile) -> None:
    curve = searched(file, "random", *([n / 4.0] * 9 for n in range(5))).curve()
    assert curve["trials"] == list(range(1, 10))
    best = float(table_of(file).gflops.max()) / 2.0
    assert curve["median"] == pytest.approx([0.5 * best] * 9)
    assert curve["low"] == pytest.approx([0.25 * best] * 9)
    assert curve["high"] == pytest.approx([0.75 * best] * 9)


def test_results_are_kept_and_made_again_when_a_table_changes(tmp_path: Path) -> None:
    data, index = tmp_path / "data" / "schedules", workspace_in(tmp_path)
    folder = index.stage("schedules") / "tables"
    assert tune_schedules(SECTION, index, folder) == ""
    assert not (folder / "rows.jsonl").exists()
    write_tables(data)
    first = tune_schedules(SECTION, index, folder)
    names = {path.name for path in (folder / "searches").iterdir()}
    assert len(names) == 16
    rows = read_rows(folder / "rows.jsonl")
    assert {row.seed for row in rows if row.model != "best"} == {0, 1}
    assert {row.metric for row in rows} == {
        *("gflops_25", "trials_to_95", "speedup_transfer", "gflops_best", "gflops_confirmed"),
        *("configs", "failed"),
    }
    times = json.loads((folder / "wall_times.json").read_text())
    arms = ("gbt-rank", "treegru-rank", "gnn-rank", "lstm-rank")
    assert [(one["arm"], one["fitted"]) for one in times] == [(arm, 16) for arm in arms]
    assert all(one["fit_s"] > 0.0 and one["predict_s"] > 0.0 for one in times)

    kept = {name: (folder / "searches" / name).stat().st_mtime_ns for name in names}
    content = (folder / "rows.jsonl").read_bytes()
    assert tune_schedules(SECTION, index, folder) == first
    assert {name: (folder / "searches" / name).stat().st_mtime_ns for name in names} == kept
    assert (folder / "rows.jsonl").read_bytes() == content
    assert json.loads((folder / "wall_times.json").read_text()) == times

    table = made_up_table("C1")
    slower = {name: table.columns[name] * 2 for name in ("runtime_ns", "median_ns")}
    write_table(data / "native" / "C1.arrow", replace(table, columns={**table.columns, **slower}))
    assert tune_schedules(SECTION, index, folder) != first
    changed = {name for name in names if (folder / "searches" / name).stat().st_mtime_ns != kept[name]}
    # Searches of the table itself, and those with an earlier model of it.
    assert changed == {name for name in names if "-C1-" in name or "transfer" in name}

    tune_schedules(None, index, folder)
    assert not (folder / "rows.jsonl").exists()


def test_packed_searches_are_not_run_again(tmp_path: Path) -> None:
    write_tables(tmp_path / "data" / "schedules")
    index = workspace_in(tmp_path)
    folders = {name: tmp_path / "out" / name for name in ("computed", "searched", "packed", "more", "others")}
    tune_schedules(replace(SECTION, archive="none"), index, folders["computed"])
    pack_searches(SECTION, index, folders["searched"])
    assert len([*(folders["searched"] / "searches").iterdir()]) == 16

    # Two measurements a trial, failures and earlier models: rows and curves are those of the searches.
    fewer = replace(SECTION, searches={"one": SearchGroup(("C1",), ("random-x2",))}, repeats=1)
    tune_schedules(fewer, index, folders["packed"])
    assert not (folders["packed"] / "searches").exists()

    def rows_in(name: str) -> set[tuple[object, ...]]:
        rows = read_rows(folders[name] / "rows.jsonl")
        return {(row.program, row.kernels, row.model, row.seed, row.metric, row.value) for row in rows}

    assert rows_in("packed") == rows_in("computed")
    curves = [(folders[name] / "curves.json").read_bytes() for name in ("packed", "computed")]
    assert curves[0] == curves[1]

    # More repeats than are packed are searched, and with other settings the archive stands for nothing.
    group = SearchGroup(("C1",), ("random",))
    tune_schedules(replace(SECTION, searches={"one": group}, repeats=3), index, folders["more"])
    assert len([*(folders["more"] / "searches").iterdir()]) == 3
    assert {row[3] for row in rows_in("more") if row[0] == "C1" and row[2] == "random"} == {0, 1, 2}
    tune_schedules(replace(fewer, guided=GuidedSpec(batch=8)), index, folders["others"])
    assert {row[2] for row in rows_in("others")} == {"random-x2", "best"}

    # Another processor's tables change nothing of what is packed.
    write_tables(tmp_path / "data" / "schedules" / "xeon")
    tune_schedules(fewer, index, folders["packed"])
    assert rows_in("packed") == rows_in("computed")
    shutil.rmtree(tmp_path / "data" / "schedules" / "xeon")

    # Packed again, the archive keeps what it has, and gains what it lacks.
    before = (tmp_path / SECTION.archive / ARCHIVE_FILE).read_bytes()
    pack_searches(fewer, index, folders["packed"])
    assert (tmp_path / SECTION.archive / ARCHIVE_FILE).read_bytes() == before
    pack_searches(
        replace(fewer, searches={"one": SearchGroup(("C2",), ("genetic",))}), index, folders["packed"]
    )
    tune_schedules(fewer, index, folders["packed"])
    assert rows_in("packed") > rows_in("computed")


def test_tables_that_cannot_be_scored_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One has no second measurement, of another the fastest schedule took twice as long again as others."""
    write_tables(tmp_path)
    without, slow = made_up_table("C1"), made_up_table("C2")
    write_table(tmp_path / "native" / "C1.arrow", replace(without, repeats=without.repeats[:0]))
    others = np.argsort(np.where(slow.failed, np.iinfo(np.int64).max, slow.columns["runtime_ns"]))[1:4]
    again = [(number, slow.columns["runtime_ns"][number], 0, 1) for number in others.tolist()]
    write_table(
        tmp_path / "native" / "C2.arrow", replace(slow, repeats=np.concatenate([slow.repeats, again]))
    )
    tables = complete_tables(tmp_path)
    assert [facts_of(table)["scored"] for table in tables.values()] == [False, False, True]
    with caplog.at_level("INFO"):
        assert list_searches(SECTION, tables) == []
    assert sum("was not as fast again" in message for message in caplog.messages) == 2


def test_tables_are_held_against_their_card(tmp_path: Path) -> None:
    write_tables(tmp_path)
    write_card(tmp_path)
    assert len(complete_tables(tmp_path)) == 3
    write_table(tmp_path / "native" / "C1.arrow", made_up_table("C1", "generic"))
    with pytest.raises(DataError, match=r"C1\.arrow: damaged"):
        complete_tables(tmp_path)
