"""`costbench tune`: options, progress and what is printed; the work is in `costbench.experiments`."""

from __future__ import annotations

import inspect
import math
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import (
    INTERRUPTED,
    announce_compiling,
    console,
    is_given,
    print_table,
    program_stem,
    refuse_given,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from costbench.autotuning.search import Progress
    from costbench.experiments.autotuning.session import Report, Step, TuneOptions, TuningResult
    from costbench.target import Target

_LISTED = 10
_NS_PER_MS, _NS_PER_US = 1e6, 1e3
_LINE_EVERY_S = 5.0
_PROGRAMS = "Programs: tile sizes, fusions, layouts"
_SCHEDULES = "Schedules of operators (--task schedule)"
_OF_SIMULATED = ("top_k", "compile_s", "chip", "prices", "trip_count")
"""Options that have no effect on a machine that exists."""
_OF_PROGRAMS = (*_OF_SIMULATED, "budget", "model_budget", "time_limit", "device")
"""Options that have no effect on the tasks of other packages."""
_OF_MODELS = ("model_budget", "time_limit")
"""Options that have no effect on a search without a model."""
_OF_EXTENSIONS = ("strategy", "records")
"""Options that a task of another package may have; handed on where they are used."""


def tune(  # noqa: PLR0913 (a command has its options)
    context: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="FILE|WORKLOAD",
            help="An HLO module, binary (.pb) or text, plain, .zst or .gz. For schedules a workload: `C6`,"
            " `matmul:m=64,n=64,k=64`, or a file of them, one a line.",
        ),
    ],
    task: Annotated[
        str,
        typer.Option(
            help="`tile`: the tile size of every kernel; `fusion`; `layout`; `schedule` of an operator."
        ),
    ] = "tile",
    model: Annotated[
        str,
        typer.Option(
            help="Who ranks: `analytical`, which needs no training; the folder of a trained model, or its"
            " address in the registry, `models:/costbench-tile-laptop@champion`; a class of your own,"
            " `mymodel:MyModel`; or `none`, to search on hardware alone. For schedules the folder of a model"
            " of other workloads, or `none`, the default there."
        ),
    ] = "analytical",
    budget: Annotated[
        float,
        typer.Option(
            rich_help_panel=_PROGRAMS,
            help="Minutes charged for the simulated machine, compiling included, not minutes of waiting."
            " Fusion, layout: a config costs --compile-s and three runs, so 10 minutes measure about five.",
        ),
    ] = 10.0,
    model_budget: Annotated[
        float,
        typer.Option(
            rich_help_panel=_PROGRAMS,
            help="Minutes charged for predicting: 0.5 ms a fusion config and 0.25 µs per instruction, 5 ms a"
            " layout config. A minute is 100,000 fusion configs of a small program. A smaller space is"
            " enumerated (fusion, layout).",
        ),
    ] = 1.0,
    top_k: Annotated[
        int, typer.Option(rich_help_panel=_PROGRAMS, help="Tile sizes measured per kernel (tile).")
    ] = 10,
    compile_s: Annotated[
        float,
        typer.Option(
            rich_help_panel=_PROGRAMS,
            help="Seconds of hardware charged for compiling a program (fusion, layout).",
        ),
    ] = 101.5,
    time_limit: Annotated[
        float,
        typer.Option(
            rich_help_panel=_PROGRAMS,
            help="Minutes of this computer's time for predicting; what was found then is measured.",
        ),
    ] = math.inf,
    trip_count: Annotated[
        int, typer.Option(rich_help_panel=_PROGRAMS, help="Iterations of loops without a known bound.")
    ] = 100,
    chip: Annotated[
        str, typer.Option(rich_help_panel=_PROGRAMS, help="A chip by name, or a YAML file of your own.")
    ] = "tpu_v3",
    device: Annotated[
        str,
        typer.Option(
            rich_help_panel=_PROGRAMS,
            help="`simulated`: the chip; `xla_cpu`: XLA on this processor, for --task fusion (extra `jax`),"
            " where minutes are the processor's time for compiling and running.",
        ),
    ] = "simulated",
    trials: Annotated[
        int, typer.Option(rich_help_panel=_SCHEDULES, help="Schedules measured (schedule).")
    ] = 200,
    target: Annotated[
        str,
        typer.Option(
            rich_help_panel=_SCHEDULES,
            help="`native`, `generic`, or a processor as LLVM's -mcpu names it (schedule).",
        ),
    ] = "native",
    strategy: Annotated[
        str,
        typer.Option(
            rich_help_panel=_SCHEDULES,
            help="`guided` by trees, or `bayesian`; `tune-schedule --help` has more (schedule).",
        ),
    ] = "guided",
    records: Annotated[
        list[Path] | None,
        typer.Option(
            rich_help_panel=_SCHEDULES,
            help="Recorded tables, folders of them or logs that the search learns from (schedule).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the searches and of the machine's noise.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the results, `out/tune/FILE-TASK-CHIP-MODEL` if left out; refused if it"
            " holds those of other options."
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_PROGRAMS,
            help="A YAML file: times of instructions that the chip does not run, by opcode or by target of a"
            " custom call, `my_kernel: {ns: 2000, gb_per_s: 35}`; collectives by the links between chips,"
            " `collectives: {chips: 8, gb_per_s: 35, ns: 1000}`. Without it they count nothing.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last run was stopped.")] = False,
) -> None:
    """Find faster tile sizes, fusions or layouts for your own program, on a simulated chip or this processor.

    The model ranks, the machine measures what it ranks best. Writes the chosen decisions (`decisions.json`),
    predicted and measured costs (`costs.csv`), a plot of the search (`search.png`, `search.svg`) and its
    traces. **Ctrl-C** keeps the best found so far; the same command with `--resume` goes on and ends as if it
    had not been stopped.

    **Your program**, from JAX:

    `lowered = jax.jit(step).trace(*arguments).lower(lowering_platforms=("tpu",))`

    `proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()`

    `Path("step.hlo.pb").write_bytes(proto)`

    **A trained model**: the default works without one. After `make repro` (or `make demo`, in minutes),
    `costbench runs best --task fusion` lists those there are, best first, with their folders.

    **Schedules** of operators are built and timed on the processor of this machine: `costbench tune-schedule
    --help`.

    Examples:

    `costbench tune step.hlo.pb`

    `costbench tune step.hlo.pb --task fusion --model
    out/laptop/train/folds-fusion/fusion-fold1-tpu_v3-main-s0 --budget 20`

    `costbench tune step.hlo.pb --task fusion --device xla_cpu --budget 2`

    `costbench tune --task schedule conv2d:n=1,h=28,w=28,ci=128,co=128,kh=3,kw=3,pad=1 --trials 200`
    """
    from costbench.errors import choose
    from costbench.tasks import TASKS, TUNED

    def of_program() -> None:
        from costbench.errors import DataError
        from costbench.experiments.autotuning.session import NO_MODEL, SIMULATED, TuneOptions
        from costbench.hardware.xla_cpu.program import CHIP
        from costbench.target import load_target

        of_others = ("top_k",) if TUNED[task].measures_programs else ("compile_s", "model_budget")
        refuse_given(context, ("trials", "target", *_OF_EXTENSIONS, *of_others), f"with --task {task}")
        if model == NO_MODEL:
            refuse_given(context, _OF_MODELS, f"with --model {model}")
        options = TuneOptions(
            file=Path(subject),
            task=TUNED[task].name,
            model=model,
            minutes=budget,
            model_minutes=model_budget,
            top_k=top_k,
            compile_s=compile_s,
            seed=seed,
            prices=prices,
            time_limit=time_limit,
            trip_count=trip_count,
            device=device,
        )
        if device == SIMULATED:
            _tune(options, chip, load_target(chip), out, resume)
            return
        choose({SIMULATED: None, CHIP: None}, device, "device")
        if not TASKS[task].on_processor:
            tasks = ", ".join(name for name, known in TASKS.items() if known.on_processor)
            raise DataError(f"{device} has no {task}s to choose", field="--task", expected=tasks)
        refuse_given(context, _OF_SIMULATED, f"with --device {device}")
        _tune(options, device, None, out, resume)

    def by_extension(command: Callable[..., None]) -> None:
        refuse_given(context, _OF_PROGRAMS, f"with --task {task}")
        earlier = None if model == "none" or not is_given(context, "model") else Path(model)
        further = {"strategy": strategy, "records": records}
        further = {name: value for name, value in further.items() if is_given(context, name)}
        known = inspect.signature(command).parameters
        refuse_given(context, further.keys() - known.keys(), f"with --task {task}")
        command(subject, trials, target, earlier, seed, out, resume, **further)

    extensions = {name: partial(by_extension, command) for name, command in _extensions().items()}
    choose(dict.fromkeys(TUNED, of_program) | extensions, task, "task")()


