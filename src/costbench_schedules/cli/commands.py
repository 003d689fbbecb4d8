"""The commands for schedules that this package adds to `costbench`, and its stage of the pipeline."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import BackendName, Jobs, Params, Scheduler, backend_flags, run_stage
from costbench.extensions import CommandGroup, StageExtension
from costbench_schedules.cli.crop import COMMANDS as CROP
from costbench_schedules.cli.crop import Minutes, countdown, resumable
from costbench_schedules.cli.live import tune_schedule
from costbench_schedules.cli.tables import import_file, search_table
from costbench_schedules.section_file import SECTION, read_sections

if TYPE_CHECKING:
    from costbench_schedules.records.table import RecordedTable

Target = Annotated[str, typer.Option(help="`native`, `generic`, or a processor as LLVM's -mcpu names it.")]


def record_schedules(
    workloads: Annotated[
        list[str], typer.Argument(help="Workloads (`C6`, or `matmul:m=64,n=64,k=64`), in this order.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of tables; what is there is continued.")],
    target: Target = "native",
    limit: Annotated[int, typer.Option(help="Most configurations of a workload.", min=1, max=4000)] = 4000,
    minutes: Minutes = 0.0,
    passes: Annotated[int, typer.Option(help="How often all are measured; the fastest counts.", min=1)] = 1,
    rounds: Annotated[
        int, typer.Option(help="How often the fastest and 60 others are measured again afterwards.", min=1)
    ] = 1,
) -> None:
    """Measure sub-spaces of schedules completely on this machine. Needs the extra `cpu`.

    Can be stopped with Ctrl-C and continued with the same command: at most one batch is measured again. With
    more of `--passes` or `--rounds`, complete tables get those they lack: on a machine with slow spells, as
    virtual ones have, give one more when all tables have the last.

    Example: `costbench record-schedules C6 matmul-512 --out recorded --limit 1200`
    """
    from costbench_schedules.operators.networks import workload_name
    from costbench_schedules.operators.operators import WORKLOADS, parse_operator
    from costbench_schedules.records.recording import RecordingSpec, record
    from costbench_schedules.spaces.sub_spaces import recorded_space

    operators = [parse_operator(workload) for workload in workloads]
    left = countdown(minutes)
    for workload, operator in zip(workloads, operators, strict=True):
        if left() <= 0:
            return
        name = workload if workload in WORKLOADS else workload_name(operator)
        with resumable():
            spec = RecordingSpec(out, target, passes=passes, rounds=rounds, max_seconds=left())
            record(spec, name, recorded_space(operator, limit), _print_progress)


def _print_progress(table: RecordedTable) -> None:
    from costbench_schedules.records.agreement import agreement
    from costbench_schedules.records.table import AFTERWARDS, WHILE_RECORDING

    last_round = table.repeats[-1:, 3]
    repeated = agreement(table, AFTERWARDS if table.complete and last_round.any() else WHILE_RECORDING)
    tau = "-" if repeated.tau is None else f"{repeated.tau:.3f}"
    failed = int(table.failed.sum())
    typer.echo(
        f"{table.workload} {table.target}: {table.num_measured:,} of {len(table):,}, {failed} failed, "
        f"best {table.gflops.max():.1f} GFLOPS, measured again: tau {tau} of {repeated.pairs}, "
        f"runtime x{repeated.median_ratio:.3f}",
        err=True,
    )


def schedule_card(
    folder: Annotated[Path, typer.Argument(help="Folder of recorded tables.")],
    remarks: Annotated[str, typer.Option(help="What users should know, such as what ran beside.")] = "",
    check: Annotated[bool, typer.Option(help="Compare the tables with the card instead.")] = False,
) -> None:
    """Write `card.json` of recorded or tuning tables: machine, failures, noise, digests; or check them."""
    from costbench.errors import DataError
    from costbench_schedules.records.card import check_card, write_card

    if check and remarks:
        raise DataError("has no effect with --check", field="--remarks", expected="one of the two")
    if check:
        check_card(folder)
        return
    tables = write_card(folder, remarks)["tables"]
    assert isinstance(tables, dict)
    for name, facts in tables.items():
        tau = facts["afterwards" if "afterwards" in facts else "twice"]["tau"]
        agreed = f"tau {'-' if tau is None else f'{tau:.3f}'}"
        if "kernel" in facts:
            failed = sum(facts["failed"].values())
            typer.echo(
                f"{name}: {facts['configs']:,}, {failed:,} failed, best {facts['best_ns']:,} ns, {agreed}"
            )
            continue
        typer.echo(
            f"{name}: {facts['measured']:,} of {facts['configs']:,}, best {facts['best_gflops']} GFLOPS, "
            f"{agreed}, {'' if facts['trusted'] else 'not '}trusted"
        )


def schedule_noise(
    workload: Annotated[str, typer.Argument(help="A workload, or `matmul:m=64,n=64,k=64`.")] = "matmul-256",
    schedules: Annotated[int, typer.Option(help="How many different ones.", min=2)] = 16,
    rounds: Annotated[int, typer.Option(help="How often each is measured.", min=2)] = 3,
    target: Target = "native",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Say how far measurements on this machine can be trusted. Needs the extra `cpu`.

    Measures random schedules of a workload in several rounds and compares the rounds. A Kendall's tau near 1
    means that a ranking is the machine's and not the noise's; below 0.9, wait until the machine is idle.
    """
    import json
    from dataclasses import asdict

    from costbench.rng import stream
    from costbench.search.space import Seen
    from costbench_schedules.devices.device import CpuDevice
    from costbench_schedules.operators.operators import parse_operator
    from costbench_schedules.records.agreement import noise_report
    from costbench_schedules.spaces.sub_spaces import recorded_space

    space = recorded_space(parse_operator(workload))
    rows = space.draw(stream(0, "noise", workload), schedules, Seen())
    with CpuDevice(target) as device:
        device.check_target()
        report = asdict(noise_report(device, space, rows, rounds))
    if as_json:
        typer.echo(json.dumps(report, indent=1, sort_keys=True))
        return
    for name, value in report.items():
        typer.echo(f"{name.replace('_', ' ')}: {f'{value:.4f}' if isinstance(value, float) else value}")


