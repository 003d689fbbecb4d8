"""Algorithm 1 on a made-up tuning table: faster than random search, and faster still with a like device."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from costbench.rng import stream
from costbench_schedules.experiments.table_scores import score
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.search.guided_tables import GUIDED_MODELS
from costbench_schedules.search.replay import run_search
from costbench_schedules.search.table_strategies import TABLE_STRATEGIES
from costbench_schedules.spaces.parameter_space import ParameterSpace

VALUES = [1, 2, 4, 8, 16, 32]
TRIALS = 96


def made_up(device: str, optimum: tuple[int, ...] = (4, 2, 3, 1), parameters: int = 4) -> TuningTable:
    """Runtimes grow with the distance from an optimum; every seventh configuration failed."""
    rows = np.array([*product(range(len(VALUES)), repeat=parameters)])
    runtime = 1000.0 * np.exp(0.3 * np.abs(rows - np.array(optimum[:parameters])).sum(axis=1))
    failed = np.arange(len(rows)) % 7 == 6
    runtime = np.where(failed, np.inf, runtime)
    reasons = tuple("does not compile" if one else "" for one in failed)
    space = ParameterSpace({f"p{number}": VALUES for number in range(parameters)}, rows)
    repeats = np.where(failed, 0, 16)
    return TuningTable(
        "made-up", device, space, runtime, 1.01 * runtime, np.zeros(len(rows)), reasons, repeats
    )


def mean_metric(name: str, metric: str, *sources: TuningTable) -> float:
    table = made_up("here")
    orders = [
        run_search(TABLE_STRATEGIES[name](), table, TRIALS, stream(0, repeat), sources) for repeat in range(3)
    ]
    assert all(len(set(order.tolist())) == TRIALS for order in orders)
    return float(np.mean([score(table, order, TRIALS)[metric] for order in orders]))


@pytest.mark.parametrize("name", sorted(GUIDED_MODELS.keys() - {"transfer-target", "mlp-rank"}))
def test_trees_find_more_than_random_search(name: str) -> None:
    assert mean_metric(name, "best_at_50") > mean_metric("random", "best_at_50")
    assert mean_metric(name, "auc") > 0.0


def test_a_small_network_needs_fewer_trials_than_random_search() -> None:
    """Later than trees do: 32 measurements are few for it."""
    assert mean_metric("mlp-rank", "trials_to_95") < 0.9 * mean_metric("random", "trials_to_95")


def test_records_of_a_like_device_save_trials() -> None:
    """One of another optimum and one of a space without a common configuration are no help, nor a failure."""
    alike, scratch = made_up("alike"), mean_metric("gbt-rank", "trials_to_95")
    assert mean_metric("transfer-target", "trials_to_95", alike) < 0.5 * scratch
    assert mean_metric("transfer-target", "trials_to_95") == scratch
    assert mean_metric("transfer-target", "trials_to_95", made_up("other", parameters=3)) == scratch
