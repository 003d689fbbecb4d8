"""Commands about results: pack those of a profile for git, restore them, and show tables of the report."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import BackendName, Jobs, Params, Scheduler, backend_flags, print_table

if TYPE_CHECKING:
    from costbench.experiments.workspace import Workspace

app = typer.Typer(no_args_is_help=True, help="Results of a profile, as Parquet files that git keeps.")
Folder = Annotated[Path, typer.Argument(help="The archive, such as data/results/evidence.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Output folder of the stages, such as that of another clone; by default the profile's."
    ),
]


@app.command()
def pack(
    folder: Folder,
    params: Params = Path("params.yaml"),
    out: Out = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Leave out rows of groups of kernels, and points of figures.")
    ] = False,
    experiment: Annotated[
        list[str] | None,
        typer.Option(
            help="Pack this experiment and no other, beside all stages; a stage: no experiment; repeatable."
        ),
    ] = None,
) -> None:
    """Add what a profile has finished to an archive: metric rows, curves, searches, budgets; no weights.

    Evaluated experiments and the stages `split`, `features`, `sweep`, `autotune`, `schedules` are its parts.
    Those that are finished replace the archive's, others stay: what is computed on different days adds up.
    Where the archive has newer results of an experiment than this clone, name others with `--experiment`.

    Example: `costbench results pack data/results/evidence --params profiles/evidence/params.yaml`
    """
    from costbench.experiments import packing

    workspace = _workspace(params, out)
    changes = packing.pack(folder, workspace, compact=compact, experiments=experiment)
    size = sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
    typer.echo(f"{folder}: {len(changes.written)} parts packed, {len(changes.kept)} kept; {size:,} bytes")
    _echo_missing(folder, workspace)


@app.command()
def unpack(folder: Folder, params: Params = Path("params.yaml"), out: Out = None) -> None:
    """Restore the results of an archive below the output folder, to report on them and compute the rest.

    Finished results that are there stay. What the archive lacks stays missing, to be trained and evaluated.

    Example: `costbench results unpack data/results/evidence --params profiles/evidence/params.yaml`
    """
    from costbench.experiments import packing

    workspace = _workspace(params, out)
    changes = packing.unpack(folder, workspace)
    typer.echo(f"{workspace.out}: {len(changes.written)} parts restored, {len(changes.kept)} were there")
    _echo_missing(folder, workspace)


@app.command("list")
def list_parts(folder: Folder, params: Params = Path("params.yaml")) -> None:
    """List the parts of an archive, what they follow from, and which of the profile's parts it lacks.

    Example: `costbench results list data/results/evidence --params profiles/evidence/params.yaml`
    """
    from costbench.experiments.archive import FILES, read_archive, read_profile_manifest
    from costbench.experiments.packing import cells_with_seeds

    workspace = _workspace(params, None)
    manifest = read_profile_manifest(folder, workspace.name)
    digests = ("parameters", "samples", "code", "revision")
    headers = ("part", "cells", "rows", *digests)
    rows = []
    for name, part in read_archive(folder, manifest, [FILES]).items():
        entry, cells = part.entry, str(cells_with_seeds(part))
        made_of = (entry.params_digest, entry.data_digest, entry.code_digest, entry.git_revision)
        rows.append([name, cells, f"{entry.rows:,}", *(digest[:12] for digest in made_of)])
    print_table(headers, rows, title=f"Results of the profile {manifest.profile}", text=("part", *digests))
    _echo_missing(folder, workspace)


@app.command()
def check(  # noqa: PLR0913 (a command has its options)
    folder: Folder,
    params: Params = Path("params.yaml"),
    cells: Annotated[int, typer.Option(min=1, help="Cells that are drawn at random and repeated.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    tolerance: Annotated[
        float,
        typer.Option(min=0.0, help="Largest |repeated - packed| / max(1, |packed|) of a row; 0: equal bits."),
    ] = 1e-4,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder of the repeated cells; `check` in the profile's output folder."),
    ] = None,
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
) -> None:
    """Train and evaluate cells of an archive again, and compare their metric rows with the packed ones.

    The samples have to be there (`generate`, `split`, `features`). On the same kind of processor rows are
    equal to the last bit; a cell whose settings or samples have changed since it was packed is not repeated.
    Exits with 1 if a row differs by more than the tolerance, or if no cell could be compared.

    Example: `costbench results check data/results/headline --params profiles/headline/params.yaml --cells 10`
    """
    import os

    from costbench.cli.options import calm_threads
    from costbench.errors import DataError
    from costbench.execution.workers import start_logging
    from costbench.experiments.repeated_cells import draw_cells, repeat_cells

    calm_threads()
    start_logging()
    os.environ["COSTBENCH_TRACKING"] = "off"
    workspace = _workspace(params, None)
    drawn = draw_cells(folder, workspace.params, cells, seed)
    flags, work = backend_flags(backend, scheduler, jobs), work or workspace.stage("check")
    compared, equal, largest = 0, 0, 0.0
    for cell in repeat_cells(folder, params, drawn, work, flags):
        if not cell.rows:
            typer.echo(f"{cell.name}: not repeated, its settings or samples have changed since")
            continue
        of_all = f"{cell.equal:,} of {cell.rows:,} rows equal"
        typer.echo(f"{cell.name}: {of_all}, the largest difference is {cell.difference:.1e}")
        compared, equal = compared + 1, equal + (cell.equal == cell.rows)
        largest = max(largest, cell.difference)
    typer.echo(f"{equal} of {compared} cells to the same bits, the largest difference is {largest:.1e}")
    if not compared or largest > tolerance:
        problem = f"rows differ by {largest:.1e}" if compared else "no cell could be compared"
        raise DataError(problem, where=folder, expected=f"cells whose rows are within {tolerance:g}")


class Format(StrEnum):
    """Formats of tables."""

    csv = "csv"
    markdown = "markdown"
    latex = "latex"
    html = "html"


def table(
    name: Annotated[str | None, typer.Argument(help="Table; all are listed if left out.")] = None,
    form: Annotated[Format, typer.Option("--format", help="What to make of it.")] = Format.markdown,
    folder: Annotated[Path, typer.Option(help="Folder of the report, such as `reports/evidence`.")] = Path(
        "reports"
    ),
) -> None:
    """Print a table of the report as CSV, Markdown, LaTeX (with booktabs) or HTML.

    Example: `costbench table tile_folds_tpu_v3 --format latex > table2.tex`
    """
    from costbench.reports.rendering import RENDERERS, read_table, table_titles

    if name is None:
        for known, title in table_titles(folder / "tables").items():
            typer.echo(f"{known}: {title}")
        return
    typer.echo(RENDERERS[form](read_table(folder / "tables", name)), nl=False)


def _workspace(params: Path, out: Path | None) -> Workspace:
    from dataclasses import replace

    from costbench.experiments.parameter_file import load_params
    from costbench.experiments.workspace import load_workspace

    workspace = load_workspace(load_params(params))
    return workspace if out is None else replace(workspace, out=out.resolve())


def _echo_missing(folder: Path, workspace: Workspace) -> None:
    from costbench.experiments.archive import FILES, read_archive, read_profile_manifest
    from costbench.experiments.grid.experiment import load_experiment
    from costbench.experiments.packing import missing_cells, part_names

    parts = read_archive(folder, read_profile_manifest(folder, workspace.name), [FILES])
    missing = [name for name in part_names(workspace.params) if name not in parts]
    for name in part_names(workspace.params):
        experiment = name.partition("/")[2]
        if experiment and name in parts:
            lacking, cells = missing_cells(load_experiment(workspace.params, experiment), parts[name])
            if lacking:
                missing.append(f"{lacking} of {cells} cells of {name}")
    typer.echo(f"missing: {', '.join(missing)}" if missing else "complete")
