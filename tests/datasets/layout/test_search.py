from __future__ import annotations

import numpy as np
import pytest

from costbench.arrays import F64, I16, I64
from costbench.datasets.layout.columns import DEFAULT, GENETIC, RANDOM
from costbench.datasets.layout.search import (
    GeneticParams,
    Trials,
    search_genetically,
    search_randomly,
)
from tests.compiler.small_layouts import space_of, two_convolutions

SPACE = space_of(two_convolutions())
NUM_CONFIGS = int(SPACE.num_choices.prod())


def distance(configs: I16, runs: I64 | None = None) -> F64:
    """Runtime that is least at the last option of every node; every further run takes 1,000 ns longer; the
    first node's option 3 fails.
    """
    again = 0 if runs is None else 1000.0 * runs
    runtime = 100.0 + again + (SPACE.num_choices - 1 - configs).sum(axis=1)
    return np.where(configs[:, 0] == 3, np.inf, runtime.astype(np.float64))


def searched(genetic: bool, limit: int, seed: int = 0, max_runs: int = 1) -> Trials:
    trials = Trials(SPACE, distance, max_runs)
    rng = np.random.default_rng(seed)
    if genetic:
        search_genetically(SPACE, trials, rng, limit, GeneticParams(population=8))
    else:
        search_randomly(SPACE, trials, rng, limit)
    return trials


@pytest.mark.parametrize("genetic", [False, True])
def test_the_default_comes_first_and_nothing_twice_if_one_run_is_allowed(genetic: bool) -> None:
    trials = searched(genetic, 60)
    columns = trials.columns()
    configs, source = columns["config_options"], columns["config_source"]
    assert len(trials) == 60
    assert len(configs) + trials.failed.total() == 60
    assert trials.failed == {GENETIC if genetic else RANDOM: 60 - len(configs)}
    assert len(configs) < 60
    assert (configs[0] == SPACE.default).all()
    assert source.tolist() == [DEFAULT] + [GENETIC if genetic else RANDOM] * (len(configs) - 1)
    assert len(np.unique(configs, axis=0)) == len(configs)
    assert (columns["config_runtime_ns"] == distance(configs.astype(np.int16))).all()


@pytest.mark.parametrize("genetic", [False, True])
def test_a_search_is_repeatable(genetic: bool) -> None:
    first, second, other = (searched(genetic, 40, seed).columns()["config_options"] for seed in (1, 1, 2))
    assert first.tobytes() == second.tobytes() != other.tobytes()


def test_the_genetic_search_goes_where_it_is_fast() -> None:
    found, drawn = (
        searched(genetic, 60).columns()["config_runtime_ns"].astype(np.int64) for genetic in (True, False)
    )
    assert found[0] == drawn[0] == 100 + (SPACE.num_choices - 1).sum()
    assert found.min() <= 101
    assert np.median(found[-30:]) < np.median(drawn[-30:])


@pytest.mark.parametrize("genetic", [False, True])
def test_a_search_ends_when_hardly_a_config_is_left(genetic: bool) -> None:
    trials = searched(genetic, 10 * NUM_CONFIGS)
    assert NUM_CONFIGS / 2 < len(trials) <= NUM_CONFIGS


@pytest.mark.parametrize("genetic", [False, True])
def test_a_config_met_again_is_measured_again_with_other_noise_up_to_a_limit(genetic: bool) -> None:
    columns = searched(genetic, 10 * NUM_CONFIGS, max_runs=3).columns()
    configs, runtime = columns["config_options"].astype(np.int16), columns["config_runtime_ns"]
    _, inverse, counts = np.unique(configs, axis=0, return_inverse=True, return_counts=True)
    assert counts.max() == 3
    for number in np.flatnonzero(counts > 1).tolist():
        rows = np.flatnonzero(inverse.reshape(-1) == number)
        further = [1000 * run for run in range(len(rows))]
        assert (runtime[rows] - distance(configs[rows])).tolist() == further


def test_both_searches_run_the_default_once_between_them() -> None:
    trials = Trials(SPACE, distance, 1)
    search_randomly(SPACE, trials, np.random.default_rng(0), 20)
    search_genetically(SPACE, trials, np.random.default_rng(1), 40, GeneticParams(population=4))
    columns = trials.columns()
    at_default = (columns["config_options"] == SPACE.default).all(axis=1)
    assert at_default.tolist() == [True] + [False] * (len(at_default) - 1)
    # A config that both searches meet has run before when the second one measures it.
    again = columns["config_runtime_ns"].astype(np.int64) >= 1000
    assert (columns["config_source"][again] == GENETIC).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"population": 1}, "population"), ({"mutations": 0}, "mutations"), ({"crossover": 1.5}, "crossover")],
)
def test_impossible_parameters_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneticParams(**fields)  # type: ignore[arg-type]