def _extensions() -> dict[str, Callable[..., None]]:
    """Returns the commands `tune_NAME` of other installed packages, by NAME."""
    from costbench.extensions import COMMANDS, CommandGroup, load_extensions

    groups = load_extensions(COMMANDS, CommandGroup).values()
    commands = {command.__name__: command for group in groups for command in group.commands}
    return {
        name.removeprefix("tune_"): commands[name] for name in sorted(commands) if name.startswith("tune_")
    }


def _tune(options: TuneOptions, chip: str, target: Target | None, out: Path | None, resume: bool) -> None:
    """Tunes a program on a simulated chip, or without one on this processor, and prints what came out."""
    from costbench.experiments.autotuning.machine_tuning import SCRIPT_FILE, tune_on_machine
    from costbench.experiments.autotuning.program_tuning import tune_program
    from costbench.experiments.autotuning.session import Session, write_results

    folder, name, gain = out or default_folder(options, chip), program_stem(options.file), ""
    announce_compiling()
    screen = console()
    try:
        with _stopping() as stop, _reporting(screen, options.file) as report:
            session = Session(folder, options, target, resume=resume, report=stop.before(report))
            if target is None:
                result, gain = tune_on_machine(session, name, folder)
            else:
                result = tune_program(session, name)
    except KeyboardInterrupt:
        typer.echo("costbench: stopped; no results written", err=True)
        raise typer.Exit(INTERRUPTED) from None
    write_results(folder, options, chip if target is None else target.name, result)
    _draw(result, options, folder)
    if target is not None:
        _print(screen, result, options, folder, target.name)
    else:
        _print_changes(result)
        typer.echo(f"{result.program}: {gain}")
        predicted = f"{result.num_predicted:,} predicted by {options.model}, " if result.num_predicted else ""
        seconds = f"{result.hardware_seconds:,.4g} s of this processor"
        measured = f"{predicted}{result.num_measured:,} configs measured in {seconds}"
        typer.echo(f"{measured}; `python {SCRIPT_FILE}` in {folder} shows the gain")
    if session.interrupted:
        typer.echo("costbench: stopped; --resume goes on", err=True)
        raise typer.Exit(INTERRUPTED)


