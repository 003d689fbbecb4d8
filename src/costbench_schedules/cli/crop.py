"""Commands of the analytical model of schedules: describe a processor, explain a schedule's time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from costbench_schedules.crop.estimate import Breakdown
    from costbench_schedules.devices.instrumented.analysis import AnalysingMachine
    from costbench_schedules.llvm.features import ProgramFeatures
    from costbench_schedules.records.program_recording import DrawSpec
    from costbench_schedules.records.programs import DrawnPrograms

Networks = Annotated[list[str] | None, typer.Option(help="Networks by name; all of them if left out.")]
Minutes = Annotated[float, typer.Option(help="Stop after so long; 0 for no limit.", min=0)]
_SHOWN_BLOCKS = 5
_APART = 0.05
"""Spread above which a number of a description is named."""


def countdown(minutes: float) -> Callable[[], float]:
    """Returns a function that says how many seconds are left, infinitely many of 0 minutes."""
    stop = time.monotonic() + 60 * minutes if minutes else math.inf
    return lambda: stop - time.monotonic()


@contextmanager
def resumable() -> Iterator[None]:
    """Ends the command at Ctrl-C in the block, which keeps what it finishes."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("stopped; the same command continues", err=True)
        raise typer.Exit(INTERRUPTED) from None


def describe_cpu(
    out: Annotated[Path | None, typer.Option(help="YAML file to write; printed if left out.")] = None,
    name: Annotated[str, typer.Option(help="What to call the processor.")] = "",
    repeats: Annotated[int, typer.Option(help="Times that everything is measured.", min=1)] = 3,
) -> None:
    """Describe this machine's processor for the analytical model: caches, costs of operations, memory.

    Takes about a minute, on one core of an idle machine. Each number is the median over the
    repeats; `spread` has how far they differ, relative to it. What cannot be measured is assumed, and listed
    in `source`.

    Example: `costbench describe-cpu --out my_cpu.yaml`
    """
    from io import StringIO

    from ruamel.yaml import YAML

    from costbench.artifacts import write_text
    from costbench_schedules.devices.instrumented.description import as_mapping, describe, median_description

    descriptions = []
    for repeat in range(repeats):
        typer.echo(f"costbench: measuring everything, {repeat + 1} of {repeats}", err=True)
        descriptions.append(describe(name))
    description = median_description(descriptions)
    apart = {path: value for path, value in description.spread.items() if value > _APART}
    for path, value in sorted(apart.items(), key=lambda item: -item[1]):
        typer.echo(f"{path} differs by {100 * value:.0f}% between repeats", err=True)
    text = StringIO()
    YAML().dump(as_mapping(description), text)
    if out is None:
        typer.echo(text.getvalue(), nl=False)
    else:
        write_text(out, text.getvalue())


def explain(
    workload: Annotated[str, typer.Argument(help="A workload, or `matmul:m=64,n=64,k=64`.")],
    number: Annotated[int, typer.Argument(help="Number of the configuration in the recorded sub-space.")],
    processor: Annotated[
        list[str] | None, typer.Option(help="Processors by name or as .yaml; all that ship if left out.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of parallel loops.", min=1)] = 1,
    features: Annotated[
        Path | None, typer.Option(help="File of the program's features: read if it exists, else written.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Figure to write, without .svg and .png.")] = None,
) -> None:
    """Say why a schedule is slow: its predicted time on processors that are described, in parts that add up.

    Program features are taken from the LLVM IR that TVM builds (extra `cpu`), or from a file that was written
    before; no processor has to be there.

    Example: `costbench explain C6 17 --processor intel_xeon_gold_5220r --plot c6`
    """
    from costbench_schedules.crop.estimate import Estimator
    from costbench_schedules.devices.processor import available_processors, load_processor

    descriptions = [load_processor(name) for name in processor or available_processors()]
    estimators = [Estimator(description, threads) for description in descriptions]
    program_features = _features(workload, number, threads, features)
    bars: dict[str, dict[str, float]] = {}
    for position, estimator in enumerate(estimators, 1):
        parts, label = _parts(estimator.breakdown(program_features)), estimator.processor.name
        # Files may describe one processor twice.
        label = f"{label} ({position})" if label in bars else label
        bars[label] = parts
        typer.echo(f"{label}, {threads} threads: {sum(parts.values()):.1f} µs")
        total = max(sum(parts.values()), 1e-9)
        for part, value in parts.items():
            typer.echo(f"  {part:<10} {value:12.1f} µs {100 * value / total:6.1f}%")
        for block in estimator.blocks(program_features)[:_SHOWN_BLOCKS]:
            share, cycles = 100 * block.share, block.cycles
            typer.echo(f"  {share:5.1f}%  {block.executions:>11,} x {cycles:9.1f} cycles  {block.name}")
        part, speedup = largest_part(parts)
        advice = _ADVICE.get(part, _LESS_MEMORY).format(part=part)
        typer.echo(f"  change first: {part}, {speedup:.2f} times as fast at most without it: {advice}")
    if plot is not None:
        from costbench_schedules.reports.crop2024.figures import write_time_parts

        for path in write_time_parts(bars, f"{workload}, schedule {number}, {threads} threads", plot):
            typer.echo(str(path))


