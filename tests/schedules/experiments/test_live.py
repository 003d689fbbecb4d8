"""Live tuning with a worker that needs no compiler, and what becomes of it when things go wrong."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.errors import ChoiceError, DataError
from costbench_schedules.devices import device as device_module
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.experiments.live import (
    BEST_FILE,
    CODE_FILE,
    LOG_FILE,
    MODEL_FOLDER,
    STRATEGIES,
    TRACE_FILE,
    Hooks,
    ScheduleOptions,
    TunedSchedule,
    live_space,
    tune_schedule,
)
from costbench_schedules.models.storage import load_schedule_model
from costbench_schedules.records import tune_log
from costbench_schedules.records.tune_log import LogEntry, read_log
from costbench_schedules.search.finders import ChainSpec
from costbench_schedules.search.guided import GuidedSpec
from costbench_schedules.search.live import LiveProgress
from costbench_schedules.spaces.sub_spaces import recorded_space
from tests.schedules.devices.fake import fake

OPTIONS = ScheduleOptions(
    "matmul:m=8,n=8,k=8", trials=20, search=GuidedSpec(batch=8, chains=ChainSpec(chains=8, steps=10))
)
ALL = ("ran", "ran", "ran", "ran")


def tuned(
    folder: Path,
    options: ScheduleOptions = OPTIONS,
    kinds: tuple[str, ...] = ALL,
    report: Callable[[LiveProgress], None] = lambda progress: None,
    resume: bool = False,
) -> TunedSchedule:
    with CpuDevice(options.target, limits=fake(*kinds)) as device:
        return tune_schedule(folder, options, device, Hooks(report), resume)


def stop_after(count: int) -> Callable[[LiveProgress], None]:
    def report(progress: LiveProgress) -> None:
        if progress.trials == count:
            raise KeyboardInterrupt

    return report


def entries(folder: Path) -> list[LogEntry]:
    return read_log(folder / LOG_FILE)[1]


def test_results_are_the_fastest_of_the_log(tmp_path: Path) -> None:
    seen: list[LiveProgress] = []
    outcome = tuned(tmp_path, report=seen.append)
    logged = entries(tmp_path)
    lowest = min(entry.runtime_ns or 10**9 for entry in logged)
    assert [progress.trials for progress in seen] == list(range(1, 21))
    assert seen[-1].best_ns == outcome.best.runtime_ns == lowest
    assert seen[-1].noise == pytest.approx(0.25, abs=1e-3)
    assert outcome.best.again_ns == (lowest,) * 3
    # 2 * 8^3 operations in so many nanoseconds.
    assert outcome.gflops == pytest.approx(1024 / lowest)
    best = json.loads((tmp_path / BEST_FILE).read_text())
    space = live_space(outcome.operator)
    assert space.numbers(space.row_of(tupled(best["choices"]))[None]) == [outcome.best.number]
    assert (best["trials"], best["failed"], best["ended"]) == (20, 0, "trials used up")
    assert json.loads((tmp_path / TRACE_FILE).read_text()) == [
        space.full_rows(space.rows([outcome.best.number]))[0].tolist()
    ]
    assert (tmp_path / CODE_FILE).read_text() == "# matmul:m=8,n=8,k=8\n"


def tupled(choices: dict[str, object]) -> dict[str, object]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in choices.items()}


def test_the_model_that_is_kept_begins_another_search(tmp_path: Path) -> None:
    tuned(tmp_path / "first")
    folder = tmp_path / "first" / MODEL_FOLDER
    assert load_schedule_model(folder)[1].representation == "relation"
    other = replace(OPTIONS, workload="matmul:m=4,n=16,k=8", model=folder)
    alone = tuned(tmp_path / "alone", replace(other, model=None))
    with_model = tuned(tmp_path / "second", other)
    first = slice(0, 8)
    numbers = [entry.number for entry in with_model.entries[first]]
    assert numbers != [entry.number for entry in alone.entries[first]]
    assert with_model.header.settings["model"]


def of_small_space(result: TunedSchedule) -> list[bool]:
    """Which of the measured schedules the small space has."""
    space, small = live_space(result.operator), recorded_space(result.operator)
    knobs = {knob.name: set(knob.values) for knob in small.knobs}
    choices = [space.choices(space.rows([entry.number])[0]) for entry in result.entries]
    return [all(one[name] in values for name, values in knobs.items()) for one in choices]


def test_it_begins_with_schedules_of_the_small_space(tmp_path: Path) -> None:
    outcome = tuned(tmp_path / "starts", replace(OPTIONS, starts=6))
    assert all(of_small_space(outcome)[:6])
    assert len({entry.number for entry in outcome.entries}) == 20
    other = tuned(tmp_path / "none", replace(OPTIONS, starts=0))
    assert not all(of_small_space(other)[:6])
    assert other.header.settings["starts"] == 0
    # A model has its own first batch.
    folder = tmp_path / "starts" / MODEL_FOLDER
    assert tuned(tmp_path / "model", replace(OPTIONS, model=folder)).header.settings["starts"] == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_stopped_and_resumed_it_ends_as_if_it_had_not_been(tmp_path: Path, strategy: str) -> None:
    options = replace(OPTIONS, strategy=strategy)
    whole = tuned(tmp_path / "whole", options)
    stopped = tuned(tmp_path / "parts", options, report=stop_after(11))
    assert stopped.interrupted
    assert stopped.best.again_ns == ()
    assert json.loads((tmp_path / "parts" / BEST_FILE).read_text())["ended"] == "interrupted"
    assert entries(tmp_path / "parts") == list(whole.entries[:11])
    again = tuned(tmp_path / "parts", options, resume=True)
    assert again.entries == whole.entries
    assert (tmp_path / "parts" / LOG_FILE).read_bytes() == (tmp_path / "whole" / LOG_FILE).read_bytes()
    assert len({entry.number for entry in whole.entries}) == 20
    other = next(name for name in STRATEGIES if name != strategy)
    with pytest.raises(DataError, match="settings"):
        tuned(tmp_path / "parts", replace(options, strategy=other), resume=True)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_records_of_another_operator_choose_the_first_trials(tmp_path: Path, strategy: str) -> None:
    options = replace(OPTIONS, workload="matmul:m=4,n=16,k=8", strategy=strategy, trials=10)
    tuned(tmp_path / "first")
    alone = tuned(tmp_path / "alone", options)
    taught = tuned(tmp_path / "taught", replace(options, records=(tmp_path / "first" / LOG_FILE,)))
    assert taught.entries[0].number != alone.entries[0].number
    assert taught.header.settings["model"]
    assert taught.header.settings["starts"] == 0
    assert load_schedule_model(tmp_path / "taught" / MODEL_FOLDER)[1].representation == "relation"


def test_choices_that_do_not_go_together() -> None:
    with pytest.raises(DataError, match="--model"):
        replace(OPTIONS, model=Path("x"), records=(Path("y"),))
    with pytest.raises(ChoiceError, match="bayesian"):
        replace(OPTIONS, strategy="clever")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), DataError("noisy")])
def test_stopped_while_the_fastest_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    def stopped(*_: object) -> LogEntry:
        raise stop

    with monkeypatch.context() as patch:
        patch.setattr("costbench_schedules.experiments.live.measure_entry", stopped)
        outcome = tuned(tmp_path)
    assert (outcome.interrupted, outcome.failure) in ((True, None), (False, stop))
    assert outcome.best.again_ns == ()
    assert (tmp_path / CODE_FILE).exists()
    assert len(tuned(tmp_path, resume=True).best.again_ns) == 3


def test_more_trials_continue_a_finished_run(tmp_path: Path) -> None:
    first = tuned(tmp_path)
    more = tuned(tmp_path, replace(OPTIONS, trials=30), resume=True)
    assert more.entries[:20] == first.entries
    assert len(more.entries) == 30


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fewer_trials_than_logged_end_with_what_is_logged(tmp_path: Path, strategy: str) -> None:
    options = replace(OPTIONS, strategy=strategy)
    first = tuned(tmp_path, options)
    fewer = tuned(tmp_path, replace(options, trials=10), resume=True)
    assert fewer.failure is None
    assert fewer.entries == first.entries == tuple(entries(tmp_path))
    assert fewer.best == first.best


def test_without_resume_it_begins_again(tmp_path: Path) -> None:
    tuned(tmp_path, report=stop_after(3))
    assert len(tuned(tmp_path).entries) == 20


def test_a_new_run_leaves_no_results_of_the_last_one(tmp_path: Path) -> None:
    tuned(tmp_path)
    # It begins with the model that is there, which is read first.
    with pytest.raises(DataError, match="no schedule ran"):
        tuned(tmp_path, replace(OPTIONS, trials=2, model=tmp_path / MODEL_FOLDER), kinds=("build",) * 4)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [LOG_FILE]


@pytest.mark.parametrize(("changed", "field"), [({"seed": 1}, "settings"), ({"target": "generic"}, "target")])
def test_another_run_is_not_continued(tmp_path: Path, changed: dict[str, object], field: str) -> None:
    tuned(tmp_path, report=stop_after(3))
    with pytest.raises(DataError, match=f"{field}: is of another run"):
        tuned(tmp_path, replace(OPTIONS, **changed), resume=True)  # type: ignore[arg-type]
    assert len(entries(tmp_path)) == 3


def test_failures_are_logged_with_reasons_and_the_search_goes_on(tmp_path: Path) -> None:
    outcome = tuned(tmp_path, kinds=("ran", "wrong", "hang", "crash"))
    reasons = {entry.reason.partition(":")[0] for entry in outcome.entries}
    assert reasons == {"", "wrong output", "build time-out", "crash"}
    assert len(outcome.entries) == 20
    assert outcome.progress.failed == sum(bool(entry.reason) for entry in outcome.entries)
    assert outcome.header.space.choices(outcome.header.space.rows([outcome.best.number])[0])["unroll"] == 0


def test_a_search_without_hope_ends_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costbench_schedules.search.live.HOPELESS", 8)
    with pytest.raises(DataError, match=r"all of the first 8 schedules failed: build error: no \(8 times\)"):
        tuned(tmp_path, kinds=("build",) * 4)
    assert len(entries(tmp_path)) == 8


def test_a_machine_that_turns_noisy_keeps_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "MAX_NOISY", 2)
    outcome = tuned(tmp_path, kinds=("ran", "noisy", "noisy", "noisy"))
    assert "interrupted" in str(outcome.failure)
    logged = entries(tmp_path)
    assert 0 < len(logged) < 20
    assert outcome.best.runtime_ns == min(entry.runtime_ns or 10**9 for entry in logged)
    assert "interrupted" in json.loads((tmp_path / BEST_FILE).read_text())["ended"]


def test_a_full_disk_ends_it_and_it_can_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tuned(tmp_path / "whole")
    write_all, count = tune_log._write_all, [0]

    def full(file: object, data: bytes) -> None:
        count[0] += 1
        if count[0] > 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(file, data)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(tune_log, "_write_all", full)
        outcome = tuned(tmp_path / "parts")
    assert "No space left" in str(outcome.failure)
    assert LOG_FILE in str(outcome.failure)
    assert len(entries(tmp_path / "parts")) == 9  # The header is a line as well.
    assert tuned(tmp_path / "parts", resume=True).entries == whole.entries


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=LOG_FILE):
        tuned(tmp_path, resume=True)


def test_an_unknown_target_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match="unknown processor"):
        tuned(tmp_path, replace(OPTIONS, target="z80"))
    assert not (tmp_path / LOG_FILE).exists()


def test_impossible_numbers() -> None:
    with pytest.raises(DataError, match="--trials"):
        replace(OPTIONS, trials=0)