def default_folder(options: TuneOptions, chip: str) -> Path:
    """Returns `out/tune/FILE-TASK-CHIP-MODEL`; of a model that is a folder its last two names."""
    names = [name for name in re.split(r"[^\w.@-]+", options.model) if name not in ("", ".", "..")]
    parts = [program_stem(options.file), options.task, Path(chip).stem, *names[-2:]]
    return Path("out") / "tune" / "-".join(parts)


class _Stop:
    """Ctrl-C: at once while nothing is searched, after the batch in work later, at once when pressed twice.

    So no search is lost while it is put away, or between two of them.
    """

    def __init__(self) -> None:
        self._searching = self._pressed = False

    def pressed(self, _signal: int, _frame: FrameType | None) -> None:
        """Handles the signal."""
        if self._pressed or not self._searching:
            raise KeyboardInterrupt
        self._pressed = True

    def before(self, report: Report) -> Report:
        """Checks for an interrupt before each report of progress."""

        def checked(step: Step, progress: Progress) -> None:
            self._searching = True
            if self._pressed:
                raise KeyboardInterrupt
            report(step, progress)

        return checked


@contextmanager
def _stopping() -> Iterator[_Stop]:
    stop = _Stop()
    # A shell that starts it in the background has it ignore the signal: `kill -INT` should stop it as well.
    before = signal.signal(signal.SIGINT, stop.pressed)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _draw(result: TuningResult, options: TuneOptions, folder: Path) -> None:
    from costbench.reports.figures.search_curves import draw_search
    from costbench.tasks import TASKS

    measured = [row.measured_ns for row in result.rows] if TASKS[options.task].measures_programs else []
    draw_search(
        folder / "search",
        f"{result.program}, {options.task}",
        result.default_ns,
        seconds=[second for second, _ in result.curve],
        best_ns=[ns for _, ns in result.curve],
        measured_ns=[math.nan if ns is None else ns for ns in measured],
    )


