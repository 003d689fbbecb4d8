"""`costbench tune`: options, progress bar and what is printed; the work is in `costbench.experiments`."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from costbench.autotuning.search import Progress
    from costbench.experiments.tune_program import Session, Tell, Tuned, TuneOptions

_INTERRUPTED = 130
_LISTED = 10
_NS_PER_MS, _NS_PER_US = 1e6, 1e3


def tune(  # noqa: PLR0913 (a command has its options)
    file: Annotated[Path, typer.Argument(help="An HLO module: .hlo.pb, .pb, .hlo.pb.zst, or HLO text.")],
    task: Annotated[str, typer.Option(help="`tile`: tile sizes of every kernel; `fusion`.")] = "tile",
    model: Annotated[
        str, typer.Option(help="Folder of a trained model, `analytical`, or `none`: hardware alone.")
    ] = "analytical",
    budget: Annotated[float, typer.Option(help="Minutes of hardware, compiling included.")] = 10.0,
    model_budget: Annotated[float, typer.Option(help="Minutes of predicting (fusion).")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Tile sizes measured per kernel (tile).")] = 10,
    compile_s: Annotated[float, typer.Option(help="Seconds charged for a compile (fusion).")] = 101.5,
    chip: Annotated[str, typer.Option(help="A chip by name, or a YAML file of your own.")] = "tpu_v3",
    seed: Annotated[int, typer.Option(help="Of the searches.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the results; out/tune/<FILE>-<task>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last run was stopped.")] = False,
) -> None:
    """Find faster tile sizes or fusions for a program of your own, on the simulated chip.

    The model ranks, the machine measures what it ranks best. Writes the chosen decisions (`decisions.json`),
    predicted and measured costs (`costs.csv`), a plot of the search and its traces. **Ctrl-C** keeps the best
    found so far; the same command with `--resume` goes on and ends as if it had not been stopped.

    Example: `costbench tune step.hlo.pb --task fusion --model out/laptop/train/main-fusion/CELL --budget 10`
    """
    from costbench.errors import choose
    from costbench.experiments.tune_program import Session, TuneOptions, write_results
    from costbench.target import load_target

    tasks: dict[str, Literal["tile", "fusion"]] = {"tile": "tile", "fusion": "fusion"}
    options = TuneOptions(
        file=file,
        task=choose(tasks, task, "task"),
        model=model,
        minutes=budget,
        model_minutes=model_budget,
        top_k=top_k,
        compile_s=compile_s,
        seed=seed,
    )
    folder = out or Path("out") / "tune" / f"{_stem(file)}-{task}"
    # A shell that starts it in the background has it ignore the signal: `kill -INT` should stop it as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console = _console()
    with _bar(console) as bar:
        session = Session(folder, options, load_target(chip), resume=resume, tell=_teller(bar))
        tuned = _tuned(session)
    write_results(folder, options, session.target.name, tuned)
    _draw(tuned, options, folder)
    _print(console, tuned, folder)
    if session.interrupted:
        typer.echo("costbench: stopped; --resume goes on", err=True)
        raise typer.Exit(_INTERRUPTED)


def _tuned(session: Session) -> Tuned:
    from costbench.experiments.tune_model import tuned

    return tuned(session, _stem(session.options.file))


def _stem(file: Path) -> str:
    name = file.name
    for suffix in (".zst", ".pb", ".txt", ".hlo"):
        name = name.removesuffix(suffix)
    return name


def _draw(tuned: Tuned, options: TuneOptions, folder: Path) -> None:
    from costbench.reports.search_figure import SearchCurve, draw_search

    measured = [row.measured_ns for row in tuned.rows] if options.task == "fusion" else []
    curve = SearchCurve(
        title=f"{tuned.program}, {options.task}",
        default_ns=tuned.default_ns,
        seconds=[second for second, _ in tuned.curve],
        best_ns=[ns for _, ns in tuned.curve],
        measured_ns=[math.nan if ns is None else ns for ns in measured],
    )
    draw_search(curve, folder / "search")


def _bar(console: Console) -> Bar:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[found]}"))
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def _teller(bar: Bar) -> Tell:
    tasks: dict[str, TaskID] = {}

    def tell(name: str, progress: Progress) -> None:
        limit = progress.budget.seconds
        if name not in tasks:
            for other in tasks.values():
                bar.update(other, visible=False)
            tasks[name] = bar.add_task(name, total=limit, found="")
        best = f"{progress.best_score:,.0f}" if math.isfinite(progress.best_score) else "none yet"
        found = f"{progress.num_decisions:,} tried, best {best}"
        bar.update(tasks[name], completed=progress.budget.spent_seconds, found=found)

    return tell


def _print(console: Console, tuned: Tuned, folder: Path) -> None:
    from rich.table import Table

    table = Table(title=f"{tuned.program}: {tuned.speedup:.3f} times as fast")
    for name in ("what", "runs", "predicted cost", "default (µs)", "measured (µs)"):
        table.add_column(name, justify="left" if name == "what" else "right")
    gained = sorted(tuned.gains, key=lambda gain: -gain.saved_ns)
    for gain in gained[:_LISTED]:
        times = (f"{ns / _NS_PER_US:,.3f}" for ns in (gain.default_ns, gain.measured_ns))
        # A model of tile sizes predicts a score without unit.
        predicted = "" if gain.predicted_cost is None else f"{gain.predicted_cost:,.5g}"
        table.add_row(gain.what, f"{gain.runs:,}", predicted, *times)
    console.print(table)
    console.print(
        f"{tuned.default_ns / _NS_PER_MS:.3f} ms by default, {tuned.best_ns / _NS_PER_MS:.3f} ms now; "
        f"{tuned.num_predicted:,} predicted, {tuned.num_measured:,} measured in "
        f"{tuned.hardware_seconds:,.4g} s of hardware; results in {folder}"
    )


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=130)
