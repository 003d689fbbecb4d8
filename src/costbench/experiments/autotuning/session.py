"""Tunes one program of a user: searches for tile sizes, fusions or layouts, and reports their speed-up.

Every search writes its trace into the folder of results, every ten seconds and when it ends or is
interrupted, so a run can be resumed and then ends as if it had never stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd

from costbench.artifacts import digest_file, read_json, write_json, write_text
from costbench.autotuning.budget import COMPILE_S, MeasurementBudget
from costbench.autotuning.search import Plan, Progress, SearchInterrupted, Watch
from costbench.autotuning.trace import SearchTrace, read_trace, write_trace
from costbench.compiler.trip_counts import DEFAULT_UNKNOWN_TRIP_COUNT
from costbench.errors import DataError
from costbench.experiments.autotuning.outside_prices import LeftOut
from costbench.search.space import VectorSearchSpace
from costbench.target import Target
from costbench.tasks import TaskName

ANALYTICAL, NO_MODEL = "analytical", "none"
SIMULATED = "simulated"
DECISIONS_FILE = "decisions.json"
_ENUMERATION = "enumeration"
_FILES = {"file": "another program", "prices": "other prices"}
"""What a run is of whose files differ; settings hold their digests."""
_SAVED_EVERY_S = 10.0


@dataclass(frozen=True)
class Step:
    """One of the searches of a run.

    Attributes:
        name: name of its trace.
        label: its name in messages.
        number: its number among the searches of its kind, from 0.
        count: number of searches of its kind.
        decisions: how many it tries if nothing stops it; None where a budget alone ends it.
        limited: whether the time limit of the run ends it.
        program_ns: best runtime of the program before this search, where its scores are not program runtimes.
    """

    name: str
    label: str
    number: int = 0
    count: int = 1
    program_ns: float | None = None
    decisions: int | None = None
    limited: bool = False


Report = Callable[[Step, Progress], None]
"""Called with what is searched and the progress of that search."""
Run = Callable[[SearchTrace | None, Watch], SearchTrace]
"""A search as a function of its recorded first part."""


@dataclass(frozen=True)
class TuneOptions:
    """Options of a tuning run.

    Attributes:
        file: the program, an HLO module.
        task: task whose decisions are tuned.
        model: folder of a trained model; `analytical`, or `none` for hardware alone.
        minutes: budget of hardware time.
        model_minutes: budget of predictions, at the charged rate (fusion).
        top_k: tile sizes measured per kernel (tile).
        max_tiles: legal tile sizes per kernel that are considered (tile).
        compile_s: seconds charged for compiling a program (fusion).
        seed: seed of the searches and of the machine's noise.
        prices: file with prices of instructions that the chip does not run.
        time_limit: minutes of this computer's time after which a search on a model ends; infinite for none.
        trip_count: iterations assumed for loops of which the program tells nothing.
        device: machine that measures; `simulated` for the chip of the run.
    """

    file: Path
    task: TaskName
    model: str = ANALYTICAL
    minutes: float = 10.0
    model_minutes: float = 1.0
    top_k: int = 10
    max_tiles: int = 20_000
    compile_s: float = COMPILE_S
    seed: int = 0
    prices: Path | None = None
    time_limit: float = math.inf
    trip_count: int = DEFAULT_UNKNOWN_TRIP_COUNT
    device: str = SIMULATED

    def __post_init__(self) -> None:
        if not self.time_limit > 0.0:
            raise DataError(f"{self.time_limit}", field="--time-limit", expected="minutes, above 0")
        for option, value in (("--budget", self.minutes), ("--model-budget", self.model_minutes)):
            if not 0.0 < value < math.inf:
                raise DataError(f"{value}", field=option, expected="minutes, above 0")
        if not 0.0 <= self.compile_s < math.inf:
            raise DataError(f"{self.compile_s}", field="--compile-s", expected="seconds, at least 0")
        for option, count, minimum in (
            ("--top-k", self.top_k, 1), ("max_tiles", self.max_tiles, 1), ("--seed", self.seed, 0),
            ("--trip-count", self.trip_count, 1),
        ):  # fmt: skip
            if count < minimum:
                raise DataError(f"{count}", field=option, expected=f"at least {minimum}")


@dataclass(frozen=True)
class CostRow:
    """A decision that was measured.

    Attributes:
        subject: fingerprint of the kernel or program that it is about.
        decision: its number, hexadecimal.
        predicted: the model's cost; None without a model.
        measured_ns: runtime; None where it did not compile.
        seconds: charged for the measurement.
        what: the kernel or program, as people know it.
        described: the decision, as people read it; empty where it is too long for a table.
    """

    subject: str
    decision: str
    predicted: float | None
    measured_ns: float | None
    seconds: float
    what: str = ""
    described: str = ""


@dataclass(frozen=True)
class Gain:
    """The decision chosen for a kernel or program, beside the default.

    Attributes:
        what: description for people.
        runs: executions in one run of the program.
        default_ns: runtime with the default decision.
        predicted_cost: the model's cost of the chosen decision; None without a model.
        measured_ns: runtime with the chosen decision.
    """

    what: str
    runs: int
    default_ns: float
    predicted_cost: float | None
    measured_ns: float

    @property
    def saved_ns(self) -> float:
        """Nanoseconds saved by all of its runs in one run of the program."""
        return self.runs * (self.default_ns - self.measured_ns)


@dataclass(frozen=True)
class Change:
    """One part of the chosen decision of a whole program that differs from the default.

    Attributes:
        what: the edge or instruction that it is about, with its name in the user's code.
        before: the compiler's own choice.
        after: the chosen one.
    """

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class TuningResult:
    """Result of tuning a program.

    Attributes:
        program: name of the program.
        default_ns: runtime with the compiler's own decisions.
        best_ns: runtime with the chosen ones.
        num_predicted: decisions scored by the model.
        num_measured: decisions measured.
        hardware_seconds: charged.
        decisions: the chosen ones, as JSON values.
        gains: what each of them gains.
        rows: all measured decisions.
        curve: pairs of hardware seconds and the program's best runtime by then.
        left_out: kernels that the chip does not run; those with a price count in the runtimes.
        unmeasured: the model's predictions for the chosen and the default decisions, in nanoseconds, where
            the run was stopped or its budget spent before any measurement; `best_ns` is then the default's.
        changes: what the chosen decision of a whole program changes.
    """

    program: str
    default_ns: float
    best_ns: float
    num_predicted: int
    num_measured: int
    hardware_seconds: float
    decisions: dict[str, object]
    gains: tuple[Gain, ...]
    rows: tuple[CostRow, ...]
    curve: tuple[tuple[float, float], ...]
    left_out: tuple[LeftOut, ...] = ()
    unmeasured: tuple[float, float] | None = None
    changes: tuple[Change, ...] = ()

    @property
    def speedup(self) -> float:
        """Runtime by default divided by runtime with the chosen decisions; 1 where nothing takes time."""
        return self.default_ns / self.best_ns if self.best_ns else 1.0


class Session:
    """A run of searches whose traces are kept in a folder.

    Args:
        folder: folder of the results; created if needed.
        options: options of the run.
        target: the chip; None on a machine that exists.
        resume: continue from existing traces, which must be of equal options.
        report: called with the progress of searches.

    Attributes:
        options: the same.
        interrupted: whether Ctrl-C was pressed; later searches then end at once.
        origins: names of instructions -> what they were called in the user's code (JAX's `op_name`).

    Raises:
        DataError: if there is nothing to resume, or the options differ or have a smaller budget; if nothing
            is to be resumed and the folder holds the result of other options.
    """

    def __init__(
        self, folder: Path, options: TuneOptions, target: Target | None, *, resume: bool, report: Report
    ) -> None:
        self.options, self._target = options, target
        self.interrupted = False
        self.origins: dict[str, str] = {}
        self._deadline = time.monotonic() + 60.0 * options.time_limit
        self._folder, self._report, self._resume = folder, report, resume
        self._next_save = time.monotonic() + _SAVED_EVERY_S
        settings = asdict(options) | {
            "file": digest_file(options.file),
            "chip": options.device if target is None else target.name,
            "prices": None if options.prices is None else digest_file(options.prices),
        }
        del settings["time_limit"]
        if options.device == SIMULATED:
            # Runs that began before there was another.
            del settings["device"]
        path = folder / "settings.json"
        if resume:
            # A larger hardware budget only adds measurements, so it does not change the identity of the run.
            fixed = {name: value for name, value in settings.items() if name != "minutes"}
            before = _verify_settings(path, fixed).get("minutes")
            if isinstance(before, int | float) and before > options.minutes:
                problem = f"is of minutes {before}, not {options.minutes}"
                raise DataError(problem, where=path, expected="at least the --budget of the run to resume")
        else:
            traces = [*(folder / "traces").glob("*.json")]
            if path.exists() and (traces or (folder / DECISIONS_FILE).exists()):
                _verify_settings(path, settings, "another --out, or the options of the result in it")
            # Else this run, stopped early and resumed, would go on with searches that it never did.
            for trace in traces:
                trace.unlink()
        write_json(path, settings)

    @property
    def target(self) -> Target:
        """Returns the chip of a run on a simulated one."""
        assert self._target is not None, "searches on a machine that exists ask for no chip"
        return self._target

    def plan(
        self, vectors: VectorSearchSpace, strategy: str, budget: MeasurementBudget, cost_s: float, step: Step
    ) -> tuple[Plan, Step]:
        """Returns how to search from the default and how progress is counted.

        A space of which the budget pays for every config is enumerated; `strategy` would spend most of its
        time there on configs that it has already tried.
        """
        start = (vectors.numbers(vectors.space.default[None])[0],)
        if budget.pays_for(vectors.size, cost_s):
            return Plan(_ENUMERATION, budget, self.options.seed, start), replace(step, decisions=vectors.size)
        return Plan(strategy, budget, self.options.seed, start), step

    def search(self, step: Step, run: Run, keep: Callable[[], None] = lambda: None) -> SearchTrace | None:
        """Runs or resumes a search.

        Args:
            step: the search.
            run: runs it.
            keep: writes what else is needed to resume it; called before its trace is written.

        Returns:
            Its trace; None if the run was interrupted before this search began.
        """
        path = self._folder / "traces" / f"{step.name}.json"
        recorded = read_trace(path) if self._resume and path.exists() else None
        is_ended = step.limited and recorded is not None and not recorded.budget_left.evaluations_left(1)
        if self.interrupted or is_ended:
            return recorded
        path.parent.mkdir(parents=True, exist_ok=True)
        late = False

        def write(trace: SearchTrace) -> None:
            keep()
            write_trace(path, trace)

        def watch(progress: Progress, trace_so_far: Callable[[], SearchTrace]) -> None:
            nonlocal late
            self._report(step, progress)
            now = time.monotonic()
            late = step.limited and now > self._deadline
            if late:
                raise KeyboardInterrupt
            if now >= self._next_save and (recorded is None or progress.num_decisions > len(recorded)):
                write(trace_so_far())
                # Traces of whole programs are long: writing takes a twentieth of the time at most.
                end = time.monotonic()
                self._next_save = end + max(_SAVED_EVERY_S, 20.0 * (end - now))

        try:
            trace = run(recorded, watch)
        except SearchInterrupted as stopped:
            self.interrupted = not late
            trace = stopped.trace
            if recorded is not None and len(recorded) > len(trace):
                trace = recorded
            if late:
                # The next search measures the best decisions so far: nothing is added when it is resumed.
                spent = trace.budget_left.spent_evaluations
                trace = replace(trace, budget=replace(trace.budget, evaluations=spent))
        write(trace)
        return trace

    def known_costs(self) -> dict[int, float]:
        """Returns the kernel costs that an earlier part of the run predicted, by hash."""
        path = self._folder / "traces" / "kernel_costs.json"
        if not (self._resume and path.exists()):
            return {}
        stored = read_json(path)
        if not isinstance(stored, dict):
            raise DataError("no costs", where=path, expected="a mapping")
        return {int(key, 16): math.inf if cost is None else float(cost) for key, cost in stored.items()}

    def keep_costs(self, costs: dict[int, float]) -> None:
        """Writes predicted kernel costs for a later part of the run."""
        stored = {f"{key:x}": cost if math.isfinite(cost) else None for key, cost in costs.items()}
        write_json(self._folder / "traces" / "kernel_costs.json", stored)


def _verify_settings(
    path: Path, settings: dict[str, object], expected: str = "file and options of the run to resume"
) -> dict[str, object]:
    """Returns the settings of the run in a folder. Raises: DataError, unless they have these values."""
    if not path.exists():
        raise DataError("nothing to resume", where=path.parent, expected="the folder of an earlier run")
    earlier = read_json(path)
    if not isinstance(earlier, dict):
        raise DataError("no settings", where=path, expected="a mapping")
    for name, value in settings.items():
        if earlier.get(name) != value:
            what = _FILES.get(name, f"{name} {earlier.get(name)}, not {value}")
            raise DataError(f"is of {what}", where=path, expected=expected)
    return earlier


def cost_rows(
    measured: SearchTrace,
    predicted: SearchTrace | None,
    what: str = "",
    describe: Callable[[int], str] = lambda number: "",
) -> list[CostRow]:
    """Returns the measured decisions with their predictions.

    Args:
        measured: the measurements.
        predicted: the predictions, if there are any.
        what: the kernel or program, for people.
        describe: returns a decision by its number, for people.
    """
    costs = {} if predicted is None else dict(zip(predicted.decisions, predicted.scores, strict=True))
    return [
        CostRow(
            subject=measured.subject.fingerprint,
            decision=f"{decision:x}",
            predicted=costs.get(decision),
            measured_ns=score if math.isfinite(score) else None,
            seconds=seconds,
            what=what,
            described=describe(decision),
        )
        for decision, score, seconds in zip(
            measured.decisions, measured.scores, measured.seconds, strict=True
        )
    ]


def program_result(
    program: str,
    default: int,
    default_ns: float,
    predicted: SearchTrace | None,
    measured: SearchTrace | None,
    describe: Callable[[int], tuple[dict[str, object], tuple[Change, ...]]],
) -> TuningResult:
    """Returns the result of searches for one decision about a whole program.

    Args:
        program: name of the program.
        default: number of the compiler's own decision.
        default_ns: its runtime.
        predicted: search on a model, if there was one.
        measured: search on hardware; None if the run was stopped before.
        describe: returns a decision, by its number, as JSON values, and what it changes.
    """
    best, best_ns, curve = default, default_ns, []
    if measured is not None and len(measured):
        best_so_far = np.minimum(measured.best_so_far, default_ns)
        curve = list(zip(measured.spent_seconds.tolist(), best_so_far.tolist(), strict=True))
        if min(measured.scores) < default_ns:
            best, best_ns = measured.best_decision, measured.best_score
    known = {} if predicted is None else dict(zip(predicted.decisions, predicted.scores, strict=True))
    unmeasured = None
    if predicted is not None and len(predicted) and not (measured is not None and len(measured)):
        unmeasured, best = (predicted.best_score, predicted.scores[0]), predicted.best_decision
    decisions, changes = describe(best)
    return TuningResult(
        program=program,
        default_ns=default_ns,
        best_ns=best_ns,
        num_predicted=0 if predicted is None else len(predicted),
        num_measured=0 if measured is None else len(measured),
        hardware_seconds=curve[-1][0] if curve else 0.0,
        decisions=decisions,
        gains=(Gain("the program", 1, default_ns, known.get(best), best_ns),),
        rows=() if measured is None else tuple(cost_rows(measured, predicted)),
        curve=tuple(curve),
        unmeasured=unmeasured,
        changes=changes,
    )


UNITS = {
    "default_ns": "nanoseconds of one run of the program, measured",
    "best_ns": "nanoseconds of one run of the program, measured",
    "speedup": "default_ns / best_ns",
    "hardware_seconds": "seconds charged for the simulated chip",
    "runtime_ns": "nanoseconds of one run of the kernel, measured",
    "runs_per_program": "runs of the kernel in one run of the program",
    "output_bounds": "native tiles along each axis, slowest first",
    "kernel_bounds": "native tiles along each axis, slowest first",
    "total_ns": "nanoseconds in one run of the program, by the given prices",
}
"""Units of the numbers in `decisions.json`, by key."""


def write_results(folder: Path, options: TuneOptions, chip: str, result: TuningResult) -> None:
    """Writes `decisions.json` and `costs.csv`.

    Raises:
        DataError: if one cannot be written.
    """
    summary = {
        "program": result.program,
        "task": options.task,
        "chip": chip,
        "model": options.model,
        "default_ns": result.default_ns,
        "best_ns": result.best_ns,
        "speedup": result.speedup,
        "num_predicted": result.num_predicted,
        "num_measured": result.num_measured,
        "hardware_seconds": result.hardware_seconds,
        "measured": result.unmeasured is None,
        "left_out": [asdict(value) for value in result.left_out],
        "changes": [asdict(change) for change in result.changes],
        "units": UNITS,
    }
    write_json(folder / DECISIONS_FILE, summary | result.decisions)
    names = [field.name for field in fields(CostRow)]
    costs = pd.DataFrame(map(astuple, result.rows), columns=names, dtype=object)
    table = costs.rename(columns={"seconds": "hardware_seconds"}).to_csv(index=False, lineterminator="\n")
    write_text(folder / "costs.csv", table)