@contextmanager
def _reporting(console: Console, file: Path) -> Iterator[Report]:
    """Yields what reports progress: a bar on a terminal, a line every few seconds elsewhere."""
    if not console.is_terminal:
        yield _lines(time.monotonic)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[best]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        yield _bar(bar, bar.add_task(f"reading {file.name}", total=None, best=""))


def _bar(bar: Bar, task: TaskID) -> Report:
    def report(step: Step, progress: Progress) -> None:
        part, whole = _part(step, progress)
        bar.update(task, description=step.label, total=whole, completed=part, best=_best(step, progress))

    return report


def _lines(clock: Callable[[], float]) -> Report:
    last: list[float] = []

    def report(step: Step, progress: Progress) -> None:
        if not last or clock() - last[-1] >= _LINE_EVERY_S:
            last[:] = [clock()]
            part, whole = _part(step, progress)
            percent = f" ({100 * part / whole:.0f}%)" if whole else ""
            typer.echo(f"costbench: {step.label}{percent}: {_best(step, progress)}", err=True)

    return report


def duration(ns: float) -> str:
    """Returns a time as text: in milliseconds, below a tenth of one in microseconds."""
    if ns < 0.1 * _NS_PER_MS:
        return f"{ns / _NS_PER_US:,.3f} µs"
    return f"{ns / _NS_PER_MS:,.3f} ms"


def _part(step: Step, progress: Progress) -> tuple[float, float | None]:
    """Returns what is done, of how much: steps where there are many, otherwise of the budget."""
    if step.decisions is not None:
        return progress.num_decisions, step.decisions
    if step.count > 1:
        return step.number, step.count
    return progress.budget.spent_seconds, progress.budget.seconds


def _best(step: Step, progress: Progress) -> str:
    ns = progress.best_score if step.program_ns is None else step.program_ns
    best = duration(ns) if math.isfinite(ns) else "none yet"
    return f"{progress.num_decisions:,} tried, best {best}"


