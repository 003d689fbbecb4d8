"""The leaderboard: cards of entries in a folder, ranked, as tables, figures and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np

from costbench.errors import DataError
from costbench.metrics.ranking import count_pairs, tau_of
from costbench.reports.figures.canvas import PALETTE, drawing, legend_above, save
from costbench.reports.page import FIRST, PageFigure, Section, write_pages
from costbench.reports.rendering import write_tables
from costbench.reports.table import Column, Table, Value
from costbench_suite.card import Card, read_card
from costbench_suite.tasks import TASKS, VERSION, SuiteTask
from costbench_suite.versions import published

TITLES: Mapping[str, str] = {
    "ape_mean": "APE (%)",
    "tau_mean": "Kendall's τ",
    "mape_ge5us_mean": "MAPE from 5 µs (%)",
    "tau_ge5us_mean": "τ from 5 µs",
    "mape_lt5us_mean": "MAPE below 5 µs (%)",
    "tau_lt5us_mean": "τ below 5 µs",
    "top1_arithmetic_mean": "Top-1 slowdown (%)",
    "auc_mean": "Area above random search",
}
_DECIMALS = 3


def is_error(metric: str) -> bool:
    """Returns whether less of a metric is better; correlations and areas are the others."""
    return not metric.startswith(("tau", "auc"))


def read_cards(folder: Path) -> dict[str, tuple[Card, ...]]:
    """Returns the cards `TASK/*.json` of a folder, best first, by task.

    Raises:
        DataError: for a file that is no card, of another version, or in the folder of another task; for
            cards that cannot stand in one table; if there are none.
    """
    cards: dict[str, tuple[Card, ...]] = {}
    for task in TASKS.values():
        read: dict[Path, Card] = {}
        for path in sorted((folder / task.name).glob("*.json")):
            card = read_card(path)
            if (card.version, card.task) != (VERSION, task.name):
                problem = f"version {card.version}, task {card.task}"
                raise DataError(problem, where=path, expected=f"version {VERSION}, task {task.name}")
            missing = [name for name in task.metrics if name not in card.metrics]
            if missing:
                raise DataError("missing", where=path, field=f"metrics.{missing[0]}", expected="a mean")
            read[path] = card
        _check_together(read)
        if read:
            cards[task.name] = rank(list(read.values()))
    if not cards:
        raise DataError("no result cards", where=folder, expected="TASK/NAME.json of `costbench suite score`")
    return cards


def _check_together(cards: Mapping[Path, Card]) -> None:
    """Raises DataError if two cards of the same seed are of different data, or of entries of one name."""
    first_of_seed: dict[int, Card] = {}
    paths: dict[tuple[str, int], Path] = {}
    for path, card in cards.items():
        name, first = card.about.name, first_of_seed.setdefault(card.fresh, card)
        if first.data_digest != card.data_digest:
            problem = f"{first.about.name} and {name} were scored on different data"
            raise DataError(problem, where=path, expected="the same data")
        other = paths.setdefault((name, card.fresh), path)
        if other != path:
            problem = f"an entry {name!r} is in {other.name} as well"
            raise DataError(problem, where=path, field="about.name", expected="a name of its own")


def rank(cards: Sequence[Card]) -> tuple[Card, ...]:
    """Returns the cards of a task by its first metric, best first."""

    def key(card: Card) -> tuple[float, str]:
        metric = TASKS[card.task].metrics[0]
        value = card.metrics[metric].value
        return (value if is_error(metric) else -value, card.about.name)

    return tuple(sorted(cards, key=key))


def write_leaderboard(folder: Path, cards: Mapping[str, Sequence[Card]]) -> Path:
    """Writes `index.html`, `tables/` and `figures/`, and returns the page.

    Args:
        folder: folder of the page.
        cards: ranked cards by task.

    Raises:
        DataError: if a file cannot be written.
    """
    sections, tables = [], []
    for name, of_task in cards.items():
        task = TASKS[name]
        ranked = [card for card in of_task if not card.fresh]
        if not ranked:
            continue
        fresh = [card for card in of_task if card.fresh]
        table = leaderboard_table(task, ranked, fresh)
        tables.append(table)
        figure = draw_ranking(folder / "figures" / table.name, task, ranked, fresh)
        sections.append(_section(task, table, figure, ranked))
    lead = (
        f"Cost models of tensor programs, version {VERSION}: everyone is scored on the same data, splits and"
        " metrics. A program is predicted by a model that never saw its application."
    )
    write_tables(tables, folder / "tables")
    page, *_ = write_pages(
        folder, replace(FIRST, title="costbench-suite", lead=lead), tuple(sections), sortable=True
    )
    return page


def leaderboard_table(task: SuiteTask, ranked: Sequence[Card], fresh: Sequence[Card] = ()) -> Table:
    """Returns the table of a task's entries, in their order.

    Args:
        task: the task.
        ranked: cards of the suite's own data.
        fresh: cards of fresh test sets, of the same entries.
    """
    columns = [Column("entry", "Entry")]
    for metric in task.metrics:
        title = TITLES.get(metric, metric)
        columns += [
            Column(metric, title, decimals=_DECIMALS),
            Column(f"{metric}_low", "from", title, decimals=_DECIMALS),
            Column(f"{metric}_high", "to", title, decimals=_DECIMALS),
        ]
    seeds = sorted({card.fresh for card in fresh})
    first = TITLES.get(task.metrics[0], task.metrics[0])
    columns += [Column(f"fresh{s}", f"seed {s}", f"Fresh, {first}", decimals=_DECIMALS) for s in seeds]
    columns += [
        Column("estimate", "Estimate"),
        Column("us", "µs a prediction", decimals=1),
        Column("training_s", "Training (s)", count=True),
        Column("tuning", "Tuning"),
        Column("description", "Description"),
        Column("authors", "By"),
    ]
    again = {(card.about.name, card.fresh): card.metrics[task.metrics[0]].value for card in fresh}
    rows = tuple(_row(task, card, [again.get((card.about.name, seed)) for seed in seeds]) for card in ranked)
    agreement = [_agreement(task, ranked, again, seed) for seed in seeds]
    notes = (
        "From, to: 95% interval, the wider of those over programs and over applications.",
        "Estimate: whether the model reads the compiler's own estimate.",
        *_ceiling(task),
        *(note for note in agreement if note),
    )
    title = f"{task.title}: {task.predicts}"
    return Table(f"leaderboard_{task.name}", title, tuple(columns), rows, notes=notes)


def _ceiling(task: SuiteTask) -> tuple[str, ...]:
    """Returns what a second measurement of the same decisions scores, in words; empty where it is unknown."""
    entry = published().get(task.folder)
    values = (
        {} if entry is None else {name: entry.ceiling[name] for name in task.metrics if name in entry.ceiling}
    )
    listed = ", ".join(f"{TITLES[name]} {value:g}" for name, value in values.items())
    return (f"Ceiling, a second measurement in place of predictions: {listed}.",) if listed else ()


def _agreement(
    task: SuiteTask, ranked: Sequence[Card], again: Mapping[tuple[str, int], float], seed: int
) -> str:
    """Returns how far the order of entries holds on a fresh test set, in words; empty for too few entries."""
    pairs = [
        (card.metrics[task.metrics[0]].value, again[card.about.name, seed])
        for card in ranked
        if (card.about.name, seed) in again
    ]
    if len(pairs) < 2:
        return ""
    values = np.array(pairs)
    tau = tau_of(count_pairs(values[:, 0], values[:, 1]))
    return f"Fresh, seed {seed}: Kendall's τ with the order here {tau:.2f}, over {len(pairs)} entries."


def _row(task: SuiteTask, card: Card, fresh: Sequence[float | None]) -> tuple[Value, ...]:
    values: list[Value] = [card.about.name]
    for name in task.metrics:
        metric = card.metrics[name]
        values += [metric.value, metric.low, metric.high]
    about = card.about
    return (
        *values,
        *fresh,
        "reads" if about.knows_estimate else "–",
        card.us_per_prediction or None,
        about.training_s or None,
        about.tuning or "–",
        about.description or "–",
        about.authors or "–",
    )


def draw_ranking(path: Path, task: SuiteTask, ranked: Sequence[Card], fresh: Sequence[Card] = ()) -> Path:
    """Draws the first metric of each entry with its interval, best on top; returns the file for the page.

    Results on fresh test sets are marks in the same row. A line is where a second measurement of the same
    decisions is, where the data are published.
    """
    metric = task.metrics[0]
    values = np.array([[getattr(c.metrics[metric], end) for end in ("value", "low", "high")] for c in ranked])
    positions = {card.about.name: -float(number) for number, card in enumerate(ranked)}
    with drawing((7.0, 1.2 + 0.32 * len(ranked))) as (figure, ((axes,),)):
        error = np.abs(values[:, 1:].T - values[:, 0])
        heights = list(positions.values())
        axes.errorbar(values[:, 0], heights, xerr=error, fmt="o", color=PALETTE[0], capsize=2.5)
        for seed, colour in zip(sorted({card.fresh for card in fresh}), cycle(PALETTE[1:-1]), strict=False):
            again = [card for card in fresh if card.fresh == seed and card.about.name in positions]
            numbers = [card.metrics[metric].value for card in again]
            rows = [positions[card.about.name] for card in again]
            axes.plot(numbers, rows, "D", mfc="none", color=colour, label=f"fresh, seed {seed}")
        known = published().get(task.folder)
        if known is not None and metric in known.ceiling and ranked[0].is_of_version:
            label = "a second measurement"
            axes.axvline(known.ceiling[metric], color=PALETTE[-1], linestyle=":", label=label)
        axes.set_yticks(heights, list(positions))
        axes.set_xlabel(f"{TITLES.get(metric, metric)}, {'less' if is_error(metric) else 'more'} is better")
        if is_error(metric) and values[:, 0].min() > 0 and values[:, 2].max() > 20 * values[:, 0].min():
            axes.set_xscale("log")
        axes.grid(axis="x")
        if axes.get_legend_handles_labels()[1]:
            legend_above(figure, axes, max_columns=4)
        return save(figure, path)[0]


def _section(task: SuiteTask, table: Table, figure: Path, ranked: Sequence[Card]) -> Section:
    first = ranked[0]
    best = first.metrics[task.metrics[0]]
    title = TITLES.get(task.metrics[0], task.metrics[0])
    caption = f"{title} of each entry with its 95% interval, over {first.programs} programs of "
    caption += f"{first.applications} applications."
    alt = f"{first.about.name} is first with {best.value:.3g}."
    return Section(
        anchor=task.name,
        title=task.title,
        label=task.title,
        paragraphs=(f"To predict: {task.predicts}.", task.weaknesses),
        figures=(PageFigure(figure, alt, caption),),
        tables=(table,),
        page=FIRST,
    )
