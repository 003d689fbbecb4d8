from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import write_json
from costbench.rng import stream
from costbench_schedules.records.imported.importing import read_tuning_table
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.search.kernel_tuner import KERNEL_TUNER
from costbench_schedules.search.replay import Replay, TrialsSpentError, run_search
from costbench_schedules.search.table_strategies import TABLE_STRATEGIES
from tests.schedules.records.imported.tuning_files import cache_file


@pytest.fixture
def table(tmp_path: Path) -> TuningTable:
    write_json(tmp_path / "cache.json", cache_file())
    return read_tuning_table(tmp_path / "cache.json")


def test_a_configuration_costs_a_trial_once(table: TuningTable) -> None:
    replay = Replay(table, 3)
    np.testing.assert_array_equal(replay.measure([4, 2, 4]), table.first_ns[[4, 2, 4]])
    assert replay.left == 1
    replay.measure([4])
    failed = int(np.flatnonzero(table.failed)[0])
    assert np.isinf(replay.measure([failed])[0])
    assert replay.left == 0
    with pytest.raises(TrialsSpentError):
        replay.measure([0])
    assert replay.order.tolist() == [4, 2, failed]
    np.testing.assert_array_equal(replay.observed, table.first_ns[[4, 2, failed]])


def test_what_the_table_lacks_is_refused(table: TuningTable) -> None:
    with pytest.raises(IndexError):
        Replay(table, 3).measure_rows(np.array([[2, 1, 1]]))
    with pytest.raises(IndexError):
        Replay(table, 3).measure([99])


@pytest.mark.parametrize("name", sorted(TABLE_STRATEGIES.keys() - KERNEL_TUNER.keys()))
def test_strategies_spend_their_trials_and_repeat(table: TuningTable, name: str) -> None:
    orders = [
        run_search(TABLE_STRATEGIES[name](), table, trials, stream(3, name)).tolist() for trials in (7, 7, 99)
    ]
    assert orders[0] == orders[1] == orders[2][:7]
    assert len(set(orders[0])) == 7
    assert sorted(orders[2]) == list(range(len(table)))


def test_a_search_may_end_at_the_best(table: TuningTable) -> None:
    order = run_search(TABLE_STRATEGIES["random"](), table, 99, stream(3, "end"), until_best=True)
    assert order[-1] == np.argmin(table.first_ns)
    whole = run_search(TABLE_STRATEGIES["random"](), table, 99, stream(3, "end"))
    np.testing.assert_array_equal(order, whole[: len(order)])