_LESS_MEMORY = "tile loops so that what is read again stays nearer than {part}"
_ADVICE = {
    "compute": "vectorise the innermost loop of the first block above, or give it independent sums",
    "branches": "unroll the innermost loops, or let their extents be multiples of the vector's",
    "imbalance": "divide the parallel loop into more parts than threads, of equal size",
}
"""What makes a part of the time smaller, by its name; the others are levels of memory."""


def largest_part(parts: Mapping[str, float]) -> tuple[str, float]:
    """Returns the largest part of a time and how many times as fast the program would be without it."""
    name = max(parts, key=lambda part: parts[part])
    total, rest = sum(parts.values()), sum(value for part, value in parts.items() if part != name)
    return name, total / rest if rest > 0.0 else float("inf")


def _parts(breakdown: Breakdown) -> dict[str, float]:
    """Returns the parts in microseconds."""
    parts = {
        "compute": breakdown.compute,
        **breakdown.memory,
        "branches": breakdown.branches,
        "imbalance": breakdown.imbalance,
    }
    return {name: value / 1e3 for name, value in parts.items()}


def _features(workload: str, number: int, threads: int, path: Path | None) -> ProgramFeatures:
    from dataclasses import replace

    from costbench.errors import DataError
    from costbench_schedules.llvm.features import ProgramFeatures
    from costbench_schedules.spaces.sub_spaces import recorded_schedule

    space, row = recorded_schedule(workload, number)
    subject = f"schedule {number} of {space.operator.text}"
    if path is not None and path.exists():
        program_features = ProgramFeatures.load(path)
        if program_features.subject not in ("", subject):
            expected = f"those of {subject}, or another file"
            raise DataError(f"features of {program_features.subject}", where=path, expected=expected)
        return program_features
    from costbench_schedules.devices.instrumented.analysis import Analyzer, kernel_of

    kernel = kernel_of(space.operator, space.choices(row))
    typer.echo("costbench: building the program and counting what its blocks run", err=True)
    with Analyzer((threads,)) as analyzer:
        program_features = replace(analyzer.features(kernel), subject=subject)
    if path is not None:
        program_features.save(path)
    return program_features


def record_networks(
    out: Annotated[Path, typer.Option(help="Folder of recordings; what is there is continued.")],
    network: Networks = None,
    random: Annotated[int, typer.Option(help="Schedules of an operator drawn at random.", min=1)] = 30,
    searched: Annotated[int, typer.Option(help="Schedules drawn by a search after them.", min=0)] = 30,
    minutes: Minutes = 0.0,
    curve: Annotated[
        list[str] | None, typer.Option(help="Operators already recorded: vary one tile of these instead.")
    ] = None,
) -> None:
    """Measure schedules of networks' operators and take their features, on this machine (extra `cpu`).

    Operators of few operations come first. Can be stopped with Ctrl-C and continued with the same command.

    Example: `costbench record-networks --out recorded --network BERT-tiny --random 10 --searched 10`
    """
    from functools import partial

    from costbench_schedules.operators.operators import parse_operator
    from costbench_schedules.records.program_recording import DrawSpec, record_curve, record_programs

    spec = DrawSpec(random, searched)
    if not curve:
        _record_each(partial(record_programs, spec), spec, network, out, minutes)
        return
    with _analysing_machine(spec) as machine:
        for text in curve:
            _print_programs(record_curve(spec, parse_operator(text), machine, out))


def _analysing_machine(spec: DrawSpec) -> AnalysingMachine:
    from costbench_schedules.devices.instrumented.analysis import AnalysingMachine
    from costbench_schedules.devices.process import Limits

    return AnalysingMachine(20.0, spec.timing, Limits(run_s=6.0))


def _record_each(
    record: Callable[..., DrawnPrograms], spec: DrawSpec, network: list[str] | None, out: Path, minutes: float
) -> None:
    """Calls `record` for each operator of networks, those of few operations first, until time is over."""
    from costbench_schedules.operators.networks import networks, operators_of

    left = countdown(minutes)
    with _analysing_machine(spec) as machine:
        for operator in operators_of(network or networks()):
            if left() <= 0:
                return
            with resumable():
                record(operator, machine, out, _print_programs)


