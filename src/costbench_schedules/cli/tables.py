"""Commands for tuning tables: import them, and search them with strategies that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import Jobs, Json, backend_flags, console

if TYPE_CHECKING:
    import pandas as pd

    from costbench_schedules.experiments.table_scores import TableSearches
    from costbench_schedules.records.tuning_table import TuningTable

_SHOWN_AT = (10, 100, 500)
_ACROSS = {"trials_to_95_ratio": "trials to 95%", "trials_to_99_ratio": "trials to 99%", "auc": "area"}


def import_file(
    source: Annotated[
        Path,
        typer.Argument(
            help="A cache of Kernel Tuner, T4 or Parquet; or AutoTVM's log, or a folder of MetaSchedule.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder that is written to; new for logs of schedules.")],
    kernel: Annotated[str, typer.Option(help="Name of the kernel, if not that in the file.")] = "",
    device: Annotated[str, typer.Option(help="Name of the device, if not that in the file.")] = "",
) -> None:
    """Import measurements of others: tuning tables of kernels, or tuning records of schedules.

    A table becomes `KERNEL-DEVICE.parquet`, with two measurements of every configuration: one that searches
    see, one that their choices are scored by. Records become logs, as `costbench import-schedules` writes
    them.

    Example: `costbench schedules import convolution_A4000.json --out tables`
    """
    from dataclasses import replace

    from costbench.errors import DataError
    from costbench_schedules.cli.commands import import_schedules
    from costbench_schedules.records.imported.importing import importer_of
    from costbench_schedules.records.imported.parquet import PARQUET, write_parquet

    importer = importer_of(source)
    if importer.read_table is None:
        for option, name in (("--kernel", kernel), ("--device", device)):
            if name:
                raise DataError("names no logs of schedules", where=source, field=option, expected="a table")
        import_schedules(source, out)
        return
    table = importer.read_table(source)
    table = replace(table, kernel=kernel or table.kernel, device=device or table.device)
    path = out / f"{table.name.replace('/', '_')}{PARQUET}"
    write_parquet(path, table)
    failed = int(table.failed.sum())
    typer.echo(
        f"{path}: {len(table):,} configurations, {failed:,} failed, the best takes {table.best_ns:,.0f} ns"
    )
    _warn_once(table)


def search_table(  # noqa: PLR0913 (a command has its options)
    files: Annotated[
        list[Path], typer.Argument(help="Tuning tables: Parquet, caches of Kernel Tuner, T4, or our own.")
    ],
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="Strategies, or `module:function`; `random` and `genetic` if left out."),
    ] = None,
    trials: Annotated[int, typer.Option(help="Configurations that a search may measure.", min=1)] = 500,
    repeats: Annotated[int, typer.Option(help="Searches by each strategy.", min=1)] = 30,
    source: Annotated[
        list[Path] | None,
        typer.Option(help="Tables that strategies may learn from, of the same kernel on other devices."),
    ] = None,
    against: Annotated[
        str, typer.Option(help="Strategy whose trials are compared with; the first if left out.")
    ] = "",
    plot: Annotated[Path | None, typer.Option(help="Figure to write, without .svg and .png.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all searches.")] = 0,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Search tuning tables, and score every choice by a second measurement of it.

    A search sees the first measurement of what it tries; a configuration that failed costs a trial. Said are
    the expected trials until 95% and 99% of the best speed, the share of the best after some trials, and the
    area under the curve relative to random search (0; 1 finds the best at once), with 95% intervals over
    repeats, and over tables.

    Example: `costbench search-table tables/*.parquet --strategy random --strategy genetic --plot searches`
    """
    import json

    from costbench.errors import ChoiceError, DataError
    from costbench_schedules.experiments.replayed_tables import SearchPlan, search_tables
    from costbench_schedules.experiments.table_scores import score_rows
    from costbench_schedules.experiments.table_summary import over_tables, summarise
    from costbench_schedules.records.imported.importing import read_tuning_table
    from costbench_schedules.search.table_strategies import check_strategy

    names = list(dict.fromkeys(strategy or ["random", "genetic"]))
    for name in names:
        check_strategy(name)
    reference = against or names[0]
    if reference not in names:
        raise ChoiceError(f"--against {reference!r} is not searched with", expected=", ".join(names))
    tables = [read_tuning_table(path) for path in files]
    known: dict[str, Path] = {}
    for path, table in zip(files, tables, strict=True):
        if table.name in known:
            raise DataError(f"{table.name} again", where=path, expected=f"only {known[table.name]}")
        known[table.name] = path
        _warn_once(table)
    sources = _read_sources(source or (), dict(zip(files, tables, strict=True)), names)
    plan = SearchPlan(tuple(names), trials, repeats, seed)
    backend = backend_flags(None, None, jobs).resolve(1, Path())
    searches = search_tables(
        tables, plan, sources, backend, lambda name: typer.echo(f"costbench: {name}", err=True)
    )
    rows = score_rows(searches)
    summary, across = summarise(rows, seed), over_tables(rows, reference, seed)
    if plot is not None:
        _plot(searches, names, plot)
    if as_json:
        content = {
            "trials": trials,
            "repeats": repeats,
            "seed": seed,
            "against": reference,
            "tables": [_facts(path, table, trials) for path, table in zip(files, tables, strict=True)],
            "rows": _records(rows),
            "summary": _records(summary),
            "over_tables": _records(across),
        }
        typer.echo(json.dumps(content, indent=1, sort_keys=True, allow_nan=False))
        return
    for table in tables:
        _print_table(table, summary, names, trials)
    if len(tables) > 1:
        title = f"over {len(tables)} tables; trials as a multiple of those of {reference}"
        _print(across, title, names, _ACROSS)


