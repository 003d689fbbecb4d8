"""Variants of the learned model beside lpm2021's tables 3 (inputs and loss) and 4 (networks), and our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costbench.metrics.intervals import CrossedDraws
from costbench.metrics.measures import Measure
from costbench.metrics.rows import MAIN
from costbench.params import load_section
from costbench.reports.baseline_comparison import Estimate, difference
from costbench.reports.claims.claim import Side
from costbench.reports.claims.evaluation import NOT_TRAINED_ENOUGH, Undertrained
from costbench.reports.described_table import described_table
from costbench.reports.papers.numbers import PaperAblation, VariantScores, ablation_of_paper
from costbench.reports.results import SPLIT_NAMES, Cell, Results, described, split_order, title_of
from costbench.reports.scores import matched, scores_of
from costbench.reports.table import Column, Table, Value
from costbench.reports.tables.training import is_curve, is_rate
from costbench.reports.tpugraphs.variants import is_of_paper
from costbench.reports.training_guard import MAX_RATIO, undertrained
from costbench.reports.training_runs import Budget, budget_note
from costbench.rng import stream
from costbench.tasks import KERNEL_TASKS, LEARNED, LearnedTask, labels_of

MODEL = "learned"
ABLATIONS = ("inputs", "networks")
EXTRA_INPUTS = ("rank_logistic",)
"""Rows of ours below those of the paper's table 3."""
_ORDER = (
    *(MAIN, "unbalanced", "no-product", "no-loops", "scale-25", "scale-50", "scale-100"),
    *("from-tpu_v2", "from-tpu_v3", "lpm2020-lstm", "neighbor-sampling"),
)
"""Other variants that come first; further ones with a label follow in the order of the parameter file."""
_FROM = "from-"
"""Beginning of variants of models that were trained for another chip."""
NO_LABELS: Mapping[str, str] = {}
_PRINTED = {"median": "median", "geometric_mean": "mean", "standard_deviation": "deviation"}
_HEADERS = {"median": "median", "geometric_mean": "mean", "standard_deviation": "std. dev."}


@dataclass(frozen=True)
class Place:
    """Where variants were tested."""

    split: str
    chip: str


@dataclass(frozen=True)
class _Row:
    """A variant, its label, and the printed scores of each task."""

    variant: str
    label: str
    printed: Mapping[str, VariantScores | None]


def ablation_tables(
    results: Results, budgets: Sequence[Budget] = (), labels: Mapping[str, str] = NO_LABELS
) -> tuple[Table, ...]:
    """For each split and chip with variants: tables 3 and 4 and the other variants, as far as they were run.

    Args:
        results: has the variants.
        budgets: of the training runs, for a note on each table.
        labels: names of variants for people, by name.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    papers = {name: ablation_of_paper(name) for name in ABLATIONS}
    known = {name: tuple(v.variant for v in papers[name].variants) for name in ABLATIONS}
    short = undertrained(results, budgets)
    tables = []
    for place in places(results):
        for name in ABLATIONS:
            paper = (
                papers[name] if (papers[name].split, papers[name].chip) == (place.split, place.chip) else None
            )
            rows = [
                _Row(v.variant, v.label, {"tile": v.tile, "fusion": v.fusion} if paper else {})
                for v in papers[name].variants
            ]
            if name == "inputs":
                rows += [_Row(variant, labels.get(variant, variant), {}) for variant in EXTRA_INPUTS]
            title = f"{_TITLES[name]}, {SPLIT_NAMES.get(place.split, place.split)}, {place.chip}"
            if paper is not None:
                title += f", beside {paper.table} of {paper.paper}"
            key = f"{papers[name].paper}_{papers[name].table.replace(' ', '').lower()}"
            named = (f"{key}_{place.split}_{place.chip}", title)
            tables.append(_finished(_table(results, place, rows, named, paper), place, budgets, short))
        ours = _others(results, place, {*known["inputs"], *known["networks"], *EXTRA_INPUTS}, labels)
        title = f"Other variants, {SPLIT_NAMES.get(place.split, place.split)}, {place.chip}"
        named = (f"variants_{place.split}_{place.chip}", title)
        tables.append(_finished(_table(results, place, ours, named, None), place, budgets, short))
    return tuple(table for table in tables if table.rows)


def _finished(table: Table, place: Place, budgets: Sequence[Budget], short: Undertrained) -> Table:
    return _noted(_flagged(table, place, short), place, budgets)


def _flagged(table: Table, place: Place, short: Undertrained) -> Table:
    """With a column for each task that says which rows were not trained enough, if any were not."""
    for task in _shown(table):
        own = {
            str(row[0]): short.get((task, Side(MODEL, str(row[0]), place.split, place.chip)))
            for row in table.rows
        }
        if not any(own.values()):
            continue
        seeds = [column.key for column in table.columns].index(f"{task}_seeds")
        columns = list(table.columns)
        columns.insert(seeds + 1, Column(f"{task}_training", "training", task))
        rows = []
        for row in table.rows:
            said = NOT_TRAINED_ENOUGH if own[str(row[0])] else ""
            rows.append((*row[: seeds + 1], said, *row[seeds + 1 :]))
        note = (
            f"{NOT_TRAINED_ENOUGH.capitalize()} ({task}): fewer samples than the main network saw, and an "
            f"error above {MAX_RATIO:g} times its; such rows decide no claim."
        )
        table = replace(table, columns=tuple(columns), rows=tuple(rows), notes=(*table.notes, note))
    return table


def _shown(table: Table) -> list[str]:
    """Returns the tasks that the table has columns of."""
    keys = {column.key for column in table.columns}
    return [task for task in LEARNED if f"{task}_seeds" in keys]


def _noted(table: Table, place: Place, budgets: Sequence[Budget]) -> Table:
    """With a note on what each row's training was given."""
    variants = {str(row[0]): str(row[0]) for row in table.rows}
    own = [one for one in budgets if (one.split, one.chip) == (place.split, place.chip)]
    # A model that was trained for another chip had the budget of the main one.
    notes = [budget_note(own, variants, task) for task in _shown(table)]
    return replace(table, notes=(*table.notes, *(note for note in notes if note)))


