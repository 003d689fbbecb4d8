"""The command line. Every command calls one library function; what is heavy is imported when it is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.machine_searches import search_fusions
from costbench.cli.measure import measure
from costbench.cli.options import Json, Params, console, print_table
from costbench.cli.profiles import import_profile
from costbench.cli.programs import fidelity, from_jax, programs
from costbench.cli.project import init
from costbench.cli.results import app as results
from costbench.cli.results import table
from costbench.cli.serve import serve
from costbench.cli.stages import STAGES
from costbench.cli.tpugraphs import COMMANDS as TPUGRAPHS
from costbench.cli.tune import tune
from costbench.extensions import COMMANDS as COMMAND_GROUPS
from costbench.extensions import STAGES as STAGE_EXTENSIONS
from costbench.extensions import CommandGroup, StageExtension, load_extensions

if TYPE_CHECKING:
    from costbench.experiments.profiles import ProfileSizes

_PIPELINE = " → ".join(f"`{stage.__name__}`" for stage in STAGES)
app = typer.Typer(
    name="costbench",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=f"""
How well does a cost model predict, rank and steer a compiler's choices for real tensor programs?

**From programs to a table**, in the order of the pipeline (`dvc repro` runs all of it that is out of date):

{_PIPELINE}

**Your own programs**: put HLO dumps (`.hlo.pb`, `.pb`, `.hlo.pb.zst`, `.pb.gz`, or text: `.hlo`, `.txt`) into
`data/programs/user/`; they are listed by `costbench programs` and become rows of the table.

**TpuGraphs**: `costbench import-tpugraphs DIR` reads the public data set, `costbench score` has its metrics.

