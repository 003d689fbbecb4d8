from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.autotuning.search import Plan, Progress, Watch, tune, unwatched
from costbench.autotuning.trace import SearchTrace, read_trace
from costbench.errors import DataError
from costbench.experiments.autotuning.session import (
    CostRow,
    Session,
    Step,
    TuneOptions,
    TuningResult,
    cost_rows,
    write_results,
)
from costbench.target import load_target
from tests.autotuning.small_spaces import Line, Table, line_problem
from tests.experiments.small_programs import small_file

TARGET = load_target("tpu_v3")
PROBLEM = line_problem(Line())
LINE, AFTER = Step("line", "measuring"), Step("after", "measuring")


def nothing(step: Step, progress: Progress) -> None:
    pass


def session(folder: Path, options: TuneOptions, *, resume: bool = False) -> Session:
    return Session(folder, options, TARGET, resume=resume, report=nothing)


def of_the_line(recorded: SearchTrace | None, watch: Watch) -> SearchTrace:
    return tune(PROBLEM, Table(), Plan("exhaustive", start=(4, 9)), recorded, watch)


def ctrl_c(step: Step, progress: Progress) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("--budget", {"minutes": 0.0}),
        ("--budget", {"minutes": -1.0}),
        ("--model-budget", {"model_minutes": math.nan}),
        ("--compile-s", {"compile_s": -1.0}),
        ("--top-k", {"top_k": 0}),
        ("--seed", {"seed": -1}),
    ],
    ids=str,
)
def test_impossible_options(tmp_path: Path, option: str, wrong: dict[str, int]) -> None:
    with pytest.raises(DataError, match=f"^{option}: "):
        replace(TuneOptions(tmp_path, "tile"), **wrong)


def test_an_interrupted_search_is_kept_and_taken_up_again(tmp_path: Path) -> None:
    options = TuneOptions(small_file(tmp_path), "tile")
    stopped = Session(tmp_path / "out", options, TARGET, resume=False, report=ctrl_c)
    part = stopped.search(LINE, of_the_line)
    assert part is not None
    assert (part.decisions, stopped.interrupted) == ((4, 9), True)
    assert stopped.search(AFTER, of_the_line) is None
    again = session(tmp_path / "out", options, resume=True)
    assert again.search(LINE, of_the_line) == of_the_line(None, unwatched)
    # Stopped once more while the recorded part is gone through: nothing of it is lost.
    third = Session(tmp_path / "out", options, TARGET, resume=True, report=ctrl_c)
    whole = third.search(LINE, of_the_line)
    assert whole is not None
    assert len(whole) == 9


def test_a_killed_search_loses_what_came_after_its_last_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(step: Step, progress: Progress) -> None:
        if progress.num_decisions > 2:
            raise RuntimeError("killed")

    monkeypatch.setattr("costbench.experiments.autotuning.session._SAVED_EVERY_S", 0.0)
    options, saved = TuneOptions(small_file(tmp_path), "tile"), tmp_path / "out" / "traces" / "line.json"
    killed, kept = Session(tmp_path / "out", options, TARGET, resume=False, report=kill), []
    with pytest.raises(RuntimeError, match="killed"):
        killed.search(LINE, of_the_line, lambda: kept.append(saved.exists()))
    # What resuming needs is there before the trace is.
    assert kept == [False]
    assert read_trace(saved).decisions == (4, 9)
    again = session(tmp_path / "out", options, resume=True)
    assert again.search(LINE, of_the_line) == of_the_line(None, unwatched) == read_trace(saved)