_TITLES = {"inputs": "Inputs and loss", "networks": "Graph network by reduction"}


def places(results: Results) -> tuple[Place, ...]:
    """Where variants were tested, in the order of cells."""
    found = (Place(cell.split, cell.chip) for cell in results.variants if MODEL in cell.seeds)
    return tuple(sorted(dict.fromkeys(found), key=lambda p: (split_order(p.split), p.split, p.chip)))


def _others(results: Results, place: Place, known: set[str], labels: Mapping[str, str]) -> list[_Row]:
    there = {
        cell.variant
        for cell in results.variants
        if Place(cell.split, cell.chip) == place
        and cell.variant not in known
        and not is_difference(cell.variant)
        and not is_of_paper(cell.variant)
        and not is_curve(cell.variant)
        and not is_rate(cell.variant)
    }
    if not there:
        return []
    known_labels = {MAIN: "main model", **labels}
    known_labels |= {v: f"trained for {v.removeprefix(_FROM)}" for v in there if v.startswith(_FROM)}
    order = dict.fromkeys((*_ORDER, *labels))
    labelled = [v for v in order if v in known_labels and (v in there or v == MAIN)]
    others = [_Row(v, _label(v, results.experiments.get(v)), {}) for v in sorted(there - set(labelled))]
    return [*(_Row(v, known_labels[v], {}) for v in labelled), *others]


def _label(variant: str, experiment: str | None) -> str:
    """Returns the name of a variant with that of its experiment, unless it has that already."""
    if experiment is None or variant.startswith(f"{experiment}."):
        return variant.replace(".", ": ", 1) if experiment else variant
    return f"{experiment}: {variant}"


def _table(
    results: Results,
    place: Place,
    rows: Sequence[_Row],
    named: tuple[str, str],
    paper: PaperAblation | None,
) -> Table:
    def cell_of(task: str, variant: str) -> Cell | None:
        found = results.cell(task, place.split, place.chip, variant)
        return found if found is not None and MODEL in found.seeds else None

    run = {row.variant: {task: cell_of(task, row.variant) for task in LEARNED} for row in rows}
    # Variants of whole programs are most of them in the tables of tpugraphs2023; main alone would be none.
    own = {task for row in rows for task in LEARNED if row.variant != MAIN and run[row.variant][task]}
    asked = [task for task in LEARNED if task in KERNEL_TASKS or task in own]
    kept = [row for row in rows if any(run[row.variant][task] for task in asked)]
    tasks = tuple(task for task in asked if any(run[row.variant][task] for row in kept))
    columns = [Column("variant", "Variant"), Column("label", "What it is")]
    for task in tasks:
        columns += _columns(task, place, rows, paper)
    filled = []
    for row in kept:
        values: list[Value] = [row.variant, row.label]
        for task in tasks:
            values += _ours(run[row.variant][task])
            values += [
                None if (scores := row.printed.get(task)) is None else getattr(scores, field)
                for field in _printed_fields(task, rows)
            ]
        filled.append(tuple(values))
    name, title = named
    return Table(name, title, tuple(columns), tuple(filled), 0, _notes(rows, run, tasks, paper))


