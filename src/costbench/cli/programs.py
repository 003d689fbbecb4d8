"""Commands about programs: list them, lower JAX functions, compare the simulated chip with recorded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import Json, console, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from costbench.hardware.fidelity import FidelityReport, FidelitySpread, Spread
    from costbench.programs.manifest import ProgramEntry


def from_jax(
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="In the current folder, or installed.")
    ],
    shapes: Annotated[
        list[str] | None,
        typer.Argument(help="Shapes of its arguments, as XLA writes them: `f32[32,784]`, `s32[]`."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; `FUNCTION.hlo.pb` if left out.")
    ] = None,
) -> None:
    """Lower a JAX function for a TPU, without a TPU, into an HLO file that all other commands read.

    Arguments that are trees need no shapes: without any, FUNCTION is called and returns a pair of the
    function to lower and a tuple of its arguments, arrays or `jax.ShapeDtypeStruct`. Needs JAX, which the
    extra `jax` has.

    Examples:

    `costbench from-jax model:step "f32[32,784]" "s32[32]" --out step.hlo.pb`

    `costbench tune step.hlo.pb`
    """
    from costbench.artifacts import write_bytes
    from costbench.hlo.reader import module_from_bytes
    from costbench.programs.canonical import lower_function

    destination = out or Path(f"{function.rpartition(':')[2]}.hlo.pb")
    proto = lower_function(function, shapes or ())
    # What is written can be read: `tune` would refuse it otherwise.
    module = module_from_bytes(proto, where=function)
    write_bytes(destination, proto)
    typer.echo(f"{destination}: {module.num_instructions:,} instructions; next: costbench tune {destination}")


def programs(
    folder: Annotated[Path, typer.Option(help="The corpus: manifest.json and programs.")] = Path(
        "data/programs"
    ),
    as_json: Json = False,
) -> None:
    """List the programs of the corpus, and your own in its folder `user`.

    Example: `costbench programs --json | jq '.[].name'`
    """
    from dataclasses import asdict

    from costbench.programs.manifest import all_programs

    entries = all_programs(folder)
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in entries], indent=1, sort_keys=True))
    else:
        _print_programs(entries)


def fidelity(
    file: Annotated[Path, typer.Argument(help="Raw TpuGraphs tile-tuning file (TuningData protobuf).")],
    chip: Annotated[str, typer.Option(help="A chip by name, or a YAML file of your own.")] = "tpu_v3",
    leave_one_out: Annotated[
        bool,
        typer.Option("--leave-one-out", help="Also predict each kernel by a machine fitted to the others."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare the simulated chip with recorded runs of a real one.

    Prices every recorded (kernel, tile size) of FILE and reports, per kernel and overall: Kendall's tau,
    the slowdown of the tile that the simulator thinks best, MAPE, and tau within the fastest quarter; the
    overall figures also over an ensemble of machines that agree with the runs of the calibration, and over
    those of each formula.
    A kernel that cannot be priced is named on stderr, and the exit code is 1.

    Example: `costbench fidelity tile_calibration.pb --chip tpu_v3 --leave-one-out --json`
    """
    from costbench.experiments.evaluation.recorded_runs import evaluate_file
    from costbench.target import load_target

    report = evaluate_file(file, load_target(chip), with_held_out=leave_one_out)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=1, sort_keys=True))
    else:
        _print_fidelity(report.chip, f"Simulated {report.chip.chip} against recorded runs")
        if report.spread is not None:
            _print_spread(report.spread, report.by_rule)
        if report.held_out is not None:
            _print_fidelity(report.held_out, "Each kernel by a machine fitted to the others")
    for kernel in report.chip.unpriced:
        typer.echo(f"costbench: error: {file}: not priced: {kernel.reason}", err=True)
    if report.chip.unpriced:
        raise typer.Exit(1)


def _print_programs(entries: tuple[ProgramEntry, ...]) -> None:
    rows = []
    for entry in sorted(entries, key=lambda e: (e.application, e.name)):
        batch, count = str(entry.batch or ""), f"{entry.instructions:,}" if entry.instructions else ""
        rows.append([entry.application, entry.name, entry.step, batch, entry.dtype, entry.source, count])
    text = ("application", "program", "step", "dtype", "source")
    headers = (*text[:3], "batch", *text[3:], "instructions")
    title = f"{len(entries)} programs of {len({e.application for e in entries})} applications"
    print_table(headers, rows, title=title, text=text, whole=("program",))


def _print_spread(spread: FidelitySpread, by_rule: Mapping[str, Mapping[str, FidelitySpread]]) -> None:
    rows = []
    for name, of_metric, scale, end in (
        ("Kendall's τ", spread.kendall_tau, 1.0, ""),
        ("top-1 slowdown", spread.top1_slowdown, 100.0, "%"),
        ("MAPE", spread.mape, 1.0, "%"),
        ("τ, fastest quarter", spread.tau_fastest_quartile, 1.0, ""),
    ):
        figures = () if of_metric is None else (of_metric.median, of_metric.low, of_metric.high)
        rows.append([name, *(f"{scale * figure:.{1 if end else 3}f}{end}" for figure in figures)])
    title = f"The same over {spread.num_machines} machines that agree with the calibration runs"
    print_table(("overall", "median", "5%", "95%"), rows, title=title)
    medians = [
        [
            rule,
            choice,
            str(of_choice.num_machines),
            _median(of_choice.kendall_tau),
            _median(of_choice.top1_slowdown, 100.0, "%"),
            _median(of_choice.mape, 1.0, "%"),
            _median(of_choice.tau_fastest_quartile),
        ]
        for rule, choices in by_rule.items()
        for choice, of_choice in choices.items()
    ]
    headers = ("formula", "", "machines", *(row[0] for row in rows))
    title = "Medians over the machines that have a formula in common"
    print_table(headers, medians, title=title, text=headers[:2])


def _print_fidelity(report: FidelityReport, title: str) -> None:
    from rich.table import Table

    table = Table(title=title, show_footer=True)
    runs = sum(kernel.num_runs for kernel in report.kernels)
    table.add_column("kernel", footer="overall", no_wrap=True)
    table.add_column("runs", footer=str(runs), justify="right")
    table.add_column("Kendall's τ", footer=_number(report.kendall_tau), justify="right")
    table.add_column("top-1 slowdown", footer=f"{100 * report.top1_slowdown:.1f}%", justify="right")
    table.add_column("MAPE", footer=f"{report.mape:.1f}%", justify="right")
    table.add_column("τ, fastest quarter", footer=_number(report.tau_fastest_quartile), justify="right")
    for kernel in report.kernels:
        table.add_row(
            kernel.name,
            str(kernel.num_runs),
            _number(kernel.kendall_tau),
            f"{100 * kernel.top1_slowdown:.1f}%",
            f"{kernel.mape:.1f}%",
            _number(kernel.tau_fastest_quartile),
        )
    console().print(table)


def _median(spread: Spread | None, scale: float = 1.0, end: str = "") -> str:
    return "–" if spread is None else f"{scale * spread.median:.{1 if end else 3}f}{end}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
