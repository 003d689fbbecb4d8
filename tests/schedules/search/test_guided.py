"""Algorithm 1: batches, earlier models, what is drawn, and the choice of diverse batches by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic_schedules import synthetic, synthetic_ns
from costbench import rng
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.evaluators import Evaluation, Evaluator
from costbench.autotuning.search import Search, SearchInterrupted, TuningProblem, Watch, unwatched
from costbench.autotuning.trace import SearchTrace
from costbench.search.space import Rows
from costbench.search.strategies import Strategy, random_draws
from costbench_schedules.features.context import context_features
from costbench_schedules.features.vectors import relation_features
from costbench_schedules.models.ensemble import Bootstrap
from costbench_schedules.models.learner import Samples, samples_of
from costbench_schedules.models.trees import BoostedTrees, BoostingSpec
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.search.finders import ChainSpec
from costbench_schedules.search.guided import GuidedSpec, ModelGuided, select_diverse
from costbench_schedules.search.problems import schedule_problem
from costbench_schedules.spaces.nest import nest_batch
from costbench_schedules.spaces.space import ScheduleSpace
from tests.autotuning.small_spaces import Line, Table, line_problem

MATMUL = ScheduleSpace(parse_operator("matmul-1024"))
SMALL = GuidedSpec(batch=16, chains=ChainSpec(chains=24, steps=25, patience=12))
FEW = BoostingSpec(trees=30)


def relations(space: ScheduleSpace, rows: Rows) -> np.ndarray:
    return relation_features(context_features(nest_batch(space, rows)))


def numbers(rows: Rows) -> np.ndarray:
    return np.asarray(rows, dtype=np.float32)


def followed(
    strategy: Strategy,
    on: TuningProblem[Any],
    evaluator: Evaluator[Any],
    evaluations: int | None,
    seed: int = 0,
    start: tuple[int, ...] = (),
    recorded: SearchTrace | None = None,
    watch: Watch = unwatched,
) -> SearchTrace:
    search = Search(on, evaluator, MeasurementBudget(evaluations=evaluations), "guided", seed, watch)
    proposals = strategy(on.space, rng.stream(seed, "guided"), on.space.rows(start))
    return search.follow(proposals, recorded)


def guided(spec: GuidedSpec = SMALL, **changes: Any) -> ModelGuided[np.ndarray]:
    return ModelGuided(lambda rows: relations(MATMUL, rows), BoostedTrees(spec=FEW), spec, **changes)


def on_matmul(strategy: Strategy, evaluations: int, seed: int = 0) -> SearchTrace:
    return followed(strategy, schedule_problem(MATMUL, "synthetic"), synthetic(MATMUL), evaluations, seed)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_model_beats_random_search_on_the_made_up_machine(seed: int) -> None:
    by_chance, by_model = (on_matmul(strategy, 96, seed) for strategy in (random_draws, guided()))
    assert min(by_model.scores) < min(by_chance.scores)
    # Most of the last batch is better than 19 of 20 random schedules.
    assert np.median(by_model.scores[-16:]) < np.quantile(by_chance.scores, 0.05)


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second, other = (on_matmul(guided(), 48, seed) for seed in (1, 1, 2))
    assert first == second
    assert first.decisions != other.decisions


def test_less_budget_is_the_first_part_of_more() -> None:
    more, less = on_matmul(guided(), 48), on_matmul(guided(), 37)
    assert less.decisions == more.decisions[:37]


@dataclass
class Told:
    """A model that knows the answer, and a learner of it that keeps what it was given."""

    target: int
    given: list[Samples] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def fit(self, features: np.ndarray, samples: Samples, seed: int, /) -> Told:
        self.given.append(samples)
        self.seeds.append(seed)
        return self

    def predict(self, features: np.ndarray, /) -> np.ndarray:
        return np.abs(features[:, 0].astype(np.float64) - self.target)


@dataclass(frozen=True)
class Timed(Table):
    """As the table, and 1 more: no runtime is 0."""

    def evaluate(self, decisions: np.ndarray) -> Evaluation:
        evaluation = super().evaluate(decisions)
        return Evaluation(evaluation.scores + 1.0, evaluation.seconds)


LINE = line_problem(Line(1000, frozenset()))


def test_the_model_is_fitted_to_everything_after_every_batch() -> None:
    told = Told(500)
    spec = GuidedSpec(batch=10, epsilon=0.1, alpha=0.0, chains=ChainSpec(8, 30, 30))
    trace = followed(ModelGuided(numbers, told, spec), LINE, Timed(500, frozenset(range(0, 1000, 3))), 40)
    assert [len(samples) for samples in told.given] == [10, 20, 30, 40]
    assert told.given[-1].runtime_ns.tolist() == list(trace.scores)
    assert not told.given[0].start.any()
    assert len(set(told.seeds)) == 4


def test_all_but_epsilon_of_a_batch_are_the_cheapest_candidates() -> None:
    """On a short line the chains meet every number, so what they choose can be said by hand."""
    line = line_problem(Line(60, frozenset()))
    spec = GuidedSpec(batch=10, epsilon=0.2, alpha=0.0, chains=ChainSpec(30, 200, 200))
    trace = followed(ModelGuided(numbers, Told(30), spec), line, Timed(30), 20)
    first = set(trace.decisions[:10])
    nearest = [number for number in sorted(range(60), key=lambda n: abs(n - 30)) if number not in first]
    chosen = list(trace.decisions[10:18])
    assert sorted(abs(n - 30) for n in chosen) == sorted(abs(n - 30) for n in nearest[:8])
    assert [abs(n - 30) for n in chosen] == sorted(abs(n - 30) for n in chosen)


def test_trials_end_the_search_without_another_fit() -> None:
    told = Told(500)
    spec = GuidedSpec(batch=10, epsilon=0.1, chains=ChainSpec(8, 30, 30))
    trace = followed(ModelGuided(numbers, told, spec, trials=25), LINE, Timed(500), None)
    assert [len(samples) for samples in told.given] == [10, 20]
    longer = followed(ModelGuided(numbers, Told(500), spec), LINE, Timed(500), 40)
    assert trace.decisions == longer.decisions[:25]


def test_epsilon_of_one_is_random_search() -> None:
    spec = GuidedSpec(batch=10, epsilon=1.0)
    told = Told(500)
    trace = followed(ModelGuided(numbers, told, spec), LINE, Timed(500), 200)
    assert abs(np.mean(trace.decisions) - 500) < 60
    assert np.std(trace.decisions) > 200


def test_an_earlier_model_chooses_the_first_batch_and_is_added() -> None:
    earlier, learner = Told(100), Told(0)
    spec = GuidedSpec(batch=10, epsilon=0.0, alpha=0.0, chains=ChainSpec(40, 200, 200))
    trace = followed(ModelGuided(numbers, learner, spec, earlier), LINE, Timed(7), 20)
    # The local model is told what the earlier one says of each measured decision.
    expected = np.abs(np.array(trace.decisions[:10]) - 100.0)
    assert learner.given[0].start.tolist() == expected.tolist()
    assert np.median(np.abs(np.array(trace.decisions[:10]) - 100)) < 60
    # |n - 100| + |n| is least anywhere between 0 and 100.
    assert np.median(trace.decisions[10:]) <= 110


def test_transfer_helps_where_the_workloads_are_alike() -> None:
    """A model of another matmul chooses a first batch that is better than a random one."""
    source = ScheduleSpace(parse_operator("matmul:m=512,n=1024,k=512"))
    rows = source.sample(rng.stream(0, "source"), 300)
    earlier = BoostedTrees(spec=FEW).fit(relations(source, rows), samples_of(synthetic_ns(source, rows)), 0)
    with_it = on_matmul(guided(earlier=earlier), 16)
    without = on_matmul(guided(), 16)
    assert np.median(with_it.scores) < 0.5 * np.median(without.scores)


@pytest.mark.parametrize("acquisition", ["mean", "ei", "ucb"])
def test_ensembles_guide_the_search(acquisition: str) -> None:
    learner = Bootstrap(BoostedTrees("regression", spec=BoostingSpec(trees=10)), 3, acquisition)
    strategy = ModelGuided(lambda rows: relations(MATMUL, rows), learner, SMALL)
    trace = on_matmul(strategy, 48)
    assert min(trace.scores[16:]) < min(trace.scores[:16])


# What every strategy promises, as in tests/contracts/test_strategies.py.

ON_NUMBERS = ModelGuided(
    numbers,
    BoostedTrees(spec=BoostingSpec(trees=5)),
    GuidedSpec(batch=4, epsilon=0.25, chains=ChainSpec(4, 8, 4)),
)


@pytest.mark.parametrize("broken", [frozenset[int](), frozenset({6, 7, 8}), frozenset(range(12))])
def test_nothing_is_out_of_reach(broken: frozenset[int]) -> None:
    trace = followed(ON_NUMBERS, line_problem(Line()), Timed(broken=broken), None)
    assert sorted(trace.decisions) == [1, 2, 3, 4, 6, 7, 8, 9, 11]


def test_starts_are_tried_first() -> None:
    trace = followed(ON_NUMBERS, LINE, Timed(), 30, start=(17, 3, 900))
    assert trace.decisions[:3] == (17, 3, 900)
    assert len(set(trace.decisions)) == 30
    many = followed(ON_NUMBERS, LINE, Timed(), 30, start=tuple(range(9)))
    assert many.decisions[:9] == tuple(range(9))


def test_spaces_of_one_and_of_none() -> None:
    one = line_problem(Line(3, frozenset({0, 2})))
    assert followed(ON_NUMBERS, one, Timed(), None).decisions == (1,)
    none = line_problem(Line(3, frozenset({0, 1, 2})))
    assert followed(ON_NUMBERS, none, Timed(), None).decisions == ()


def test_an_interrupted_search_goes_on_to_the_same_trace() -> None:
    whole = followed(ON_NUMBERS, LINE, Timed(), 40)
    left = [3]

    def stop(*_: object) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with pytest.raises(SearchInterrupted) as stopped:
        followed(ON_NUMBERS, LINE, Timed(), 40, watch=stop)
    part = stopped.value.trace
    assert len(part) == 12
    assert followed(ON_NUMBERS, LINE, Timed(), 40, recorded=part) == whole


@pytest.mark.parametrize(
    "changes", [{"batch": 0}, {"candidates": 0}, {"epsilon": 1.5}, {"epsilon": -0.1}, {"alpha": -1.0}]
)
def test_settings_are_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least|expected|negative"):
        GuidedSpec(**changes)


def test_the_made_up_machine_is_finite_and_repeats() -> None:
    rows = MATMUL.sample(rng.stream(0, "made up"), 50)
    evaluation = synthetic(MATMUL).evaluate(rows)
    assert (evaluation.scores >= 1.0).all()
    assert evaluation.scores == pytest.approx(synthetic_ns(MATMUL, rows), abs=0.5)


def equation_3(costs: np.ndarray, rows: np.ndarray, chosen: list[int], alpha: float) -> float:
    covered = sum(len(set(rows[chosen, index].tolist())) for index in range(rows.shape[1]))
    return alpha * covered - float(costs[chosen].sum())


def test_by_hand() -> None:
    costs = np.array([-5.0, -4.9, -4.0, -1.0])
    rows = np.array([[0, 0], [0, 0], [0, 1], [1, 2]])
    # Of no worth, values of components leave the cheapest; worth 1, the third covers one and the last two.
    assert select_diverse(costs, rows, 2, 0.0).tolist() == [0, 1]
    assert select_diverse(costs, rows, 2, 1.0).tolist() == [0, 2]
    assert select_diverse(costs, rows, 3, 2.5).tolist() == [0, 2, 3]
    assert select_diverse(costs, rows, 2, 9.0).tolist() == [0, 3]
    assert select_diverse(costs, rows, 9, 1.0).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("seed", range(12))
def test_greedy_steps_and_its_bound(seed: int) -> None:
    draws = rng.stream(seed, "diverse")
    costs, rows, alpha = -draws.uniform(size=9), draws.integers(3, size=(9, 4)), 0.4
    chosen = select_diverse(costs, rows, 4, alpha).tolist()
    for count in range(4):
        gains = {
            index: equation_3(costs, rows, [*chosen[:count], index], alpha)
            for index in range(9)
            if index not in chosen[:count]
        }
        assert equation_3(costs, rows, chosen[: count + 1], alpha) == pytest.approx(max(gains.values()))
    best = max(equation_3(costs, rows, list(some), alpha) for some in itertools.combinations(range(9), 4))
    assert equation_3(costs, rows, chosen, alpha) >= (1.0 - 1.0 / math.e) * best


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        select_diverse(np.zeros(2), np.zeros((2, 1), dtype=np.int64), 1, -0.1)
