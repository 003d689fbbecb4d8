""""""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.search import (
    Plan,
    Progress,
    Shortlist,
    measure_best,
    tile_problem,
    tune,
    tune_by_model,
    verify_trace,
)
from costbench.autotuning.trace import SearchTrace, read_trace
from costbench.compiler.kernel import kernel_from_module
from costbench.errors import ChoiceError, DataError
from costbench.target import load_target
from tests.autotuning.small_spaces import Line, Table, line_problem
from tests.hlo.builder import ModuleBuilder

PROBLEM = line_problem(Line())


def first_part(trace: SearchTrace, count: int) -> SearchTrace:
    return replace(
        trace,
        decisions=trace.decisions[:count],
        scores=trace.scores[:count],
        seconds=trace.seconds[:count],
    )


def test_a_search_is_watched() -> None:
    told: list[tuple[Progress, SearchTrace]] = []
    plan = Plan("exhaustive", MeasurementBudget(seconds=3.0), start=(4, 9))
    whole = tune(
        PROBLEM,
        Table(broken=frozenset({4, 9})),
        plan,
        watch=lambda progress, trace: told.append((progress, trace())),
    )
    assert [(p.num_decisions, p.best_score, p.budget.spent_seconds) for p, _ in told] == [
        (2, math.inf, 1.0),
        (6, 1.0, 3.0),
    ]
    assert [trace.decisions for _, trace in told] == [whole.decisions[:2], whole.decisions]


def test_what_is_recorded_is_recalled_and_not_scored() -> None:
    plan = Plan("exhaustive", start=(4, 9))
    whole = tune(PROBLEM, Table(), plan)
    table = Table()
    assert tune(PROBLEM, table, plan, first_part(whole, 4)) == whole
    assert table.recalled == [4, 9, 1, 2]
    assert table.batches == [[3, 6, 7, 8, 11]]


def test_a_recorded_search_has_to_be_the_same() -> None:
    whole = tune(PROBLEM, Table(), Plan("random", seed=1))
    with pytest.raises(DataError, match=r"by hand.*not the beginning of this search"):
        tune(PROBLEM, Table(), Plan("random", seed=2), whole)
    less = Plan("random", MeasurementBudget(evaluations=3), seed=1)
    with pytest.raises(DataError, match="at least the same budget"):
        tune(PROBLEM, Table(), less, whole)


def test_measuring_goes_on_too() -> None:
    predicted = tune(PROBLEM, Table(target=9, source="model"), Plan("exhaustive"))
    whole = measure_best(PROBLEM, predicted, Table(), Shortlist(4))
    table = Table()
    assert measure_best(PROBLEM, predicted, table, Shortlist(4), first_part(whole, 3)) == whole
    assert table.batches == [[11]]


UNLIMITED = MeasurementBudget()


def test_a_search_by_hand() -> None:
    # Half a second each: four fit into two seconds.
    trace = tune(PROBLEM, Table(), Plan("exhaustive", MeasurementBudget(seconds=2.0), 9))
    assert trace.decisions == (1, 2, 3, 4)
    assert trace.scores == (36.0, 25.0, 16.0, 9.0)
    assert trace.seconds == (0.5,) * 4
    assert (trace.strategy, trace.source, trace.evaluator, trace.seed) == ("exhaustive", "device", "table", 9)
    assert trace.best_decision == 4


def test_one_budget_for_two_kernels() -> None:
    first = tune(PROBLEM, Table(), Plan("exhaustive", MeasurementBudget(evaluations=11), 0))
    second = tune(PROBLEM, Table(), Plan("exhaustive", first.budget_left, 0))
    assert (len(first), second.decisions) == (9, (1, 2))


def test_unknown_strategies_name_the_choices() -> None:
    with pytest.raises(
        ChoiceError, match=r"unknown strategy 'luck' .expected one of annealing, annealing-1, enum"
    ):
        tune(PROBLEM, Table(), Plan("luck", UNLIMITED, 0))


@pytest.mark.parametrize("start", [[5], [3, 3], [12], [-1]])
def test_starts_have_to_be_distinct_and_legal(start: list[int]) -> None:
    with pytest.raises(DataError, match=r"start: .*distinct legal decisions"):
        tune(PROBLEM, Table(), Plan("random", UNLIMITED, 0, tuple(start)))


