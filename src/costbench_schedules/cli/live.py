"""`costbench tune-schedule`: options, progress, Ctrl-C and what is printed."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import INTERRUPTED, console

if TYPE_CHECKING:
    from rich.console import Console

    from costbench_schedules.experiments.live import TunedSchedule
    from costbench_schedules.search.live import LiveProgress

_LINE_EVERY_S = 5.0
_NS_PER_MS = 1e6


class Interrupt:
    """Ctrl-C: immediately, but after a measurement that is being made; pressed twice, immediately."""

    def __init__(self) -> None:
        self._held = self._pressed = False

    def pressed(self, _signal: int, _frame: FrameType | None) -> None:
        """Handles the signal."""
        if self._pressed or not self._held:
            raise KeyboardInterrupt
        self._pressed = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the interrupt back until the end of the block."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pressed:
            raise KeyboardInterrupt

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handles the signal in the block."""
        before = signal.signal(signal.SIGINT, self.pressed)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def tune_schedule(  # noqa: PLR0913 (a command has its options)
    subject: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD", help="`C6`, `matmul:m=64,n=64,k=64`, or a file of workloads, one a line."
        ),
    ],
    trials: Annotated[int, typer.Option(help="Schedules measured of each workload.")] = 200,
    target: Annotated[
        str, typer.Option(help="`native`, `generic`, or a processor as LLVM's -mcpu names it.")
    ] = "native",
    model: Annotated[
        Path | None, typer.Option(help="Folder of a model of other workloads that the search begins with.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the searches.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; `out/tune/WORKLOAD-schedule` if left out.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last run was stopped.")] = False,
    strategy: Annotated[
        str,
        typer.Option(
            help="`guided`: batches by boosted trees; `bayesian`: one by one by a Gaussian process."
        ),
    ] = "guided",
    records: Annotated[
        list[Path] | None,
        typer.Option(
            help="Recorded tables, folders of them, or logs of such runs, of any operators and machines, that"
            " the search begins with."
        ),
    ] = None,
) -> None:
    """Find faster schedules of tensor operators, built and timed on this processor. Needs the extra `cpu`.

    A model that learns from the measurements proposes what is measured. Writes `best.json`, TVM's
    `trace.json`, readable code (`schedule.py`), the log `measurements.jsonl` as it goes, and the `model`,
    which `--model` takes for another workload. `costbench tune --task schedule` is the same command.

    Example: `costbench tune-schedule conv2d:n=1,h=28,w=28,ci=128,co=128,kh=3,kw=3,pad=1 --trials 200`
    """
    from costbench_schedules.devices.device import CpuDevice
    from costbench_schedules.experiments.live import LOG_FILE, Hooks, ScheduleOptions
    from costbench_schedules.experiments.live import tune_schedule as tune

    workloads = workloads_of(subject)
    folders = {
        workload: out or Path("out") / "tune" / f"{label(workload)}-schedule" for workload in workloads
    }
    if out is not None and len(workloads) > 1:
        folders = {workload: out / label(workload) for workload in workloads}
    # Of several workloads those go on that have begun.
    begun = [workload for workload, folder in folders.items() if (folder / LOG_FILE).exists()]
    interrupt = Interrupt()
    screen = console()
    for workload, folder in folders.items():
        options = ScheduleOptions(
            workload, trials, target, model, seed, strategy=strategy, records=tuple(records or ())
        )
        try:
            with (
                interrupt.handled(),
                CpuDevice(target) as device,
                reporting(screen, options.workload, trials) as report,
            ):
                hooks = Hooks(report, interrupt.held)
                tuned = tune(folder, options, device, hooks, resume and (workload in begun or not begun))
        except KeyboardInterrupt:
            state = "--resume goes on" if (folder / LOG_FILE).exists() else "nothing was measured"
            typer.echo(f"costbench: stopped; {state}", err=True)
            raise typer.Exit(INTERRUPTED) from None
        screen.print(summary(workload, tuned, folder), highlight=False, soft_wrap=True)
        if tuned.failure is not None:
            raise tuned.failure
        if tuned.interrupted:
            typer.echo("costbench: stopped; --resume goes on", err=True)
            raise typer.Exit(INTERRUPTED)


def workloads_of(subject: str) -> list[str]:
    """Returns the workloads that an argument stands for; of a file, its lines without comments (`#`).

    Raises:
        ChoiceError: for an unknown workload.
        DataError: for one with impossible parameters, an unreadable file or one without workloads.
    """
    from costbench.artifacts import read_bytes
    from costbench.errors import DataError
    from costbench_schedules.operators.operators import parse_operator

    workloads = [subject]
    if Path(subject).is_file():
        lines = read_bytes(subject).decode("utf-8", errors="replace").splitlines()
        workloads = [text for line in lines if (text := line.partition("#")[0].strip())]
        if not workloads:
            raise DataError("no workloads", where=subject, expected="one a line, such as C6")
    for workload in workloads:
        parse_operator(workload)
    return workloads


def label(workload: str) -> str:
    """Returns a workload as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9]+", "-", workload).strip("-")


@contextmanager
def reporting(console: Console, workload: str, trials: int) -> Iterator[Callable[[LiveProgress], None]]:
    """Yields what shows progress: a bar on a terminal, a line every few seconds elsewhere."""
    from costbench_schedules.operators.operators import parse_operator

    flops = parse_operator(workload).flops
    name = label(workload)
    if not console.is_terminal:
        yield _lines(name, trials, flops, time.monotonic)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(name, total=trials, state="starting")
        yield lambda progress: bar.update(
            task, completed=progress.trials, state=describe_progress(progress, flops)
        )


def _lines(name: str, trials: int, flops: int, clock: Callable[[], float]) -> Callable[[LiveProgress], None]:
    last: list[float] = []

    def report(progress: LiveProgress) -> None:
        if not last or clock() - last[-1] >= _LINE_EVERY_S:
            last[:] = [clock()]
            typer.echo(
                f"costbench: {name}: {progress.trials} of {trials}: {describe_progress(progress, flops)}",
                err=True,
            )

    return report


def describe_progress(progress: LiveProgress, flops: int) -> str:
    """Returns what a search has so far, in words."""
    parts = ["nothing ran yet"]
    if math.isfinite(progress.best_ns):
        rate = flops / progress.best_ns
        parts = [
            f"best {rate:.1f} GFLOPS ({progress.best_ns / _NS_PER_MS:.3f} ms)",
            f"noise {100 * progress.noise:.1f}%",
        ]
    if progress.interrupted:
        parts.append(f"{100 * progress.interrupted:.0f}% interrupted")
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    return ", ".join(parts)


def summary(workload: str, tuned: TunedSchedule, folder: Path) -> str:
    """Returns what came out, in words."""
    best = tuned.best
    lines = [
        f"{workload}: {tuned.gflops:.1f} GFLOPS ({best.runtime_ns / _NS_PER_MS:.3f} ms), the best of "
        f"{len(tuned.entries):,} schedules on {tuned.header.host['processor']}"
    ]
    if best.again_ns:
        low, high = (ns / _NS_PER_MS for ns in (min(best.again_ns), max(best.again_ns)))
        first = best.first_ns / _NS_PER_MS
        lines.append(
            f"measured {len(best.again_ns)} times more: {low:.3f} to {high:.3f} ms"
            f" (in the search {first:.3f} ms)"
        )
    if tuned.progress.failed:
        lines.append(f"{tuned.progress.failed} failed, with their reasons in the log")
    lines.append(f"best.json, trace.json, schedule.py, measurements.jsonl and model are in {folder}")
    return "\n".join(lines)