def _read_sources(
    paths: Sequence[Path], tables: Mapping[Path, TuningTable], names: Sequence[str]
) -> list[TuningTable]:
    """Returns the tables that strategies learn from: none in vain, and none is missing."""
    from costbench.errors import DataError
    from costbench.execution.dotted import is_part
    from costbench_schedules.experiments.replayed_tables import related
    from costbench_schedules.records.imported.importing import read_tuning_table
    from costbench_schedules.search.table_strategies import TRANSFER

    sources = [read_tuning_table(path) for path in paths]
    for path, source in zip(paths, sources, strict=True):
        if not any(related(table, [source]) for table in tables.values()):
            expected = "the kernel of a searched table on another device"
            raise DataError(f"{source.name} is no help", where=path, field="--source", expected=expected)
    readers = [name for name in names if name in TRANSFER]
    if sources and not readers and not any(map(is_part, names)):
        expected = f"--strategy {' or '.join(sorted(TRANSFER))}"
        raise DataError("no strategy reads it", field="--source", expected=expected)
    for path, table in tables.items() if readers else ():
        if not related(table, sources):
            expected = f"--source with a table of {table.kernel} on another device"
            raise DataError(f"nothing that {readers[0]} begins with", where=path, expected=expected)
    return sources


def _warn_once(table: TuningTable) -> None:
    if not table.twice:
        typer.echo(
            f"costbench: {table.name}: not every configuration was measured twice; choices are scored by the"
            " same measurement, or an estimate",
            err=True,
        )


def _facts(path: Path, table: TuningTable, trials: int) -> dict[str, object]:
    from costbench_schedules.experiments.table_scores import SHARES, area_end
    from costbench_schedules.records.tuning_table import random_trials

    facts: dict[str, object] = {
        "file": str(path),
        "kernel": table.kernel,
        "device": table.device,
        "configurations": len(table),
        "failed": int(table.failed.sum()),
        "twice": table.twice,
        "best_ns": table.best_ns,
        "auc_until": area_end(table, trials),
    }
    return facts | {f"random_trials_to_{end}": random_trials(table, share) for end, share in SHARES.items()}


def _records(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Returns the rows of a frame; numbers that are not finite are null."""
    return [
        {
            str(name): None if isinstance(value, float) and not isfinite(value) else value
            for name, value in record.items()
        }
        for record in frame.to_dict("records")
    ]


def _plot(searches: Sequence[TableSearches], names: Sequence[str], stem: Path) -> None:
    import pandas as pd

    from costbench_schedules.reports.curves import write_tuning_curves

    points = ["trials", "median", "low", "high"]
    curves = pd.DataFrame([search.curve_points() for search in searches]).explode(points)
    for path in write_tuning_curves(curves, names, stem):
        typer.echo(str(path), err=True)


def _print_table(table: TuningTable, summary: pd.DataFrame, names: Sequence[str], trials: int) -> None:
    of_table = summary[(summary["kernel"] == table.kernel) & (summary["device"] == table.device)]
    metrics = {"trials_to_95": "trials to 95%", "trials_to_99": "trials to 99%", "auc": "area"}
    metrics |= {f"best_at_{count}": f"% after {count}" for count in _SHOWN_AT if count <= trials}
    title = f"{table.name}: {len(table):,} configurations, the best takes {table.best_ns:,.0f} ns"
    _print(of_table, title, names, metrics)


def _print(numbers: pd.DataFrame, title: str, names: Sequence[str], metrics: Mapping[str, str]) -> None:
    """Prints a line for each strategy, a column for each metric."""
    from rich.table import Table

    shown = Table(title=title)
    shown.add_column("strategy", no_wrap=True)
    for heading in metrics.values():
        shown.add_column(heading, justify="right", no_wrap=True)
    ends = numbers.set_index(["strategy", "metric"])[["value", "low", "high"]]
    cells = {key: _cell(str(key[1]), *row) for key, *row in ends.itertuples()}
    for name in names:
        shown.add_row(name, *(cells.get((name, metric), "") for metric in metrics))
    console().print(shown)


def _cell(metric: str, value: float, low: float, high: float) -> str:
    """Returns a number with its interval."""
    scale = 100.0 if metric.startswith("best_at") else 1.0
    digits = 2 if metric == "auc" or metric.endswith("ratio") else 0
    number, *ends = ("never" if end == inf else f"{scale * end:,.{digits}f}" for end in (value, low, high))
    return number if isnan(low) else f"{number} [{', '.join(ends)}]"