def test_model_then_device() -> None:
    # To the model 9 costs 0, 8 costs 1, 7 and 11 cost 4 (7 was tried first); 10 is not legal.
    model, device = Table(target=9, source="model", name="wishful"), Table(target=7)
    predicted, measured = tune_by_model(PROBLEM, model, device, Plan("exhaustive"), Shortlist(3))
    assert predicted.decisions == (1, 2, 3, 4, 6, 7, 8, 9, 11)
    assert measured.decisions == (9, 8, 7)
    assert measured.scores == (4.0, 1.0, 0.0)
    assert (predicted.source, measured.source) == ("model", "device")
    assert measured.strategy == "exhaustive on wishful, then top 3"
    assert device.batches == [[9, 8, 7]]


def test_model_then_device_until_the_budget_is_spent() -> None:
    plan = Plan("random", MeasurementBudget(evaluations=5))
    shortlist = Shortlist(None, budget=MeasurementBudget(seconds=1.7))
    predicted, measured = tune_by_model(PROBLEM, Table(target=9, source="model"), Table(), plan, shortlist)
    assert len(predicted) == 5
    nearest = sorted(predicted.decisions, key=lambda i: (abs(i - 9), predicted.decisions.index(i)))
    assert measured.decisions == tuple(nearest[:3])


def test_what_is_predicted_to_cost_the_same_or_not_to_work() -> None:
    # Scores 9 4 1 0 1 (places 3 to 7 of the line, 5 is not legal): 6 costs as much as 8, 9 does not work.
    model = Table(target=7, broken=frozenset({9}), source="model")
    predicted = tune(PROBLEM, model, Plan("exhaustive"))
    assert Shortlist(None).of(predicted) == (7, 6, 8, 4, 3, 11, 2, 1)
    assert Shortlist(None, distinct=True).of(predicted) == (7, 6, 4, 3, 2, 1)
    assert Shortlist(2, distinct=True).of(predicted) == (7, 6)


def test_model_then_device_with_nothing_to_try() -> None:
    nowhere = line_problem(Line(1, frozenset({0})))
    model = Table(source="model")
    predicted, measured = tune_by_model(nowhere, model, Table(), Plan("exhaustive"), Shortlist())
    assert (len(predicted), len(measured)) == (0, 0)


def test_top_k_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="top_k is 0"):
        Shortlist(top_k=0)


def test_traces_are_verified() -> None:
    table = Table(broken=frozenset({3}))
    trace = tune(PROBLEM, table, Plan("annealing", UNLIMITED, 0))
    verify_trace(trace, PROBLEM, table)
    verify_trace(replace(trace, decisions=(), scores=(), seconds=()), PROBLEM, table)
    index = trace.decisions.index(8)
    lied = (*trace.scores[:index], 0.0, *trace.scores[index + 1 :])
    with pytest.raises(DataError, match=rf"scores\[{index}\]: 0.0 .expected 1.0"):
        verify_trace(replace(trace, scores=lied), PROBLEM, table)
    works = tuple(1.0 if math.isinf(score) else score for score in trace.scores)
    with pytest.raises(DataError, match="expected inf"):
        verify_trace(replace(trace, scores=works), PROBLEM, table)
    illegal = tuple(5 if decision == 8 else decision for decision in trace.decisions)
    with pytest.raises(DataError, match="5 is not legal"):
        verify_trace(replace(trace, decisions=illegal), PROBLEM, table)
    with pytest.raises(DataError, match="subject"):
        verify_trace(trace, line_problem(Line(13)), table)


def test_the_tile_problem_says_what_it_is_about() -> None:
    b = ModuleBuilder("tanh")
    b.op("tanh", b.parameter("f32[64,512]"))
    kernel = kernel_from_module(b.build())
    subject = tile_problem(kernel, "toy", load_target("tpu_v2")).subject
    # 8 x 4 native tiles: extents {1, 2, 3, 4, 8} x {1, 2, 4}.
    assert (subject.task, subject.chip, subject.program, subject.space_size) == ("tile", "tpu_v2", "toy", 15)
    assert subject.fingerprint == kernel.fingerprint


def test_the_example_of_the_documentation(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (repository / "docs" / "autotuning.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 1
    (tmp_path / "data").symlink_to(repository / "data")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(blocks[0], "docs/autotuning.md", "exec"), names)
    assert "10 measured in place of" in capsys.readouterr().out
    measured = read_trace("out/autotuning-example.json")
    assert measured == names["measured"]
    verify_trace(measured, names["problem"], names["device"])  # type: ignore[arg-type]
    assert 0.0 <= float(str(names["slowdown"])) < 0.2
    assert float(str(names["saving"])) > 20