def test_only_the_same_run_is_resumed(tmp_path: Path) -> None:
    options = TuneOptions(small_file(tmp_path), "tile")
    with pytest.raises(DataError, match="out: nothing to resume"):
        session(tmp_path / "out", options, resume=True)
    session(tmp_path / "out", options)
    session(tmp_path / "out", replace(options, minutes=99.0), resume=True)
    before = (tmp_path / "out" / "settings.json").read_bytes()
    with pytest.raises(DataError, match=r"settings\.json: is of minutes 99\.0, not 10\.0"):
        session(tmp_path / "out", options, resume=True)
    assert (tmp_path / "out" / "settings.json").read_bytes() == before
    with pytest.raises(DataError, match=r"settings\.json: is of seed 0, not 1"):
        session(tmp_path / "out", replace(options, seed=1), resume=True)
    prices = tmp_path / "prices.yaml"
    prices.write_text("infeed: {ns: 1}")
    with pytest.raises(DataError) as caught:
        session(tmp_path / "out", replace(options, prices=prices), resume=True)
    assert caught.value.problem == "is of other prices"
    options.file.write_bytes(b"another program")
    with pytest.raises(DataError, match=r"settings\.json: is of another program"):
        session(tmp_path / "out", options, resume=True)


def test_a_new_run_forgets_the_traces_of_the_one_before(tmp_path: Path) -> None:
    """Those of other options it leaves as they are; else it would be resumed with more than it did."""
    options = TuneOptions(small_file(tmp_path), "tile")
    first = session(tmp_path / "out", options)
    whole = first.search(LINE, of_the_line)
    first.keep_costs({1: 2.0})
    session(tmp_path / "out", options, resume=True)
    assert read_trace(tmp_path / "out" / "traces" / "line.json") == whole
    with pytest.raises(DataError, match=r"settings\.json: is of seed 0, not 1"):
        session(tmp_path / "out", replace(options, seed=1))
    assert read_trace(tmp_path / "out" / "traces" / "line.json") == whole
    session(tmp_path / "out", options)
    assert list((tmp_path / "out" / "traces").iterdir()) == []
    session(tmp_path / "out", replace(options, seed=1))


def test_costs_of_kernels_are_kept(tmp_path: Path) -> None:
    options = TuneOptions(small_file(tmp_path), "fusion")
    first = session(tmp_path / "out", options)
    assert first.known_costs() == {}
    first.keep_costs({2**64 - 1: 0.1, 7: math.inf})
    assert session(tmp_path / "out", options, resume=True).known_costs() == {2**64 - 1: 0.1, 7: math.inf}
    assert session(tmp_path / "out", options).known_costs() == {}


def test_the_time_limit_ends_a_search_on_a_model_alone(tmp_path: Path) -> None:
    """Its first batch is kept, and the searches after it go on."""
    late = session(tmp_path / "out", TuneOptions(small_file(tmp_path), "tile", time_limit=1e-9))
    whole = session(tmp_path / "other", TuneOptions(small_file(tmp_path), "tile")).search(LINE, of_the_line)
    assert whole is not None
    first = late.search(replace(LINE, limited=True), of_the_line)
    assert first is not None
    assert 0 < len(first) < len(whole)
    assert not late.interrupted
    assert late.search(replace(LINE, name="measured"), of_the_line) == whole


def test_results_by_hand(tmp_path: Path) -> None:
    measured = tune(PROBLEM, Table(broken=frozenset({2})), Plan("exhaustive", start=(11, 2)))
    rows = cost_rows(replace(measured, decisions=(11, 2), scores=(16.0, math.inf), seconds=(0.5, 0.5)), None)
    assert rows == [CostRow("line", "b", None, 16.0, 0.5), CostRow("line", "2", None, None, 0.5)]
    tuned = TuningResult("p", 30.0, 20.0, 0, 2, 1.0, {"kernels": []}, (), tuple(rows), ((0.5, 20.0),))
    write_results(tmp_path, TuneOptions(tmp_path, "tile"), "tpu_v3", tuned)
    lines = (tmp_path / "costs.csv").read_text().splitlines()
    assert lines[1:] == ["line,b,,16.0,0.5,,", "line,2,,,0.5,,"]
    assert '"speedup": 1.5' in (tmp_path / "decisions.json").read_text()
