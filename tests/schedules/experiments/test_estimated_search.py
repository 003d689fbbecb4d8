"""Searches of programs with estimates: where arms begin, what they ask about, what an estimate is worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import digest_file
from costbench.errors import DataError
from costbench_schedules.experiments.estimated_search import (
    ARMS,
    EstimatedSearch,
    TablePrograms,
    programs_of,
    replay_search,
)
from costbench_schedules.experiments.recorded_tables import complete_tables
from costbench_schedules.records.programs import PROGRAMS
from costbench_schedules.reports.crop2024.guidance import BASELINE, LABELS
from tests.schedules.experiments.made_up_estimates import LEFT_OUT, SECTION, write_all


def task_in(folder: Path) -> EstimatedSearch:
    table = complete_tables(folder)["native", "matmul-256"]
    estimates = folder / "estimates"
    return EstimatedSearch(
        table, "trees", 0, 24, 16, SECTION.guided, estimates, digest_file(estimates / PROGRAMS)
    )


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> EstimatedSearch:
    return task_in(write_all(tmp_path_factory.mktemp("root")))


@pytest.fixture(scope="module")
def programs(task: EstimatedSearch) -> TablePrograms:
    return programs_of(task.table, task.estimates, task.digest)


def ranks(programs: TablePrograms, rows: list[int]) -> list[int]:
    """Places of rows in the order of the estimate."""
    order = programs.indices[np.argsort(programs.total_ns)].tolist()
    return [order.index(row) for row in rows]


def search(task: EstimatedSearch, arm: str, repeat: int = 0) -> list[int]:
    values: list[int] = replay_search(replace(task, arm=arm, repeat=repeat)).tolist()
    assert replay_search(replace(task, arm=arm, repeat=repeat)).tolist() == values
    return values


def test_estimates_stand_beside_their_measurements(programs: TablePrograms) -> None:
    ran = np.count_nonzero(~programs.table.failed)
    assert len(programs.indices) == ran - -(-ran // LEFT_OUT)
    assert (np.diff(programs.indices) > 0).all()
    # The noise of the estimates is a tenth.
    assert np.abs(np.log(programs.total_ns / programs.runtime_ns)).max() < 0.5
    np.testing.assert_allclose(programs.parts[:, 0], np.log(programs.total_ns), rtol=1e-6)
    assert len(programs.loops) == len(programs.parts) == len(programs.indices)


@pytest.mark.parametrize("arm", ARMS)
def test_every_trial_is_of_another_program_with_an_estimate(
    task: EstimatedSearch, programs: TablePrograms, arm: str
) -> None:
    trace = search(task, arm)
    assert len(trace) == len(set(trace)) == 24
    assert set(trace) <= set(programs.indices.tolist())


def test_first_batches(task: EstimatedSearch, programs: TablePrograms) -> None:
    assert ranks(programs, search(task, "crop")) == list(range(24))
    assert ranks(programs, search(task, "trees-crop-first")[:8]) == list(range(8))
    drafted = ranks(programs, search(task, "draft-verify")[:8])
    assert max(drafted) < 16
    assert drafted != sorted(drafted)
    # Of the twice as many that are cheapest, those that differ most; one in twenty is drawn.
    assert max(ranks(programs, search(task, "hybrid")[:8])) < 16
    assert search(task, "trees")[:8] == search(task, "trees-both")[:8]
    assert search(task, "trees")[:8] != search(task, "trees", 1)[:8]


def test_a_draft_bounds_what_is_measured(task: EstimatedSearch, programs: TablePrograms) -> None:
    trace = search(replace(task, guided=replace(task.guided, epsilon=0.0)), "draft-verify")
    # Three batches of 8: each of the 16 best by the estimate that are left.
    assert max(ranks(programs, trace)) < 16 + 8 + 8


def test_a_good_estimate_chooses_a_better_first_batch(task: EstimatedSearch, programs: TablePrograms) -> None:
    """Estimates are off by a tenth; half of the programs drawn at random take more than twice the least."""
    times = dict(zip(programs.indices.tolist(), programs.runtime_ns.tolist(), strict=True))
    guided, drawn = (np.median([times[n] for n in search(task, arm)[:8]]) for arm in ("hybrid", "trees"))
    assert guided < 0.7 * drawn


def test_reports_know_every_arm() -> None:
    assert set(LABELS) == set(ARMS)
    assert BASELINE in ARMS


def test_a_table_without_estimates_has_no_programs(task: EstimatedSearch) -> None:
    other = complete_tables(task.table.path.parents[1])["native", "C2"]
    assert len(programs_of(other, task.estimates, task.digest).indices) == 0


def test_estimates_of_other_measurements_are_refused(tmp_path: Path) -> None:
    task = task_in(write_all(tmp_path, slower=2))
    with pytest.raises(DataError, match="other measurements"):
        replay_search(task)
