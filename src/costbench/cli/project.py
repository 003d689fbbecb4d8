"""`costbench init`: a project of one's own, beyond a checkout of costbench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from costbench.experiments.project import ProjectDifferences

_HEADINGS = {
    "missing": "not in the project",
    "outdated": "other in the package, not edited here",
    "conflicting": "other in the package, and edited here",
    "edited": "edited here",
    "retired": "no longer in the package",
}


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project.")] = Path(),
    check: Annotated[
        bool,
        typer.Option("--check", help="Say how the files differ from those of the installed version."),
    ] = False,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="After an upgrade: replace files that were not edited; beside others write `FILE.new`.",
        ),
    ] = False,
    add: Annotated[
        bool, typer.Option("--add", help="Make a folder a project that has other files already.")
    ] = False,
    git: Annotated[bool, typer.Option(help="Make the project a git repository, unless it is in one.")] = True,
) -> None:
    """Make a project: parameters, pipeline, programs and examples, in which `dvc repro` runs.

    Nothing is ever overwritten: in a project, files that are missing are added. The project becomes a
    repository of git and DVC where it is none.

    With `--check` the exit code is 1 if the installed version of costbench has other files.

    Example: `costbench init study && cd study && dvc repro profiles/smoke/dvc.yaml`
    """
    from costbench.experiments.project import (
        NEW_SUFFIX,
        compare_project,
        make_project,
        start_version_control,
        update_project,
    )

    if check or update:
        differences = update_project(folder) if update else compare_project(folder)
        _print_differences(differences)
        if update and differences.conflicting:
            typer.echo(f"merge by hand: {', '.join(name + NEW_SUFFIX for name in differences.conflicting)}")
        if not update and not differences.is_current:
            raise typer.Exit(1)
        return
    written = make_project(folder, add)
    started = start_version_control(folder, with_git=git)
    typer.echo(f"{folder}: {len(written)} files written" + "".join(f", {name} init" for name in started))
    if written:
        typer.echo(f"next: cd {folder} && dvc repro profiles/smoke/dvc.yaml   (README.md says more)")


def _print_differences(differences: ProjectDifferences) -> None:
    typer.echo(f"made by costbench {differences.made_by}; installed is {differences.installed}")
    for kind, heading in _HEADINGS.items():
        for name in getattr(differences, kind):
            typer.echo(f"{heading}: {name}")
