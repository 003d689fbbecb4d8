"""Commands for schedules of tensor operators on the processor of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from costbench.datasets.schedule.table import RecordedTable

Target = Annotated[str, typer.Option(help="`native`, `generic`, or a processor as LLVM's -mcpu names it.")]


def record_schedules(
    workloads: Annotated[list[str], typer.Argument(help="Workloads by name (`C6`), in this order.")],
    out: Annotated[Path, typer.Option(help="Folder of tables; what is there is continued.")],
    target: Target = "native",
    limit: Annotated[int, typer.Option(help="Most configurations of a workload.", min=1, max=4000)] = 4000,
    minutes: Annotated[float, typer.Option(help="Stop after so long; 0 for no limit.", min=0)] = 0.0,
) -> None:
    """Measure sub-spaces of schedules completely on this machine. Needs the extra `cpu`.

    Can be stopped with Ctrl-C and continued with the same command: at most one batch is measured again.

    Example: `costbench record-schedules C6 matmul-512 --out recorded --limit 1200`
    """
    import time

    from costbench.compiler.schedule.operators import WORKLOADS, parse_operator
    from costbench.compiler.schedule.sub_spaces import recorded_space
    from costbench.datasets.schedule.recording import RecordingSpec, record
    from costbench.errors import choose

    for workload in workloads:
        choose(WORKLOADS, workload, "workload")
    stop = time.monotonic() + 60 * minutes
    for workload in workloads:
        left = stop - time.monotonic() if minutes else 0.0
        if minutes and left <= 0:
            return
        space = recorded_space(parse_operator(workload), limit)
        try:
            record(RecordingSpec(out, target, max_seconds=left), workload, space, _print_progress)
        except KeyboardInterrupt:
            typer.echo("stopped; the same command continues", err=True)
            raise typer.Exit(130) from None


def _print_progress(table: RecordedTable) -> None:
    from costbench.datasets.schedule.agreement import agreement
    from costbench.datasets.schedule.table import AFTERWARDS, WHILE_RECORDING

    found = agreement(table, AFTERWARDS if table.complete and table.repeats[-1, 3] else WHILE_RECORDING)
    tau = "-" if found.tau is None else f"{found.tau:.3f}"
    failed = int(table.failed.sum())
    typer.echo(
        f"{table.workload} {table.target}: {table.num_measured:,} of {len(table):,}, {failed} failed, "
        f"best {table.gflops.max():.1f} GFLOPS, measured again: tau {tau} of {found.pairs}, "
        f"runtime x{found.median_ratio:.3f}",
        err=True,
    )


COMMANDS = (record_schedules,)
