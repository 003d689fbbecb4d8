from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from costbench.compiler.spaces import ChoiceArray
from costbench.datasets.layout.columns import DEFAULT, GENETIC, RANDOM
from costbench.datasets.layout.search import GeneticParams, Trials, search_genetically, search_randomly
from tests.compiler.small_layouts import space_of, two_convolutions

SPACE = space_of(two_convolutions())
NUM_CONFIGS = int(SPACE.num_choices.prod())


def distance(configs: ChoiceArray) -> npt.NDArray[np.float64]:
    """Runtime that is least at the last option of every node; the first node's option 3 fails."""
    runtime = 100.0 + (SPACE.num_choices - 1 - configs).sum(axis=1)
    return np.where(configs[:, 0] == 3, np.inf, runtime.astype(np.float64))


def searched(genetic: bool, limit: int, seed: int = 0) -> Trials:
    trials = Trials(SPACE, distance)
    rng = np.random.default_rng(seed)
    if genetic:
        search_genetically(SPACE, trials, rng, limit, GeneticParams(population=8))
    else:
        search_randomly(SPACE, trials, rng, limit)
    return trials


@pytest.mark.parametrize("genetic", [False, True])
def test_the_default_comes_first_and_nothing_twice(genetic: bool) -> None:
    trials = searched(genetic, 60)
    columns = trials.columns()
    configs, source = columns["config_options"], columns["config_source"]
    assert len(trials) == 60
    assert len(configs) + trials.num_failed == 60
    assert trials.num_failed > 0
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


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"population": 1}, "population"), ({"mutations": 0}, "mutations"), ({"crossover": 1.5}, "crossover")],
)
def test_impossible_parameters_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneticParams(**fields)  # type: ignore[arg-type]
