"""What every strategy promises, on spaces made by hand and on the three decisions about real programs."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.evaluators import DeviceEvaluator, Evaluation, Evaluator, Source
from costbench.autotuning.search import Plan, SearchInterrupted, TuningProblem, Watch, tile_problem, tune
from costbench.autotuning.trace import SearchTrace
from costbench.compiler.fusion.space import fusion_space
from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.layout.space import layout_space
from costbench.compiler.spaces import VectorSpace
from costbench.hardware.device import Device
from costbench.hlo.module import HloModule
from costbench.hlo.reader import read_module
from costbench.search.space import SearchSpace
from costbench.search.strategies import STRATEGIES
from costbench.target import load_target
from tests.autotuning.small_spaces import Dials, Distance, Line, Table, line_problem, vector_problem
from tests.compiler.small_layouts import dot_and_add, two_convolutions
from tests.hlo.builder import ModuleBuilder

RNN = Path(__file__).resolve().parents[2] / "data" / "programs" / "rnn_char_b64_infer_f32.hlo.pb.zst"
UNLIMITED = MeasurementBudget()
Case = tuple[TuningProblem[Any], Evaluator[Any]]


def tanh_kernel() -> Kernel:
    """f32[64,512] is 8 x 4 native tiles: extents {1, 2, 3, 4, 8} x {1, 2, 4}, 15 tile sizes, all legal."""
    b = ModuleBuilder("tanh")
    b.op("tanh", b.parameter("f32[64,512]"))
    return kernel_from_module(b.build())


def dot_kernel() -> Kernel:
    """Large enough that some of the tiles overflow the scratchpad, and some compiles fail."""
    b = ModuleBuilder("dot")
    b.op("tanh", b.dot(b.parameter("f32[4096,4096]"), b.parameter("f32[4096,2048]")))
    return kernel_from_module(b.build())


def on_device(kernel: Kernel) -> Case:
    target = load_target("tpu_v2")
    return tile_problem(kernel, kernel.module.name, target), DeviceEvaluator(kernel, Device(target), "v2")


def diamond() -> HloModule:
    """exponential -> (tanh, negate) -> add -> reduce: six edges, 64 fusion configs."""
    b = ModuleBuilder("diamond")
    e = b.op("exponential", b.parameter("f32[256,1024]"))
    return b.build(b.reduce(b.op("add", b.op("tanh", e), b.op("negate", e)), (1,)))


def away_from_default(space: VectorSpace, seed: int = 0) -> Case:
    """The best config is one drawn at random."""
    return vector_problem(space), Distance(space.sample(np.random.default_rng(seed), 1)[0])


CASES: dict[str, Callable[[], Case]] = {
    "line": lambda: (line_problem(Line()), Table()),
    "line that breaks": lambda: (line_problem(Line()), Table(broken=frozenset({6, 7, 11}))),
    "nothing works": lambda: (line_problem(Line()), Table(broken=frozenset(range(12)))),
    "long line": lambda: (line_problem(Line(1000)), Table(target=777)),
    "tanh": lambda: on_device(tanh_kernel()),
    "dot": lambda: on_device(dot_kernel()),
    "dials": lambda: away_from_default(Dials()),
    "many dials": lambda: away_from_default(Dials(40)),
    "diamond, fusion": lambda: away_from_default(fusion_space(diamond(), "diamond")),
    "rnn, fusion": lambda: away_from_default(fusion_space(read_module(RNN), "rnn")),
    "dot and add, layout": lambda: away_from_default(layout_space(dot_and_add())),
    "convolutions, layout": lambda: away_from_default(layout_space(two_convolutions())),
}


def test_the_large_kernel_has_what_makes_it_hard() -> None:
    problem, evaluator = CASES["dot"]()
    everything = tune(problem, evaluator, Plan("exhaustive", UNLIMITED, 0))
    assert 100 < len(everything) < problem.space.size
    assert math.inf in everything.scores


@pytest.fixture(params=sorted(STRATEGIES))
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    if request.param not in MADE:
        MADE[request.param] = CASES[request.param]()
    return MADE[request.param]


MADE: dict[str, Case] = {}
"""Cases are made once: nothing about them changes."""


@dataclass(frozen=True)
class Watched:
    """An evaluator that keeps what it was asked."""

    inner: Evaluator[Any]
    asked: list[int] = field(default_factory=list)
    name: str = "watched"
    source: Source = "device"

    def evaluate(self, decisions: Any) -> Evaluation:
        self.asked.append(len(decisions))
        return self.inner.evaluate(decisions)

    def recall(self, decisions: Any) -> None:
        self.inner.recall(decisions)


def test_proposals_are_legal_and_distinct(strategy: str, case: Case) -> None:
    # Straight from the strategy: the trace that tune makes would refuse a repetition.
    problem, evaluator = case
    space = problem.space
    proposals = STRATEGIES[strategy](space, np.random.default_rng(0), space.rows([]))
    batch, seen = next(proposals), list[int]()
    while len(seen) < 400:
        assert len(batch) > 0
        assert space.legal(batch).all()
        assert (space.rows(space.numbers(batch)) == batch).all()
        seen += space.numbers(batch)
        try:
            batch = proposals.send(evaluator.evaluate(space.decode(batch)).scores)
        except StopIteration:
            break
    assert 0 <= min(seen) <= max(seen) < space.size
    assert len(set(seen)) == len(seen)


def test_same_seed_same_trace(strategy: str, case: Case) -> None:
    problem, evaluator = case
    budget = MeasurementBudget(evaluations=150)
    assert tune(problem, evaluator, Plan(strategy, budget, 3)) == tune(
        problem, evaluator, Plan(strategy, budget, 3)
    )


def test_best_never_worsens_and_is_the_best(strategy: str, case: Case) -> None:
    problem, evaluator = case
    trace = tune(problem, evaluator, Plan(strategy, MeasurementBudget(evaluations=150), 0))
    assert list(trace.best_so_far) == sorted(trace.best_so_far, reverse=True)
    assert trace.best_so_far[-1] == min(trace.scores)


@pytest.mark.parametrize("evaluations", [0, 1, 7, 40])
def test_evaluations_are_never_overrun(strategy: str, case: Case, evaluations: int) -> None:
    problem, evaluator = case
    watched = Watched(evaluator)
    trace = tune(problem, watched, Plan(strategy, MeasurementBudget(evaluations=evaluations), 0))
    # Nothing beyond the budget is even asked for.
    assert sum(watched.asked) == len(trace) <= evaluations
    assert 0 not in watched.asked
    assert trace.budget_left.spent_evaluations == len(trace)


def test_seconds_are_never_overrun(strategy: str, case: Case) -> None:
    problem, evaluator = case
    whole = tune(problem, evaluator, Plan(strategy, MeasurementBudget(evaluations=60), 0))
    limit = float(whole.spent_seconds[len(whole) // 2])
    exact = tune(problem, evaluator, Plan(strategy, MeasurementBudget(seconds=limit), 0))
    assert exact.spent_seconds[-1] <= limit
    assert exact.decisions[: len(whole) // 2 + 1] == whole.decisions[: len(whole) // 2 + 1]
    less = tune(problem, evaluator, Plan(strategy, MeasurementBudget(seconds=math.nextafter(limit, 0.0)), 0))
    assert len(less) < len(exact)


def test_less_budget_is_the_first_part_of_more(strategy: str, case: Case) -> None:
    problem, evaluator = case
    more = tune(problem, evaluator, Plan(strategy, MeasurementBudget(evaluations=90), 0))
    less = tune(problem, evaluator, Plan(strategy, MeasurementBudget(evaluations=33), 0))
    assert less.decisions == more.decisions[:33]
    assert less.scores == more.scores[:33]


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("line", [1, 2, 3, 4, 6, 7, 8, 9, 11]),
        ("line that breaks", [1, 2, 3, 4, 6, 7, 8, 9, 11]),
        ("nothing works", [1, 2, 3, 4, 6, 7, 8, 9, 11]),
        ("tanh", list(range(15))),
        ("diamond, fusion", list(range(64))),
        # Two bits a place; both ones stand for no choice, and an even number of places is at 1.
        ("dials", [0, 2, 5, 8, 10, 17, 20, 22, 25, 32, 34, 37, 40, 42]),
    ],
)
def test_nothing_is_out_of_reach(strategy: str, name: str, legal: list[int]) -> None:
    problem, evaluator = CASES[name]()
    trace = tune(problem, evaluator, Plan(strategy, UNLIMITED, 1))
    assert sorted(trace.decisions) == legal


@pytest.mark.parametrize(
    ("broken", "best", "score"), [(frozenset[int](), 7, 0.0), (frozenset({6, 7, 8}), 9, 4.0)]
)
def test_the_best_is_found(strategy: str, broken: frozenset[int], best: int, score: float) -> None:
    trace = tune(line_problem(Line()), Table(broken=broken), Plan(strategy, UNLIMITED, 0))
    assert (trace.best_decision, trace.best_score) == (best, score)


def legal_numbers(space: SearchSpace[Any], count: int) -> list[int]:
    """The first legal ones."""
    found = [number for number in range(64) if space.legal(space.rows([number]))[0]]
    return found[:count]


def test_starts_are_tried_first(strategy: str, case: Case) -> None:
    problem, evaluator = case
    start = legal_numbers(problem.space, 3)[::-1]
    trace = tune(problem, evaluator, Plan(strategy, MeasurementBudget(evaluations=30), 0, tuple(start)))
    assert trace.decisions[:3] == tuple(start)
    assert len(trace) > 3


def test_spaces_of_one_and_of_none(strategy: str) -> None:
    one = tune(line_problem(Line(3, frozenset({0, 2}))), Table(), Plan(strategy, UNLIMITED, 0))
    assert one.decisions == (1,)
    none = tune(line_problem(Line(3, frozenset({0, 1, 2}))), Table(), Plan(strategy, UNLIMITED, 0))
    assert none.decisions == ()


def test_a_kernel_without_loops_has_its_one_tile(strategy: str) -> None:
    b = ModuleBuilder("reshape")
    b.reshape(b.parameter("f32[64,512]"), "f32[512,64]")
    problem, evaluator = on_device(kernel_from_module(b.build()))
    assert tune(problem, evaluator, Plan(strategy, UNLIMITED, 0)).decisions == (0,)


def test_spending_elsewhere_counts(strategy: str, case: Case) -> None:
    problem, evaluator = case
    spent = replace(MeasurementBudget(evaluations=12), spent_evaluations=8)
    assert len(tune(problem, evaluator, Plan(strategy, spent, 0))) == 4


def stopping_after(batches: int) -> Watch:
    """Presses Ctrl-C after so many batches."""
    left = [batches]

    def watch(*_: object) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    return watch


def test_an_interrupted_search_keeps_what_it_found_and_goes_on(strategy: str, case: Case) -> None:
    problem, evaluator = case
    plan = Plan(strategy, MeasurementBudget(evaluations=150), 2, tuple(legal_numbers(problem.space, 2)))
    whole = tune(problem, evaluator, plan)
    with pytest.raises(SearchInterrupted) as stopped:
        tune(problem, evaluator, plan, watch=stopping_after(2))
    part = stopped.value.trace
    assert 2 < len(part) <= len(whole)
    assert part.decisions == whole.decisions[: len(part)]
    watched = Watched(evaluator)
    resumed = tune(problem, watched, plan, part)
    assert (resumed.decisions, resumed.scores) == (whole.decisions, whole.scores)
    assert sum(watched.asked) == len(whole) - len(part)


def test_a_search_goes_on_with_more_budget(strategy: str, case: Case) -> None:
    # 23 ends inside a batch.
    problem, evaluator = case
    less = tune(problem, evaluator, Plan(strategy, MeasurementBudget(evaluations=23), 4))
    plan = Plan(strategy, MeasurementBudget(evaluations=80), 4)
    assert tune(problem, evaluator, plan, less) == tune(problem, evaluator, plan)


def traces() -> list[SearchTrace]:
    problem, evaluator = CASES["long line"]()
    return [
        tune(problem, evaluator, Plan(name, MeasurementBudget(evaluations=100), 5))
        for name in sorted(STRATEGIES)
    ]


def test_the_same_in_another_process(repository: Path) -> None:
    code = "from tests.contracts.test_strategies import traces; print([t.decisions for t in traces()])"
    path = os.pathsep.join([str(repository / "src"), str(repository)])
    environment = {**os.environ, "PYTHONHASHSEED": "123", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([trace.decisions for trace in traces()])


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"enumeration", "exhaustive"}))
def test_another_seed_is_another_trace(name: str) -> None:
    problem, evaluator = CASES["long line"]()
    budget = MeasurementBudget(evaluations=100)
    first, second = (tune(problem, evaluator, Plan(name, budget, seed)) for seed in (0, 1))
    assert first.decisions != second.decisions