def repeat_networks(
    recorded: Annotated[Path, typer.Argument(help="Folder of `estimate-networks`, of another machine.")],
    out: Annotated[Path, typer.Option(help="Folder of recordings; what is there is continued.")],
    network: Networks = None,
    random: Annotated[int, typer.Option(help="Programs of an operator drawn at random.", min=1)] = 30,
    searched: Annotated[int, typer.Option(help="Programs that the search drew there.", min=0)] = 30,
    minutes: Minutes = 0.0,
) -> None:
    """Measure and analyse programs on this machine that another one recorded (extra `cpu`).

    Models can then be tested on a processor other than the one that they know. Can be stopped with Ctrl-C and
    continued with the same command; `costbench estimate-networks` goes on from its folder.

    Example: `costbench repeat-networks data/networks --out here --random 12 --searched 12`
    """
    from functools import partial

    from costbench_schedules.records.program_recording import DrawSpec, record_same
    from costbench_schedules.records.programs import PROGRAMS, read_estimated

    spec = DrawSpec(random, searched)
    _record_each(partial(record_same, spec, read_estimated(recorded / PROGRAMS)), spec, network, out, minutes)


def analyse_tables(
    workload: Annotated[list[str], typer.Argument(help="Workloads of recorded tables, such as C6.")],
    out: Annotated[Path, typer.Option(help="Folder of features; what is there is continued.")],
    tables: Annotated[Path, typer.Option(help="Folder of recorded tables.")] = Path("data/schedules"),
    target: Annotated[str, typer.Option(help="That the tables were recorded for.")] = "native",
    most: Annotated[int, typer.Option(help="Programs of a table; 0 for all.", min=0)] = 0,
    minutes: Minutes = 0.0,
) -> None:
    """Take features of the programs of recorded tables (extra `cpu`). Nothing is measured.

    They are built for the processor of the table and need not run fast here. Can be stopped with Ctrl-C and
    continued with the same command; `costbench estimate-networks` makes estimates of them.

    Example: `costbench analyse-tables C6 --out analysed --most 300`
    """
    from costbench.errors import choose
    from costbench_schedules.devices.instrumented.analysis import AnalysingMachine
    from costbench_schedules.records.program_recording import analyse_table
    from costbench_schedules.records.table import read_tables

    recorded = {table.workload: table for table in read_tables(tables / target)}
    chosen = [choose(recorded, name, "recorded table") for name in workload]
    left = countdown(minutes)

    def on_batch(programs: DrawnPrograms) -> bool:
        _print_programs(programs)
        return left() > 0

    with AnalysingMachine(seconds=60.0) as machine:
        for table in chosen:
            if left() <= 0:
                return
            with resumable():
                analyse_table(table, machine, out, most, on_batch)


def _print_programs(programs: DrawnPrograms) -> None:
    from costbench_schedules.operators.networks import workload_name

    runtime = programs.columns["native_ns"]
    with_features = sum(bool(content) for content in programs.features)
    rate = programs.operator.flops / max(1, runtime[runtime > 0].min(initial=1 << 62))
    typer.echo(
        f"{time.strftime('%H:%M:%S')} {workload_name(programs.operator)}: {len(programs)} programs, "
        f"{with_features} with features, best {rate:.1f} GFLOPS",
        err=True,
    )


def estimate_networks(
    recorded: Annotated[Path, typer.Argument(help="Folder of `record-networks`.")],
    out: Annotated[Path, typer.Argument(help="Folder to write: programs, a sample of features, card.")],
    processor: Annotated[str, typer.Option(help="That was measured on, by name or as .yaml.")],
    remarks: Annotated[str, typer.Option(help="What users should know, such as what ran beside.")] = "",
) -> None:
    """Turn recorded programs of networks into the small files that the evaluation reads. Needs no compiler.

    Example: `costbench estimate-networks recorded data/networks --processor amd_epyc_zen4`
    """
    from costbench_schedules.devices.processor import load_processor
    from costbench_schedules.records.estimation import estimate_folder

    programs = estimate_folder(recorded, out, load_processor(processor), remarks)
    analysed = int(programs.columns["analysed"].sum())
    typer.echo(f"{len(programs):,} programs of {len(programs.operators)} operators, {analysed:,} analysed")


COMMANDS = (describe_cpu, explain, record_networks, repeat_networks, analyse_tables, estimate_networks)