def _print(screen: Console, result: TuningResult, options: TuneOptions, folder: Path, chip: str) -> None:
    from costbench.tasks import TASKS

    gained = sorted((gain for gain in result.gains if gain.saved_ns > 0), key=lambda gain: -gain.saved_ns)
    if gained:
        # A trained model of tile sizes predicts scores without unit.
        in_ns = not TASKS[options.task].ranks_decisions or options.model == "analytical"
        predicted = ["predicted now (µs)" if in_ns else "predicted score"] if result.num_predicted else []
        measured = ("measured default (µs)", "measured now (µs)", "saved per run (µs)")
        rows = []
        for gain in gained[:_LISTED]:
            per_run = (gain.default_ns, gain.measured_ns, gain.default_ns - gain.measured_ns)
            times = [f"{ns / _NS_PER_US:,.3f}" for ns in (*per_run, gain.saved_ns)]
            if gain.predicted_cost is not None:
                times.append(f"{gain.predicted_cost / (_NS_PER_US if in_ns else 1):,.3f}")
            rows.append([gain.what, f"{gain.runs:,}", *times])
        if len(gained) > _LISTED:
            rest = sum(gain.saved_ns for gain in gained[_LISTED:]) / _NS_PER_US
            rows.append([f"{len(gained) - _LISTED:,} more", "", "", "", "", f"{rest:,.3f}"])
        headers = ("what", "runs", *measured, "saved, all runs (µs)", *predicted)
        title = f"{result.program}, {options.task}: what was gained on {chip}"
        print_table(headers, rows, title=title)
    _print_changes(result)
    screen.print(summary(result, options, folder, chip), highlight=False, soft_wrap=True)


def _print_changes(result: TuningResult) -> None:
    if not result.changes:
        return
    rows = [(change.what, change.before, change.after) for change in result.changes[:_LISTED]]
    if len(result.changes) > _LISTED:
        rows.append((f"{len(result.changes) - _LISTED:,} more, in decisions.json", "", ""))
    headers = ("what", "default", "now")
    print_table(headers, rows, title=f"What is changed, {len(result.changes):,} in all", text=headers)


def summary(result: TuningResult, options: TuneOptions, folder: Path, chip: str = "") -> str:
    """Returns what came out, in words; `chip` names what it was measured on."""
    from costbench.tasks import TASKS, labels_of

    default, best = map(duration, (result.default_ns, result.best_ns))
    chosen = labels_of(options.task).decisions
    if result.unmeasured is not None:
        chosen_ns, default_ns = map(duration, result.unmeasured)
        gain = f"the best {chosen} found are predicted to take {chosen_ns}, the default ones {default_ns}"
        lines = [f"{result.program}: nothing was measured; {gain}"]
    elif result.speedup > 1.0:
        gain = f"{100 * (result.speedup - 1):.1f}% faster than with the compiler's default {chosen}"
        lines = [f"{result.program}: {gain} ({default} → {best}, {result.speedup:.3f} times as fast)"]
    else:
        lines = [f"{result.program}: nothing faster found than the compiler's default {chosen} ({default})"]
    if result.num_predicted:
        lines.append(f"{result.num_predicted:,} {chosen} predicted by {options.model}")
    on = f" on {chip} (simulated)" if chip else ""
    lines.append(f"{result.num_measured:,} measured{on} in {result.hardware_seconds:,.4g} s of hardware time")
    compiles = TASKS[options.task].measures_programs
    if not result.num_measured and compiles and options.compile_s > 60 * options.minutes:
        lines.append(
            f"{options.compile_s:g} s for compiling a program do not fit in {options.minutes:g} minutes: "
            "give a larger --budget, or a smaller --compile-s"
        )
    lines += _left_out(result)
    return "\n".join([*lines, f"decisions.json, costs.csv, search.png and search.svg are in {folder}"])


def _left_out(result: TuningResult) -> list[str]:
    """Says which kernels were not tuned, those without a time first."""
    lines = []
    for kind in sorted(result.left_out, key=lambda kind: kind.total_ns is not None):
        took = "counts nothing" + ("; --prices gives it a time" if kind.what else "")
        if kind.total_ns is not None:
            took = f"takes {duration(kind.total_ns)} by the given prices"
        what = f"{kind.what or 'a kernel'}, {kind.runs:,} runs, e.g. {kind.example}"
        lines.append(f"left out: {what}: {kind.reason}; {took}")
    return lines