def _printed_fields(task: str, rows: Sequence[_Row]) -> tuple[str, ...]:
    scores = [found for row in rows if (found := row.printed.get(task)) is not None]
    return tuple(f for f in _PRINTED.values() if any(getattr(s, f) is not None for s in scores))


def _columns(task: str, place: Place, rows: Sequence[_Row], paper: PaperAblation | None) -> list[Column]:
    error, tau = described(task, place.split).measures
    group = f"{error.title}, ours"
    columns = [Column(f"{task}_{p}", _HEADERS[k], group, error.decimals) for k, p in _PRINTED.items()]
    columns.append(Column(f"{task}_tau", "mean", tau.title, tau.decimals))
    columns.append(Column(f"{task}_runs", "over seeds", group, error.decimals))
    columns.append(Column(f"{task}_seeds", "seeds", task, count=True))
    if paper is not None:
        headers = {printed: _HEADERS[kind] for kind, printed in _PRINTED.items()}
        columns += [
            Column(f"paper_{task}_{field}", headers[field], f"{error.title}, {paper.paper}", error.decimals)
            for field in _printed_fields(task, rows)
        ]
    return columns


def _ours(cell: Cell | None) -> list[Value]:
    if cell is None:
        return [None] * (len(_PRINTED) + 3)
    error, tau = cell.described.measures
    values = cell.over_programs(MODEL, error.metric)
    averages: list[Value] = [error.average(kind, values) for kind in _PRINTED]
    runs = cell.deviation(MODEL, error)
    return [*averages, tau.mean(cell.over_programs(MODEL, tau.metric)), runs, len(cell.seeds[MODEL])]


def _notes(
    rows: Sequence[_Row],
    run: Mapping[str, Mapping[str, Cell | None]],
    tasks: Sequence[str],
    paper: PaperAblation | None,
) -> tuple[str, ...]:
    notes = [
        "Median, geometric mean and standard deviation of the error and mean of τ over test programs, each "
        "the mean over training seeds. Over seeds: standard deviation of the runs' geometric means."
    ]
    if paper is not None:
        notes.append(
            f"{paper.paper}: as printed; trained for millions of steps at widths of 512 to 1,024, and "
            "measured on real hardware with other programs."
        )
    counts = {len(cell.seeds[MODEL]) for of_tasks in run.values() for cell in of_tasks.values() if cell}
    if counts == {1}:
        notes.append("One training run each: what another seed would change is not in these numbers.")
    for task in tasks:
        absent = [row.variant for row in rows if not run[row.variant][task] and _asked(row, task, paper)]
        if absent:
            notes.append(f"Not run on the {task} task: {', '.join(absent)}.")
    return tuple(notes)


def _asked(row: _Row, task: str, paper: PaperAblation | None) -> bool:
    return row.variant not in EXTRA_INPUTS and (paper is None or row.printed.get(task) is not None)


def left_out(results: Results) -> tuple[str, ...]:
    """One sentence for each of lpm2021's tables 2, 3, 4, 8 and lpm2020's that no result row is there for.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    lines = []
    cells = {(cell.task, cell.split) for cell in results.cells if MODEL in cell.seeds}
    for split, table in (("random", "Table 2"), ("manual", "Table 8")):
        absent = [task for task in KERNEL_TASKS if (task, split) not in cells]
        if absent:
            lines.append(f"{table} of lpm2021: the {split} split was not run on {' and '.join(absent)}.")
    run = {cell.variant for cell in results.variants if MODEL in cell.seeds}
    for name in ABLATIONS:
        paper = ablation_of_paper(name)
        if not run & {v.variant for v in paper.variants}:
            names = ", ".join(v.variant for v in paper.variants)
            lines.append(f"{paper.table} of {paper.paper}: none of its variants was run ({names}).")
    for table, variant in (("Table 2", "lpm2020-lstm"), ("Table 3", "mse")):
        if variant not in run:
            lines.append(f"{table} of lpm2020: the variant {variant} was not run.")
    return tuple(lines)


PREFIX = "lpm2021-plus-"
BASE, BASE_VARIANT, OURS = "lpm2021", "lpm2021-base", "learned"
LINEAR = "lpm2021-linear"
"""The base with its features scaled as they are, the one thing of ours that the base has."""
_FILE = Path(__file__).parents[1] / "papers" / "differences.yaml"


@dataclass(frozen=True)
class Difference:
    """Something that our network has and lpm2021's has not.

    Attributes:
        name: of the variant, without `PREFIX`.
        tasks: where it exists.
        text: continues "learned has ...".
    """

    name: str
    tasks: tuple[LearnedTask, ...]
    text: str


@dataclass(frozen=True)
class Differences:
    """All of them, in the order of tables."""

    differences: tuple[Difference, ...]


def known_differences() -> tuple[Difference, ...]:
    """Returns how our network differs from lpm2021's. Raises: ParamsError for broken data of the package."""
    return load_section(_FILE, "differences", Differences).differences