**Real measurements**: `costbench import-profile LOGDIR` says how well models predict the kernels in a profile
of your own machine, `costbench fidelity FILE.pb` how close the simulated chip is to recorded TPU runs.
`costbench measure FILE` runs a program on this processor, with XLA's fusions and with others.
""",
)

app.command()(init)
app.command()(tune)
app.command()(search_fusions)
app.command()(measure)
app.command()(from_jax)
app.command()(serve)
app.command()(table)
for _command in TPUGRAPHS:
    app.command(rich_help_panel="TpuGraphs")(_command)
for _stage in STAGES:
    app.command(rich_help_panel="Stages of the pipeline")(_stage)


@cache
def complete_app() -> typer.Typer:
    """Returns the application with the commands and stages of other installed packages.

    Raises:
        DataError: naming the entry point, for one that cannot be loaded.
    """
    for group in load_extensions(COMMAND_GROUPS, CommandGroup).values():
        for command in group.commands:
            app.command(rich_help_panel=group.title)(command)
        for name, commands in group.groups.items():
            assert isinstance(commands, typer.Typer), f"{name}: an application of Typer"
            app.add_typer(commands, name=name, rich_help_panel=group.title)
    for stage in load_extensions(STAGE_EXTENSIONS, StageExtension).values():
        if not stage.commands:
            app.command(rich_help_panel="Stages of the pipeline")(stage.command)
            continue
        nested = typer.Typer(invoke_without_command=True, callback=stage.command)
        for name, command in stage.commands.items():
            nested.command(name)(command)
        app.add_typer(nested, name=stage.command.__name__, rich_help_panel="Stages of the pipeline")
    return app


_runs = typer.Typer(no_args_is_help=True, help="Trained models, as MLflow has them.")
app.add_typer(_runs, name="runs")
app.add_typer(results, name="results")


@app.command()
def version() -> None:
    """Print the version of costbench."""
    from importlib import metadata

    typer.echo(metadata.version("costbench"))


@app.command()
def profile(
    name: Annotated[
        str | None, typer.Argument(help="`smoke`, `paper`, or `laptop` to go back; lists them if left out.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Root of the repository.")] = Path(),
    write: Annotated[
        Path | None, typer.Option(help="Write the profile's whole parameter file here, and set nothing.")
    ] = None,
) -> None:
    """Set the sizes of a profile in `params.yaml`, or list the profiles and their sizes.

    A profile's own file holds what differs from another profile; `costbench profile paper --write FILE`
    writes it with everything that it extends.

    From then on `dvc repro` and the commands below work at these sizes, in the same folders. The numbers that
    stood in `params.yaml` are kept, and come back with the name that they had.

    `costbench profile paper` sets those of the papers: networks 512 to 1,024 wide, three million steps of
    training each, up to 500,000 tile sizes a kernel. That asks for GPUs and a cluster.

    To run a profile beside the default one, in folders of its own: `dvc repro profiles/paper/dvc.yaml`.
    """
    from costbench.experiments.profiles import profiles, set_profile, sizes, write_whole

    if write is not None:
        write_whole(folder, name or "laptop", write)
        return
    before = sizes(folder / "params.yaml")
    if name is None:
        _print_sizes([before, *map(sizes, profiles(folder).values())])
        return
    params = set_profile(folder, name)
    after = sizes(params)
    _print_sizes([before, after] if before.name != after.name else [after])
    typer.echo(f"{params} has the sizes of {name}. Next: dvc repro. Back: costbench profile {before.name}")


def _print_sizes(profiles: Sequence[ProfileSizes]) -> None:
    rows = []
    for name, *numbers in map(astuple, profiles):
        ranges = (number if isinstance(number, tuple) else (number,) for number in numbers)
        rows.append([name, *(" to ".join(f"{n:,}" for n in ends) for ends in ranges)])
    headers = ("profile", "tile sizes", "fusions", "hidden", "steps", "runs", "steps in all", "trials")
    print_table(headers, rows)


@app.command()
def params(
    key: Annotated[
        str | None, typer.Argument(help="Dotted name, such as `train.tile.batch.kernels`; all if left out.")
    ] = None,
    file: Params = Path("params.yaml"),
    comment: Annotated[
        bool, typer.Option("--comment", help="Write the meanings beside the keys that have no comment.")
    ] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Write them in place of comments that are there, too.")
    ] = False,
) -> None:
    """Say what a key of a parameter file means: unit, type, default, and its value in the file.

    Example: `costbench params train.tile.batch.kernels --params profiles/smoke/params.yaml`
    """
    from costbench.artifacts import read_bytes, write_text
    from costbench.cli.parameter_help import find_key, keys, shown, value_of, with_comments
    from costbench.errors import DataError
    from costbench.params import load_yaml

    if comment or renew:
        if key is not None:
            option = "--comment" if comment else "--renew"
            raise DataError(f"has no effect with {option}", field="KEY", expected="to be left out")
        load_yaml(file)  # says what is wrong with one that is no parameter file
        write_text(file, with_comments(read_bytes(file).decode("utf-8"), renew=renew))
        return
    if key is None:
        for known in keys():
            typer.echo(f"{known.name}: {known.meaning}")
        return
    asked = find_key(key)
    typer.echo(f"{asked.name}\n  {asked.meaning}")
    rows = {"unit": asked.unit or "-", "type": asked.accepts, "default": shown(asked.default)}
    for name, text in (rows | {f"value in {file}": shown(value_of(file, key))}).items():
        typer.echo(f"  {name}: {text}")


app.command()(programs)
app.command()(fidelity)
app.command()(import_profile)


@_runs.command()
def best(  # noqa: PLR0913 - each is an option
    task: Annotated[str, typer.Option(help="`tile` or `fusion`.")],
    split: Annotated[str | None, typer.Option(help="`random` or `manual`.")] = None,
    chip: Annotated[str | None, typer.Option(help="A chip by name.")] = None,
    experiment: Annotated[str | None, typer.Option(help="Entry of section `experiments`.")] = None,
    profile: Annotated[str | None, typer.Option(help="`run.name` of a parameter file.")] = None,
    variant: Annotated[str | None, typer.Option(help="Variant of the experiment.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="`tau`, `ape` or `mape`, if models were chosen by another.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Runs to list.")] = 5,
    register: Annotated[
        bool, typer.Option("--register", help="Make the best one the champion in the model registry.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the best trained models by their validation metric, from the store MLFLOW_TRACKING_URI.

    Validation metrics compare within a split, chip and profile. With `--register`, the best becomes version
    `champion` of `costbench-tile-PROFILE` or `costbench-fusion-PROFILE`, and can be served (docs/serving.md):

    `mlflow models serve -m models:/costbench-tile-laptop@champion --env-manager local -p 5001`

    Example: `costbench runs best --task tile --split fold1 --chip tpu_v3 --json | jq -r '.[0].run_id'`
    """
    from costbench.experiments.tracking.queries import CellFilter, best_runs, runs_table, to_records
    from costbench.experiments.tracking.registry import register_champion
    from costbench.experiments.tracking.runs import tracking_uri

    cells = CellFilter(task, split, chip, experiment, profile, variant, metric)
    runs = best_runs(tracking_uri(), cells)
    if as_json:
        typer.echo(json.dumps(to_records(runs.head(limit)), indent=1, sort_keys=True))
    else:
        console().print(runs_table(runs.head(limit)))
        typer.echo("Folders of the models, in this order:")
        for path, is_there in runs.head(limit)[["path", "is_there"]].itertuples(index=False):
            typer.echo(os.path.relpath(path) if is_there else "no longer there")
    if register:
        made = register_champion(tracking_uri(), runs.iloc[0])
        typer.echo(f"{made.uri}: version {made.version}{'' if made.is_new else ', as before'}", err=True)


@_runs.command()
def pages(port: Annotated[int, typer.Option(help="Port of `mlflow ui`.")] = 5000) -> None:
    """Print how to look at the runs in a browser, with the addresses of the pages that list them.

    Example: `costbench runs pages --port 5001`
    """
    from costbench.experiments.tracking.queries import experiment_pages
    from costbench.experiments.tracking.runs import tracking_uri, without_password

    uri = tracking_uri()
    is_server = uri.startswith("http")
    server = without_password(uri).rstrip("/") if is_server else f"http://127.0.0.1:{port}"
    addresses = experiment_pages(uri, server)
    if not is_server:
        store = uri if uri == without_password(uri) else '"$MLFLOW_TRACKING_URI"'
        typer.echo(f"mlflow ui --backend-store-uri {store} --port {port}")
    for name, page in addresses.items():
        typer.echo(f"{name:<20} {page}")


def main() -> None:
    """Runs the command line; what the user can mend is one line on stderr and exit code 1, no traceback."""
    from costbench.errors import CostbenchError
    from costbench.experiments.project import with_project_hint
    from costbench.experiments.stages.entry import guarded

    def run() -> None:
        try:
            complete_app()()
        except CostbenchError as error:
            raise with_project_hint(error) from error

    code = guarded(run, "costbench")
    if code:
        raise SystemExit(code)