class Form(StrEnum):
    """What a schedule is shown as."""

    LOOPS = "loops"
    CODE = "code"
    TRACE = "trace"


def show_schedule(
    workload: Annotated[str, typer.Argument(help="A workload, or `matmul:m=64,n=64,k=64`.")],
    number: Annotated[int, typer.Argument(help="Number of the configuration in the recorded sub-space.")],
    form: Annotated[
        Form, typer.Option("--as", help="Loops; TVM's code or trace need the extra.")
    ] = Form.LOOPS,
    limit: Annotated[int, typer.Option(help="Size of the sub-space.", min=1, max=4000)] = 4000,
) -> None:
    """Show one schedule: its choices and loops, or TVM's code, or a trace that TVM applies again."""
    import json

    from costbench_schedules.devices.process import require_tvm
    from costbench_schedules.spaces.nest import nest_of, nest_text
    from costbench_schedules.spaces.sub_spaces import recorded_schedule

    space, row = recorded_schedule(workload, number, limit)
    choices = space.choices(row)
    if form is Form.LOOPS:
        typer.echo("\n".join(f"# {name}: {value}" for name, value in choices.items()))
        typer.echo(nest_text(nest_of(space, row)))
        return
    require_tvm()
    from costbench_schedules.devices import tvm_adapter

    if form is Form.CODE:
        typer.echo(tvm_adapter.script(space.operator, choices))
    else:
        typer.echo(json.dumps(tvm_adapter.trace(space.operator, choices)))


def record_library(
    out: Annotated[Path, typer.Option(help="JSON file.")],
    workloads: Annotated[
        list[str] | None, typer.Argument(help="Workloads; C1 to C12 and the matmuls if left out.")
    ] = None,
) -> None:
    """Time the vendor library (torch with oneDNN, one thread) on workloads, as schedules are timed.

    Example: `costbench record-library C6 matmul-512 --out library.json`
    """
    from costbench_schedules.devices.library import LibraryTime, library_times, write_library_times
    from costbench_schedules.devices.timing import TimingSpec
    from costbench_schedules.operators.operators import WORKLOADS

    def report(name: str, library_time: LibraryTime) -> None:
        typer.echo(
            f"{name}: {library_time.gflops:.1f} GFLOPS ({library_time.way}, "
            f"spread {100 * library_time.spread:.1f}%)",
            err=True,
        )

    chosen = workloads or [name for name in WORKLOADS if name.startswith(("C", "matmul"))]
    timing = TimingSpec()
    write_library_times(out, library_times(chosen, timing, report=report), timing)


def import_schedules(
    source: Annotated[
        Path, typer.Argument(help="AutoTVM's log (JSON lines), or the folder of a MetaSchedule data base.")
    ],
    out: Annotated[Path, typer.Option(help="A new folder.")],
) -> None:
    """Import tuning records of others.

    Schedules that are in our spaces become logs as `costbench tune --task schedule` writes them; the others
    are kept with workload, runtime and the reason in `others.jsonl`.

    Example: `costbench import-schedules tuned.log --out imported`
    """
    from costbench_schedules.records.imported.importing import read_records, write_imported

    imported = write_imported(read_records(source), out, source.name)
    for path, count in imported.logs.items():
        typer.echo(f"{path}: {count:,} schedules")
    for reason, count in imported.others.items():
        typer.echo(f"others.jsonl: {count:,} records: {reason}")
    if imported.repeated:
        typer.echo(f"{imported.repeated:,} repeated schedules left out")


def schedules(
    context: typer.Context,
    params: Params = Path("params.yaml"),
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
) -> None:
    """Search recorded tables of schedules, and test models of them; parameters are in `schedules.yaml`.

    Finished work items are kept: after a kill, the next run computes what is missing.
    """
    if context.invoked_subcommand is not None:
        return
    from costbench_schedules.stage import run

    run_stage(lambda path: run(path, backend_flags(backend, scheduler, jobs)), params)


COMMANDS = CommandGroup(
    "Schedules on this machine's processor",
    (
        tune_schedule,
        record_schedules,
        schedule_card,
        schedule_noise,
        show_schedule,
        record_library,
        import_schedules,
        search_table,
        *CROP,
    ),
)
STAGE = StageExtension(
    schedules,
    "costbench_schedules.stage",
    read_sections,
    sections={SECTION: "costbench_schedules.stage:SchedulesSection"},
    commands={"import": import_file},
    results=(
        *("tables/rows.jsonl", "tables/curves.json", "tables/tables.json", "tables/wall_times.json"),
        *("networks/rows.jsonl", "networks/card.json", "estimated/rows.jsonl", "estimated/curves.json"),
        *("gpus/rows.jsonl", "gpus/curves.json", "gpus/tables.json"),
    ),
)
