"""The commands `costbench suite`: data, scores of predictions and models, the leaderboard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import Params, announce_compiling, calm_threads, print_table
from costbench.errors import DataError, choose
from costbench.extensions import CommandGroup

if TYPE_CHECKING:
    from costbench_suite.card import About, Card
    from costbench_suite.predictions import Predictions
    from costbench_suite.searches import Searches
    from costbench_suite.task_data import TaskData

app = typer.Typer(
    no_args_is_help=True,
    help="""
Anyone's cost model, scored on fixed, versioned data.

`costbench suite data --task tile --out suite` writes the data, `costbench suite score predictions.parquet
--task tile --name mine` scores predictions made in any language, `--model mymodel:MyModel` a class of Python,
and `costbench suite leaderboard` puts all result cards into one page.
""",
)
COMMANDS = CommandGroup("Benchmark suite", (), {"suite": app})

_TASKS = "`tile`, `fusion`, `fusion_xla_cpu`, `layout`, `gpu`, `gpu_search` or `schedules`"
Task = Annotated[str, typer.Option(help=f"{_TASKS}.")]


def _folder(text: str) -> Path:
    """Returns a path; an empty text would be the current folder. Raises: DataError, for one."""
    if not text:
        raise DataError("names nothing", field="--data", expected="a folder of `costbench suite data`")
    return Path(text)


Data = Annotated[
    Path,
    typer.Option(
        "--data", parser=_folder, metavar="<path>", help="Folder that `costbench suite data` wrote."
    ),
]
Entries = Annotated[Path, typer.Option(help="Folder of result cards, `TASK/NAME.json`.")]
Work = Annotated[
    Path,
    typer.Option(
        help="Folder of intermediate results of `costbench suite data`, which later runs go on from."
    ),
]
_DATA = Path("suite")
_WORK = Path("out/suite")
_ENTRIES = Path("leaderboard")


@app.command()
def data(
    task: Annotated[
        list[str] | None,
        typer.Option(help=f"{_TASKS}, several times for several; all of them if left out."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder; each task has its own in it.")] = _DATA,
    work: Work = _WORK,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    fresh: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed of a fresh test set: other decisions, on another machine of the chip's ensemble.",
        ),
    ] = 0,
) -> None:
    """Make the data of the suite: Parquet files, a README and Croissant metadata for each task.

    Everything is made from programs and records that come with costbench, in minutes, and is the same for
    everyone, value by value: what differs from the published version is an error. A fresh test set shows how
    an entry does on data that nobody could tune it to; machines that exist have none.

    Examples:

    `costbench suite data --task tile --out suite`

    `costbench suite data --task tile --fresh 7 --out suite-fresh7 --work out/suite-fresh7`
    """
    from costbench_suite.data import make_data
    from costbench_suite.tasks import TASKS, VERSION
    from costbench_suite.versions import differing_tables, unpublished

    wanted = task or [known.name for known in TASKS.values() if known.fresh or not fresh]
    names = list(dict.fromkeys(choose(TASKS, name, "task of the suite").folder for name in wanted))
    recorded = [name for name in names if fresh and not TASKS[name].fresh]
    if recorded:
        problem = (
            f"no fresh test set of {', '.join(recorded)}: measured on a machine that exists, once and for all"
        )
        expected = "a task of simulated machines: " + ", ".join(t.name for t in TASKS.values() if t.fresh)
        raise DataError(problem, field="--task", expected=expected)
    calm_threads()
    announce_compiling()
    start = time.monotonic()

    def say(text: str) -> None:
        typer.echo(f"costbench: {text}", err=True)

    differing: dict[str, tuple[str, ...]] = {}
    for made in make_data(out, names, work, say, jobs, fresh):
        typer.echo(f"{made.folder}: {made.size:,} bytes")
        for table, digest in made.digests.items():
            typer.echo(f"  {table}.parquet  {digest[:16]}")
        if fresh:
            continue
        if made.task.folder in unpublished():
            say(f"{made.folder}: not published yet, its data may still change")
        elif tables := differing_tables(made.task, made.digests):
            differing[str(made.folder)] = tables
    typer.echo(f"{time.monotonic() - start:.0f} s")
    if differing:
        problem = "; ".join(f"{folder}: {', '.join(tables)}" for folder, tables in differing.items())
        expected = (
            f"the values of version {VERSION}; scores on these data are not comparable with the leaderboard"
        )
        raise DataError("other values than published", where=problem, expected=expected)


@app.command()
def score(  # noqa: PLR0913 (a command has its options)
    task: Task,
    predictions: Annotated[
        Path | None, typer.Argument(help="Parquet file: id, decision, cost, and maybe seed.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Instead of a file: `module:Class`, fitted to and asked in each fold.")
    ] = None,
    folder: Data = _DATA,
    about: Annotated[
        Path | None, typer.Option(help="YAML file with what you say of the entry: name, authors, link, ...")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the entry, instead of a file `--about`.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Result card to write; by default leaderboard/TASK/NAME.json.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Also write the predictions of `--model` to this file.")
    ] = None,
    entries: Entries = _ENTRIES,
) -> None:
    """Score predictions, write their result card, and say where they stand among the entries.

    Examples:

    `costbench suite score predictions.parquet --task tile --name "my trees"`

    `costbench suite score --model mymodel:MyModel --task fusion --about about.yaml`
    """
    from costbench_suite.card import card_path, make_card, read_card, write_card
    from costbench_suite.predictions import Predictions, write_predictions
    from costbench_suite.scoring import score as score_entry
    from costbench_suite.searches import write_searches
    from costbench_suite.task_data import TaskData

    calm_threads()
    described = _about(about, name)
    task_data = TaskData(folder, task)
    if predictions is not None and model is not None:
        raise DataError("two entries", field="--model", expected="either a file or --model module:Class")
    path = out or card_path(entries, task, described.name, task_data.facts.fresh)
    if out is None and path.is_file() and (other := read_card(path).about.name) != described.name:
        raise DataError(f"is the card of {other!r}", where=path, expected="another name, or --out FILE")
    entry = _entry(predictions, model, task_data)
    if write is not None:
        if isinstance(entry, Predictions):
            write_predictions(write, entry, task_data)
        else:
            write_searches(write, entry)
    card = make_card(task_data, described, entry, score_entry(task_data, entry))
    write_card(path, card)
    _print_card(card)
    if not card.is_of_version:
        what = f"a fresh test set, seed {card.fresh}" if card.fresh else "other data than the suite's"
        typer.echo(f"of {what}")
    _print_rank(card, entries)
    typer.echo(f"wrote {path}")


@app.command()
def predict(
    experiment: Annotated[str, typer.Argument(help="Entry of section `experiments`, trained.")],
    task: Task,
    folder: Data = _DATA,
    params: Params = Path("profiles/suite/params.yaml"),
    out: Annotated[Path, typer.Option(help="Folder of the predictions, a file for each model.")] = Path(
        "predictions"
    ),
) -> None:
    """Write the predictions of all models that an experiment of costbench has trained on the suite's data.

    Example: `costbench suite predict folds-tile --task tile --params profiles/suite/params.yaml`
    """
    from costbench_suite.card import file_name
    from costbench_suite.predictions import write_predictions
    from costbench_suite.task_data import TaskData
    from costbench_suite.trained_models import predict_experiment

    calm_threads()
    task_data = TaskData(folder, task)
    for name, costs in predict_experiment(params, experiment, task_data).items():
        path = out / f"{file_name(name)}.parquet"
        write_predictions(path, costs, task_data)
        typer.echo(f"wrote {path}")


@app.command()
def architectures(
    task: Task,
    folder: Data = _DATA,
    work: Work = _WORK,
    params: Annotated[
        Path | None, typer.Option(help="Parameter file; by default the one that the task's data are made by.")
    ] = None,
    entries: Entries = _ENTRIES,
    only: Annotated[
        list[str] | None, typer.Option(help="Architecture, or `baselines`; all of them if left out.")
    ] = None,
) -> None:
    """Tune, train and score all architectures of the profile and the baselines, each with the same budget.

    Architectures are the variants of `architectures-tile` or `architectures-fusion`, experiments of the
    suite's profiles. What is finished is kept, so a run that was ended goes on where it was. On a fresh test
    set they have the hyper-parameters that were chosen on the suite's own data.

    Example: `costbench suite architectures --task tile --only gps`
    """
    from costbench_suite.architectures import Architectures
    from costbench_suite.task_data import TaskData

    calm_threads()

    def say(text: str) -> None:
        typer.echo(f"costbench: {text}", err=True)

    Architectures(params, TaskData(folder, task), work, entries, say).enter(only or ())


@app.command()
def check(
    card: Annotated[Path, typer.Argument(help="Result card.")],
    predictions: Annotated[
        Path | None, typer.Argument(help="Its predictions; without them the code of the card is run.")
    ] = None,
    folder: Data = _DATA,
) -> None:
    """Score an entry again and compare with its card: exit code 1 where a number of it differs.

    Example: `costbench suite check leaderboard/tile/my-trees.json predictions.parquet`
    """
    from costbench_suite.card import differing_values, make_card, read_card
    from costbench_suite.scoring import score as score_entry
    from costbench_suite.task_data import TaskData
    from costbench_suite.versions import is_same_data

    calm_threads()
    stated = read_card(card)
    task_data = TaskData(folder, stated.task)
    if not is_same_data(task_data.task.folder, stated.data_digest, task_data.facts.digest):
        expected = f"{task_data.facts.digest[:16]}..., that of {task_data.folder}"
        raise DataError("was scored on other data", where=card, field="data_digest", expected=expected)
    entry = _entry(predictions, stated.about.code or None, task_data)
    again = make_card(task_data, stated.about, entry, score_entry(task_data, entry))
    if differ := differing_values(stated, again):
        values = ", ".join(f"{name} {value}" for name, value in list(differ.items())[:4])
        raise DataError(f"{len(differ)} numbers differ: {values}", where=card, expected="those of the card")
    same = "the same predictions" if entry.digest == stated.digest else "other predictions"
    typer.echo(f"{card}: {len(stated.numbers)} numbers as stated, from {same}")


@app.command()
def leaderboard(
    entries: Entries = _ENTRIES,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the page; that of the cards if left out.")
    ] = None,
) -> None:
    """Render the cards of all entries as one page with sortable tables and a figure for each task.

    Example: `costbench suite leaderboard --entries leaderboard --out page`
    """
    from costbench_suite.leaderboard import read_cards, write_leaderboard

    cards = read_cards(entries)
    page = write_leaderboard(entries if out is None else out, cards)
    for task, of_task in cards.items():
        ranked = [card for card in of_task if not card.fresh]
        first = f", first {ranked[0].about.name}" if ranked else ""
        typer.echo(
            f"{task}: {len(ranked)} entries{first}, {len(of_task) - len(ranked)} results on fresh test sets"
        )
    typer.echo(f"wrote {page}")


def _about(path: Path | None, name: str | None) -> About:
    from costbench_suite.card import About, read_about

    if (path is None) == (name is None):
        problem = "the entry has no name" if path is None else "is given beside --about, which has a name"
        raise DataError(problem, field="--name", expected="either --name or --about FILE")
    if path is not None:
        return read_about(path)
    assert name is not None
    try:
        return About(name)
    except ValueError as error:
        raise DataError(str(error), field="--name") from error


def _entry(path: Path | None, code: str | None, task_data: TaskData) -> Predictions | Searches:
    from costbench_suite.predictions import read_predictions, run_model
    from costbench_suite.searches import read_searches, run_strategy

    searches = task_data.task.searches
    if path is not None:
        return read_searches(path, task_data) if searches else read_predictions(path, task_data)
    if code is None:
        expected = "either a file of predictions or --model module:Class"
        raise DataError("nothing to score", field="predictions", expected=expected)
    return run_strategy(code, task_data) if searches else run_model(code, task_data)


def _print_card(card: Card) -> None:
    rows = [
        [name, f"{metric.value:.4g}", f"{metric.low:.4g} to {metric.high:.4g}"]
        for name, metric in card.metrics.items()
    ]
    title = f"{card.about.name}, {card.task}: {card.programs} programs, {card.applications} applications"
    print_table(("metric", "mean", "95% interval"), rows, title=title)


def _print_rank(card: Card, entries: Path) -> None:
    from costbench_suite.leaderboard import rank, read_cards

    try:
        known = read_cards(entries).get(card.task, ())
        others = [
            other for other in known if other.fresh == card.fresh and other.about.name != card.about.name
        ]
    except DataError:
        return
    ranked = rank([*others, card])
    typer.echo(f"{ranked.index(card) + 1} of {len(ranked)} entries")