def is_difference(variant: str) -> bool:
    """Returns whether a variant is a row of these tables: lpm2021's model, or that with one thing of ours."""
    return variant in (BASE_VARIANT, LINEAR) or variant.startswith(PREFIX)


def differences_tables(results: Results, seed: int, budgets: Sequence[Budget] = ()) -> tuple[Table, ...]:
    """Returns a table for each task, split and chip where differences were measured; none without rows.

    Args:
        results: has the variants and the base.
        seed: of the bootstrap.
        budgets: of the training runs, for a note.

    Raises:
        ParamsError: if the package's data are broken.
    """
    places: dict[tuple[str, str, str], list[str]] = {}
    for cell in results.variants:
        if is_difference(cell.variant) and OURS in cell.seeds:
            places.setdefault((cell.task, cell.split, cell.chip), []).append(cell.variant)
    tables = []
    for place, variants in places.items():
        base = _base(results, place)
        if base is not None:
            listed = sorted({*variants} - {BASE_VARIANT})
            tables.append(_differences_table(results, (place[0], base), listed, seed, budgets))
    return tuple(tables)


def _base(results: Results, place: tuple[str, str, str]) -> Side | None:
    """Returns what the variants of a place are compared with, None if it was not trained."""
    for side in (Side(OURS, BASE_VARIANT, *place[1:]), Side(BASE, MAIN, *place[1:])):
        cell = results.cell(*place, side.variant)
        if cell is not None and side.model in cell.seeds:
            return side
    return None


def _differences_table(
    results: Results, place: tuple[str, Side], variants: Sequence[str], seed: int, budgets: Sequence[Budget]
) -> Table:
    task, base = place
    error, tau = LEARNED[task].measures
    texts = {PREFIX + one.name: one.text for one in known_differences() if task in one.tasks}
    texts |= {
        PREFIX + "all": "all of these",
        LINEAR: "features scaled without a logarithm before",
    }
    listed = [variant for variant in texts if variant in variants]
    listed += sorted(set(variants) - set(listed))
    draws = CrossedDraws(stream(seed, "differences", f"{task}_{base.split}_{base.chip}"))
    compared = [
        (f"+ {texts.get(v, v.removeprefix(PREFIX))}", replace(base, model=OURS, variant=v)) for v in listed
    ]
    if base.variant == MAIN:
        ours = replace(base, model=OURS)
        compared.append(("learned: all of them, and its own training budget", ours))
    named = BASE if base.variant == MAIN else base.variant
    rows: list[tuple[Value, ...]] = [
        (named, f"{title_of(BASE)}: its inputs, loss and layers", *_means(results, task, base), *_NONE)
    ]
    for label, side in compared:
        means = _means(results, task, side)
        if means[0] is not None:
            effects = (_effect(results, (task, base), side, measure, draws) for measure in (error, tau))
            rows.append((side.variant, label, *means, *(value for one in effects for value in _plain(one))))
    note = budget_note(
        [one for one in budgets if (one.split, one.chip) == (base.split, base.chip)],
        {name: name for name in (*listed, named, *([MAIN] if base.variant == MAIN else []))},
        task,
    )
    return described_table(
        "differences",
        rows,
        name=f"differences_{task}_{base.split}_{base.chip}",
        notes=(note,),
        where=f"{labels_of(task).heading}, {SPLIT_NAMES.get(base.split, base.split)}, {base.chip}",
        error=error.title,
        error_key=error.short,
        tau=tau.title,
        tau_key=tau.short,
    )


_NONE: tuple[None, ...] = (None,) * 6


def _means(results: Results, task: str, side: Side) -> tuple[float | None, float | None, float | None, int]:
    cell = results.cell(task, side.split, side.chip, side.variant)
    if cell is None or side.model not in cell.seeds:
        return None, None, None, 0
    error, tau = (m.mean(cell.over_programs(side.model, m.metric)) for m in LEARNED[task].measures)
    return error, cell.deviation(side.model, LEARNED[task].measures[0]), tau, len(cell.seeds[side.model])


def _effect(
    results: Results, place: tuple[str, Side], side: Side, measure: Measure, draws: CrossedDraws
) -> Estimate | None:
    """Returns how much more of a measure a variant has than the base, over the programs of both."""
    task, base = place
    both = {one: scores_of(results.scores, task, measure.metric, one) for one in (side, base)}
    if not all(scores.programs for scores in both.values()):
        return None
    found = matched(both)
    mine, other = found[side], found[base]
    if not mine.programs:
        return None
    return difference(mine, other, draws, "geometric_mean" if measure.printed == "error" else "mean")


def _plain(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
