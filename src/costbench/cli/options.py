"""Options that several commands take, and what they are turned into."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from costbench.execution.workers import BackendFlags
    from costbench.experiments.stages.entry import Stage

Params = Annotated[
    Path,
    typer.Option("--params", "-p", help="Parameter file of a profile, such as profiles/smoke/params.yaml."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table for people.")]
ExperimentName = Annotated[
    str | None, typer.Option("--experiment", help="Entry of section `experiments`; all of them if left out.")
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Number of seeds of each experiment, the first ones; all of them if left out."),
]
BackendName = Annotated[
    str | None,
    typer.Option(
        "--backend", help="`loky`: processes of this machine; `dask`: a cluster. Or COSTBENCH_BACKEND."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        help="Dask's scheduler: tcp://HOST:PORT, or its scheduler file (.json). Or COSTBENCH_SCHEDULER.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", help="Processes of this machine, one thread each. Or COSTBENCH_JOBS."),
]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
_PIPE_WIDTH = 130


def console() -> Console:
    """Returns a console as wide as the terminal; a file or pipe is as wide as tables need.

    Text is printed as it is: names of files and instructions have brackets, which are no markup.
    """
    from rich.console import Console

    terminal = Console(markup=False, emoji=False)
    return terminal if terminal.is_terminal else Console(width=_PIPE_WIDTH, markup=False, emoji=False)


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    text: Collection[str] = (),
    whole: Collection[str] = (),
) -> None:
    """Prints a table whose columns are numbers, but for some.

    Args:
        headers: names of the columns.
        rows: cells of each row.
        title: title above it; None for none.
        text: columns of text; the first alone if left out.
        whole: columns whose cells stay on a line where the table is too wide.
    """
    from rich.table import Table

    table = Table(title=title)
    for header in headers:
        justify: Literal["left", "right"] = "left" if header in (text or headers[:1]) else "right"
        table.add_column(header, justify=justify, overflow="fold", no_wrap=header in whole)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def backend_flags(backend: str | None, scheduler: str | None, jobs: int | None) -> BackendFlags:
    """Returns what the command line says about the backend."""
    from costbench.execution.workers import BackendFlags

    return BackendFlags(backend, scheduler, jobs)


def calm_threads() -> None:
    """Sets what the Makefile sets, before torch is loaded: one thread, and no spinning of those that wait.

    Two OpenMP teams on the same cores spin against each other. Variables that are set already count.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")


def is_given(context: typer.Context, option: str) -> bool:
    """Returns whether an option was given, not left to its default."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def refuse_given(context: typer.Context, options: Collection[str], reason: str) -> None:
    """Refuses options that would have no effect.

    Args:
        context: context of the command.
        options: names of the parameters.
        reason: what makes them have none, such as `with --task tile`.

    Raises:
        DataError: for the first of them that was given.
    """
    from costbench.errors import DataError

    for parameter in context.command.params:
        if parameter.name in options and is_given(context, parameter.name):
            field = parameter.opts[0]
            raise DataError(f"has no effect {reason}", field=field, expected="to be left out")


def announce_compiling() -> None:
    """Prints a line on stderr if functions are compiled whose code is not on disk yet."""
    from costbench.execution.compiled import at_first_compilation

    at_first_compilation(lambda: typer.echo("costbench: compiling, once: about a minute", err=True))


def program_stem(file: Path) -> str:
    """Returns the name of an HLO file without the endings that say its form."""
    name = file.name
    for suffix in (".zst", ".gz", ".pb", ".txt", ".hlo"):
        name = name.removesuffix(suffix)
    return name


def run_stage(run: Stage, params: Path) -> None:
    """Runs a stage on a parameter file, with its progress on stderr."""
    from costbench.execution.workers import start_logging

    calm_threads()
    start_logging()
    run(params)
