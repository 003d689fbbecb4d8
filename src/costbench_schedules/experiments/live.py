"""Tunes one operator on the processor of this machine, as `costbench tune --task schedule` does.

Algorithm 1 of autotvm2018 or a Gaussian process proposes, the machine measures, every measurement is logged
as it is made. In the end the fastest schedules are measured again: the lowest of many noisy runtimes is too
low.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from costbench.artifacts import digest_file, write_json, write_text
from costbench.autotuning.search import SearchInterrupted
from costbench.errors import DataError, choose
from costbench.rng import stream
from costbench.search.space import Rows, Seen
from costbench.search.strategies import Strategy
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.experiments.earlier_records import model_of_records
from costbench_schedules.features.vectors import REPRESENTATIONS, config_features, fill_columns
from costbench_schedules.models.learner import ScheduleModel, samples_of
from costbench_schedules.models.spec import ScheduleModelSpec, learner_of
from costbench_schedules.models.storage import MODEL_FILE, load_schedule_model, save_schedule_model
from costbench_schedules.models.trees import Trees
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.records.arrow_file import as_json
from costbench_schedules.records.tune_log import LogEntry, LogHeader, LogWriter, header_of, read_log
from costbench_schedules.search.guided import DistinctGuided, GuidedSpec, LastFeatures, ModelGuided
from costbench_schedules.search.live import (
    LiveEvaluator,
    LiveProgress,
    Tally,
    measure_entry,
    search_live,
)
from costbench_schedules.search.pooled import PooledBayesian, PoolSpec
from costbench_schedules.spaces.space import PARALLEL, ScheduleSpace
from costbench_schedules.spaces.sub_spaces import recorded_space

LOG_FILE, BEST_FILE, TRACE_FILE, CODE_FILE = "measurements.jsonl", "best.json", "trace.json", "schedule.py"
MODEL_FOLDER = "model"
BATCH = 16
"""Measurements between two fits of the model, a quarter of AutoTVM's. More fits cost time: 200 trials of C2
took 109 s instead of 65 s on a Zen 5."""
STARTS = 8
"""Half of the first batch. With one seed on a Zen 5, searches of C4 and C7 that begin at random end as fast
after 200 trials; that of C4 is far behind after 32."""
CONFIRMED, ROUNDS = 5, 3
"""How many of the fastest schedules are measured again, and how often."""
GUIDED, BAYESIAN = "guided", "bayesian"
STRATEGIES = {
    GUIDED: "Algorithm 1 of autotvm2018: batches that boosted trees propose",
    BAYESIAN: "one trial after another, which a Gaussian process proposes",
}
"""Strategies of a live search by name."""
_OF_ONE_SPACE = frozenset({"config"})
"""Representations whose columns mean something else in another space."""


@dataclass(frozen=True)
class ScheduleOptions:
    """Options of a run.

    Attributes:
        workload: name or description of the operator.
        trials: number of measurements in all.
        target: "native", "generic" or LLVM's name of a processor.
        model: folder of a model of other workloads, whose first batch and remaining error are used
            (autotvm2018, equation 4); None to begin without one.
        seed: seed of the search.
        search: settings of Algorithm 1.
        starts: number of schedules at the begin, which are drawn from the small space of tables
            (`recorded_space`), which has those of hand-written kernels; none where a model proposes the first
            batch.
        distinct: whether schedules of equal relation features are measured once, see `DistinctGuided`.
        strategy: name of the strategy, a key of `STRATEGIES`.
        records: records of other operators or machines that a model is fitted to, instead of `model`.
        pool: settings of the strategy `bayesian`.

    Raises:
        DataError: for a number out of range, or both a model and records.
        ChoiceError: for an unknown strategy.
    """

    workload: str
    trials: int = 200
    target: str = "native"
    model: Path | None = None
    seed: int = 0
    search: GuidedSpec = field(default_factory=lambda: GuidedSpec(batch=BATCH))
    starts: int = STARTS
    distinct: bool = True
    strategy: str = GUIDED
    records: tuple[Path, ...] = ()
    pool: PoolSpec = field(default_factory=PoolSpec)

    def __post_init__(self) -> None:
        choose(STRATEGIES, self.strategy, "strategy")
        if self.model is not None and self.records:
            raise DataError("has no effect with --model", field="--records", expected="one of the two")
        numbers = ("--trials", self.trials, 1), ("--seed", self.seed, 0), ("starts", self.starts, 0)
        for option, count, least in numbers:
            if count < least:
                raise DataError(f"{count}", field=option, expected=f"at least {least}")


@dataclass(frozen=True)
class Hooks:
    """What surrounds a run.

    Attributes:
        report: function that is called after each measurement.
        guard: context manager that holds Ctrl-C back while a measurement is made and logged.
    """

    report: Callable[[LiveProgress], None] = lambda progress: None
    guard: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(frozen=True)
class ConfirmedSchedule:
    """A schedule that was measured again.

    Attributes:
        number: number of the schedule in the space.
        first_ns: runtime in the search.
        again_ns: runtimes of the rounds; none if the run was stopped.
    """

    number: int
    first_ns: int
    again_ns: tuple[int, ...] = ()

    @property
    def runtime_ns(self) -> float:
        """Returns the median of the rounds; the runtime in the search if there are none."""
        return float(median(self.again_ns)) if self.again_ns else float(self.first_ns)


@dataclass(frozen=True)
class TunedSchedule:
    """What came out.

    Attributes:
        operator: operator that was tuned.
        header: header of the log.
        entries: measurements in order.
        progress: best runtime and failures of the search.
        finalists: fastest schedules, that of the lowest `runtime_ns` first.
        interrupted: whether Ctrl-C ended the search.
        failure: error that ended it, or None.
    """

    operator: Operator
    header: LogHeader
    entries: tuple[LogEntry, ...]
    progress: LiveProgress
    finalists: tuple[ConfirmedSchedule, ...]
    interrupted: bool = False
    failure: DataError | None = None

    @property
    def best(self) -> ConfirmedSchedule:
        """Returns the schedule of the lowest runtime."""
        return self.finalists[0]

    @property
    def gflops(self) -> float:
        """Returns the rate of the best schedule, 10^9 operations a second."""
        return self.operator.flops / self.best.runtime_ns


def live_space(operator: Operator) -> ScheduleSpace:
    """Returns what is searched live: everything but parallel loops, for one thread is timed."""
    return ScheduleSpace(operator).sub_space({"parallel": PARALLEL[:1]})


def starts_of(space: ScheduleSpace, count: int, seed: int) -> Rows:
    """Returns different configurations of `live_space` that its small space has, too, [at most count, m]."""
    small = recorded_space(space.operator)
    rows = small.draw(stream(seed, "tune starts", space.operator.text), count, Seen())
    starts = [space.row_of(small.choices(row)) for row in rows]
    return np.stack(starts) if starts else space.rows([])


def small_rows(space: ScheduleSpace) -> Rows:
    """Returns the configurations of the small space of tables that a space has, as its rows [n, m]."""
    small = recorded_space(space.operator)
    columns, legal = [], np.ones(small.size, dtype=np.bool_)
    for ids, chosen in zip(space.chosen, small.full_rows(small.rows(range(small.size))).T, strict=True):
        matches = chosen[:, None] == ids
        legal &= matches.any(axis=1)
        columns.append(matches.argmax(axis=1))
    return np.stack(columns, axis=1)[legal]


@dataclass(frozen=True, eq=False)
class Guidance:
    """What proposes schedules.

    Attributes:
        space: space of the operator's schedules.
        spec: kind of the cost model.
        earlier: model of other workloads, or None.
        digest: digest of its file or of its records, or empty.
        search: settings of Algorithm 1.
        distinct: whether schedules of equal relation features are measured once.
        pool: settings of the Gaussian process that proposes; None where Algorithm 1 does.
    """

    space: ScheduleSpace
    spec: ScheduleModelSpec = field(default_factory=ScheduleModelSpec)
    earlier: ScheduleModel[Any] | None = None
    digest: str = ""
    search: GuidedSpec = field(default_factory=GuidedSpec)
    distinct: bool = True
    pool: PoolSpec | None = None

    def features(self, rows: Rows) -> Any:
        """Returns the features of configurations, as wide as the earlier model reads them."""
        return self._read(REPRESENTATIONS[self.spec.representation](self.space, rows))

    def strategy(self, trials: int) -> Strategy:
        """Returns the search."""
        relations = LastFeatures(lambda rows: REPRESENTATIONS["relation"](self.space, rows))
        if self.pool is not None:
            model = self.earlier
            return PooledBayesian(
                lambda rows: config_features(self.space, rows),
                relations if self.distinct else lambda rows: rows,
                small_rows(self.space),
                None if model is None else lambda rows: model.predict(self.features(rows)),
                trials,
                self.pool,
            )
        search = ModelGuided(self.features, learner_of(self.spec), self.search, self.earlier, trials)
        if not self.distinct:
            return search
        if self.spec.representation == "relation":
            search = replace(search, features=lambda rows: self._read(relations(rows)))
        return DistinctGuided(search, relations)

    def _read(self, features: Any) -> Any:
        """Returns features as wide as the earlier model reads them."""
        return fill_columns(features, self.earlier.columns) if isinstance(self.earlier, Trees) else features

    def settings(self, seed: int, starts: int) -> Mapping[str, object]:
        """Returns all that decides what is tried."""
        return {
            "seed": seed,
            "starts": starts,
            "model": self.digest,
            "spec": asdict(self.spec),
            "search": asdict(self.search if self.pool is None else self.pool),
            "distinct": self.distinct,
        }


def guidance_of(space: ScheduleSpace, options: ScheduleOptions) -> Guidance:
    """Returns what proposes schedules, with the model of the options' folder or records if there is one.

    Raises:
        DataError: if the folder holds no model of schedules, or one that only knows its own space, or records
            cannot be read.
    """
    model, pool = options.model, options.pool if options.strategy == BAYESIAN else None
    # A process models what costs leave over of speeds, so these are better of the same unit.
    spec = ScheduleModelSpec(objective="rank" if pool is None else "regression")
    guidance = Guidance(space, spec, search=options.search, distinct=options.distinct, pool=pool)
    if options.records:
        earlier, digest = model_of_records(options.records, guidance.spec, options.seed)
        return replace(guidance, earlier=earlier, digest=digest)
    if model is None:
        return guidance
    earlier, spec = load_schedule_model(model)
    if spec.representation in _OF_ONE_SPACE:
        problem = f"reads {spec.representation}, which means something else for another workload"
        raise DataError(problem, where=model, field="--model", expected="a model of relation or tree")
    single = replace(spec, models=1, acquisition="mean")
    return replace(guidance, spec=single, earlier=earlier, digest=digest_file(model / MODEL_FILE))


def tune_schedule(
    folder: Path, options: ScheduleOptions, device: CpuDevice, hooks: Hooks, resume: bool
) -> TunedSchedule:
    """Searches, measures the fastest again, and writes the results.

    Args:
        folder: folder of the results.
        options: options of the run.
        device: device that measures.
        hooks: hooks around measurements.
        resume: whether the log in the folder is continued; otherwise all results there are removed first.

    Returns:
        what came out, also where Ctrl-C or a `failure` ended the search: what was measured is in the log.

    Raises:
        DataError: if nothing ran, nothing can be resumed, or the results cannot be written.
        ChoiceError: for an unknown target.
    """
    operator = parse_operator(options.workload)
    space = live_space(operator)
    guidance = guidance_of(space, options)
    device.check_target()
    count = options.starts if guidance.earlier is None else 0
    header = header_of(space, options.target, device.host, guidance.settings(options.seed, count))
    recorded = _recorded(folder / LOG_FILE, header, resume)
    tally = Tally()
    for entry in recorded:
        tally.add(entry)
    interrupted, failure = False, None
    with LogWriter(folder / LOG_FILE, header) as log:
        evaluator = LiveEvaluator(
            space, device, f"cpu {options.target}", log, tally, hooks.report, hooks.guard
        )
        rng = stream(options.seed, "tune", operator.text, options.target)
        try:
            starts = starts_of(space, count, options.seed)
            strategy = guidance.strategy(options.trials)
            if len(recorded) < options.trials:
                search_live(
                    *(strategy, evaluator, rng, starts, recorded), trials=options.trials, seed=options.seed
                )
        except SearchInterrupted:
            # A second Ctrl-C may have left an answer of the worker unread.
            device.close()
            interrupted = True
        except DataError as error:
            failure = error
    finalists = _finalists(tally.entries)
    if not finalists:
        if interrupted:
            raise KeyboardInterrupt
        raise failure or DataError(f"no schedule ran: {tally.why()}", where=operator.text)
    if not (interrupted or failure):
        try:
            finalists = _again(space, device, finalists)
        except KeyboardInterrupt:
            device.close()
            interrupted = True
        except DataError as error:
            failure = error
    tuned = TunedSchedule(
        operator, header, tuple(tally.entries), tally.progress, finalists, interrupted, failure
    )
    _write(folder, tuned, device)
    _keep_model(folder / MODEL_FOLDER, guidance, tuned, options.seed)
    return tuned


def _recorded(path: Path, header: LogHeader, resume: bool) -> list[LogEntry]:
    """Returns the measurements that the search goes on from; without `resume`, removes what is there."""
    if not resume:
        (path.parent / MODEL_FOLDER / MODEL_FILE).unlink(missing_ok=True)
        for name in (LOG_FILE, BEST_FILE, TRACE_FILE, CODE_FILE):
            path.with_name(name).unlink(missing_ok=True)
        return []
    logged_header, entries = read_log(path)
    for name in ("operator", "restrict", "target", "host", "settings"):
        if as_json(getattr(logged_header, name)) != as_json(getattr(header, name)):
            expected = f"the {name} of the run to resume; leave out --resume to begin again"
            raise DataError("is of another run", where=path, field=name, expected=expected)
    return entries


def _finalists(entries: Sequence[LogEntry]) -> tuple[ConfirmedSchedule, ...]:
    ran = [(entry.runtime_ns, entry.number) for entry in entries if entry.runtime_ns is not None]
    return tuple(ConfirmedSchedule(number, runtime_ns) for runtime_ns, number in sorted(ran)[:CONFIRMED])


def _again(
    space: ScheduleSpace, device: CpuDevice, finalists: tuple[ConfirmedSchedule, ...]
) -> tuple[ConfirmedSchedule, ...]:
    """Measures schedules in several rounds, and sorts them by the median; one that fails comes last."""
    runtimes_ns: dict[int, list[int]] = {finalist.number: [] for finalist in finalists}
    for _ in range(ROUNDS):
        for number in runtimes_ns:
            entry = measure_entry(space, space.rows([number])[0], device)
            if entry.runtime_ns is not None:
                runtimes_ns[number].append(entry.runtime_ns)
    measured = [replace(finalist, again_ns=tuple(runtimes_ns[finalist.number])) for finalist in finalists]
    return tuple(
        sorted(measured, key=lambda finalist: (len(finalist.again_ns) < ROUNDS, finalist.runtime_ns))
    )


def _write(folder: Path, tuned: TunedSchedule, device: CpuDevice) -> None:
    space, best = tuned.header.space, tuned.best
    row = space.rows([best.number])[0]
    content = {
        "workload": tuned.operator.text,
        "choices": space.choices(row),
        "number": best.number,
        "runtime_ns": best.runtime_ns,
        "gflops": tuned.gflops,
        "finalists": [asdict(finalist) for finalist in tuned.finalists],
        "trials": len(tuned.entries),
        "failed": tuned.progress.failed,
        "noise": tuned.progress.noise,
        "seconds": sum(entry.seconds for entry in tuned.entries),
        "target": tuned.header.target,
        "host": tuned.header.host,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "ended": "interrupted" if tuned.interrupted else str(tuned.failure or "trials used up"),
    }
    write_json(folder / BEST_FILE, content)
    program = device.show(space, row)
    write_json(folder / TRACE_FILE, program.trace)
    write_text(folder / CODE_FILE, program.code + "\n")


def _keep_model(folder: Path, guidance: Guidance, tuned: TunedSchedule, seed: int) -> None:
    """Writes a model of this run's measurements, for `--model` of other runs."""
    numbers = [entry.number for entry in tuned.entries]
    runtimes = np.array([entry.runtime_ns or np.inf for entry in tuned.entries], dtype=np.float64)
    features = guidance.features(guidance.space.rows(numbers))
    fitted = learner_of(guidance.spec).fit(features, samples_of(runtimes), seed)
    save_schedule_model(folder, fitted, guidance.spec)
