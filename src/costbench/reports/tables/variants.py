"""Variants of the learned model beside lpm2021's tables 3 (inputs and loss) and 4 (networks), and our own.

`differences_tables` says what each difference between our network and lpm2021's is worth, measured one at a
time. Their base is `lpm2021-base`: the paper's inputs, loss and layers, and nothing of ours, at the budget of
the variants. Each variant `lpm2021-plus-<name>` adds one thing that the model `learned` has and the paper's
has not, `lpm2021-plus-all` everything. Without `lpm2021-base` the base is the model `lpm2021` of the main
experiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from costbench.metrics.intervals import CrossedDraws
from costbench.metrics.rows import MAIN
from costbench.params import load_section
from costbench.reports.baseline_comparison import estimate_difference
from costbench.reports.claims.claim import Side
from costbench.reports.claims.evaluation import NOT_TRAINED_ENOUGH, Undertrained
from costbench.reports.declarations import (
    ColumnDeclaration,
    RowDeclaration,
    Statistic,
    TableDeclaration,
    fill_table,
    make_table,
)
from costbench.reports.frame import select
from costbench.reports.papers.printed import FOLDER, PrintedTable, printed_table
from costbench.reports.results import ALL, ChipSplit, Results, split_order, title_of
from costbench.reports.scores import scores_of, share_programs
from costbench.reports.table import Column, Table, Value
from costbench.reports.tables.learning_curves import is_curve, is_rate
from costbench.reports.tables.tpugraphs import is_of_paper
from costbench.reports.training_guard import MAX_RATIO, undertrained
from costbench.reports.training_runs import Budget, budget_note
from costbench.rng import stream
from costbench.tasks import KERNEL_TASKS, LEARNED, LearnedTask, labels_of

MODEL = "learned"
ABLATIONS: Mapping[str, str] = {"inputs": "Inputs and loss", "networks": "Graph network by reduction"}
"""Sections of lpm2021's file with tables 3 and 4, and their titles."""
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
_STATISTICS: Mapping[Statistic, tuple[str, str]] = {
    "median": ("median", "median"),
    "geometric_mean": ("mean", "mean"),
    "standard_deviation": ("deviation", "std. dev."),
}
"""Statistic of the error -> end of the column's key, header."""


def variant_splits(results: Results) -> tuple[ChipSplit, ...]:
    """Returns where variants were tested, in the order of cells."""
    chip_splits = {ChipSplit(cell.split, cell.chip) for cell in results.variants if MODEL in cell.seeds}
    return tuple(sorted(chip_splits, key=lambda one: (split_order(one.split), one)))


def ablation_tables(
    results: Results, budgets: Sequence[Budget] = (), labels: Mapping[str, str] = NO_LABELS
) -> tuple[Table, ...]:
    """Returns for each split and chip tables 3 and 4 and the other variants, as far as they were run.

    Args:
        results: results with those of the variants.
        budgets: budgets of the training runs, for a note on each table.
        labels: names of variants for people, by variant.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    papers = {name: printed_table("lpm2021", name) for name in ABLATIONS}
    known = {label for paper in papers.values() for label in paper.labels} | set(EXTRA_INPUTS)
    short = undertrained(results, budgets)
    tables = []
    for chip_split in variant_splits(results):
        for name, paper in papers.items():
            extra = EXTRA_INPUTS if name == "inputs" else ()
            rows: Mapping[str, str] = {row.label: row.title for row in paper.rows}
            rows = {**rows, **{variant: labels.get(variant, variant) for variant in extra}}
            beside = paper if (paper.split, paper.chip) == (chip_split.split, chip_split.chip) else None
            title = ABLATIONS[name], "" if beside is None else f", beside {paper.name}"
            tables.append(_variants_table(results, chip_split, rows, (paper.key, *title), beside))
        rows = _other_variants(results, chip_split, known, labels)
        tables.append(_variants_table(results, chip_split, rows, ("variants", "Other variants", ""), None))
        tables[-3:] = [_annotated(table, chip_split, budgets, short) for table in tables[-3:]]
    return tuple(table for table in tables if table.rows)


def _other_variants(
    results: Results, chip_split: ChipSplit, known: Iterable[str], labels: Mapping[str, str]
) -> Mapping[str, str]:
    """Returns the variants that no other table shows, with their labels; nothing where there are none."""
    elsewhere = (is_difference, is_of_paper, is_curve, is_rate)
    there = {
        cell.variant
        for cell in results.variants
        if ChipSplit(cell.split, cell.chip) == chip_split
        and not any(shown(cell.variant) for shown in elsewhere)
    } - set(known)
    if not there:
        return {}
    known_labels = {MAIN: "main model", **labels}
    known_labels |= {v: f"trained for {v.removeprefix(_FROM)}" for v in there if v.startswith(_FROM)}
    order = dict.fromkeys((*_ORDER, *labels))
    labelled = {v: known_labels[v] for v in order if v in known_labels and (v in there or v == MAIN)}
    return labelled | {v: _label(v, results.experiments.get(v)) for v in sorted(there - set(labelled))}


def _label(variant: str, experiment: str | None) -> str:
    """Returns the name of a variant with that of its experiment, unless it has that already."""
    if experiment is None or variant.startswith(f"{experiment}."):
        return variant.replace(".", ": ", 1) if experiment else variant
    return f"{experiment}: {variant}"


def _variants_table(
    results: Results,
    chip_split: ChipSplit,
    labels: Mapping[str, str],
    named: tuple[str, str, str],
    paper: PrintedTable | None,
) -> Table:
    """Returns a row for each variant that was run, with the columns of each task that it was run on.

    Args:
        results: results with those of the variants.
        chip_split: split and chip that they were tested on.
        labels: variant -> what it is.
        named: beginning of the table's name, beginning and end of its title.
        paper: table that the paper printed of the same variants, split and chip.
    """
    frame = select(results.frame, model=MODEL, group=ALL, split=chip_split.split, chip=chip_split.chip)
    frame = select(frame, variant=list(labels))
    run = {task: set(select(frame, task=task)["variant"]) for task in LEARNED}
    # Variants of whole programs are most of them in the tables of tpugraphs2023; main alone would be none.
    tasks = [task for task in LEARNED if task in KERNEL_TASKS or run[task] - {MAIN}]
    rows = {variant: label for variant, label in labels.items() if any(variant in run[t] for t in tasks)}
    tasks = [task for task in tasks if run[task] & set(rows)]
    if not rows:
        return Table("", "", (), ())
    declared = TableDeclaration(
        f"{named[0]}_{chip_split.name}",
        f"{named[1]}, {chip_split.title}{named[2]}",
        rows=("variant", "label"),
        headers={"label": "What it is"},
        cases=tuple(RowDeclaration(row, {"variant": row[0]}) for row in rows.items()),
        columns=tuple(column for task in tasks for column in _columns(task, paper)),
        notes=_notes(frame, labels, run, tasks, paper),
    )
    return make_table(declared, frame, words={"split": chip_split.split}, printed=paper)


def _columns(task: str, paper: PrintedTable | None) -> tuple[ColumnDeclaration, ...]:
    """Returns the columns of a task: statistics of the error, mean tau, seeds, and what is printed."""
    printed = () if paper is None else paper.columns
    error = ColumnDeclaration("", group="{measure}, ours", measure="error", filter={"task": task})
    statistics = (
        replace(error, key=f"{task}_{name}", header=header, statistic=statistic)
        for statistic, (name, header) in _STATISTICS.items()
    )
    return (
        *statistics,
        replace(error, key=f"{task}_tau", header="mean", group="{measure}", measure="tau"),
        replace(error, key=f"{task}_runs", header="over seeds", statistic="run_deviation"),
        ColumnDeclaration(
            f"{task}_seeds", "seeds", task, filter={"task": task}, statistic="seeds", count=True
        ),
        *(
            replace(
                error, key=f"paper_{task}_{name}", header=header, group="{measure}, {paper}", printed=column
            )
            for name, header in _STATISTICS.values()
            if (column := f"{task}_{name}") in printed
        ),
    )


def _notes(
    frame: pd.DataFrame,
    labels: Mapping[str, str],
    run: Mapping[str, set[str]],
    tasks: Sequence[str],
    paper: PrintedTable | None,
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
    if (frame.groupby(["task", "variant"])["seed"].nunique() == 1).all():
        notes.append("One training run each: what another seed would change is not in these numbers.")
    for task in tasks:
        printed = (
            labels if paper is None else [v for v in labels if paper.value(v, f"{task}_mean") is not None]
        )
        absent = [v for v in printed if v not in run[task] and v not in EXTRA_INPUTS]
        if absent:
            notes.append(f"Not run on the {task} task: {', '.join(absent)}.")
    return tuple(notes)


def _annotated(table: Table, chip_split: ChipSplit, budgets: Sequence[Budget], short: Undertrained) -> Table:
    """Returns the table with what its rows' trainings were given, and which were not trained enough."""
    keys = [column.key for column in table.columns]
    tasks = [task for task in LEARNED if f"{task}_seeds" in keys]
    for task in tasks:
        ratios = [
            short.get((task, Side(MODEL, str(row[0]), chip_split.split, chip_split.chip)))
            for row in table.rows
        ]
        if not any(ratios):
            continue
        after = [column.key for column in table.columns].index(f"{task}_seeds") + 1
        said = (NOT_TRAINED_ENOUGH if ratio else "" for ratio in ratios)
        rows = tuple((*row[:after], flag, *row[after:]) for row, flag in zip(table.rows, said, strict=True))
        column = Column(f"{task}_training", "training", task)
        note = (
            f"{NOT_TRAINED_ENOUGH.capitalize()} ({task}): fewer samples than the main network saw, and an "
            f"error above {MAX_RATIO:g} times its; such rows decide no claim."
        )
        columns = (*table.columns[:after], column, *table.columns[after:])
        table = replace(table, columns=columns, rows=rows, notes=(*table.notes, note))
    # A model that was trained for another chip had the budget of the main one.
    variants = {str(row[0]): str(row[0]) for row in table.rows}
    here = [
        budget for budget in budgets if (budget.split, budget.chip) == (chip_split.split, chip_split.chip)
    ]
    notes = (budget_note(here, variants, task) for task in tasks)
    return replace(table, notes=(*table.notes, *(note for note in notes if note)))


def tables_without_results(results: Results) -> dict[str, list[tuple[str, ...]]]:
    """Returns those of lpm2021's tables 2, 3, 4, 8 and lpm2020's that no result row is there for.

    Returns:
        `splits`: table, split and the tasks without results; `ablations`: table and its variants;
        `variants`: table and the variant that it needs.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    cells = {(cell.task, cell.split) for cell in results.cells if MODEL in cell.seeds}
    trained = {cell.variant for cell in results.variants if MODEL in cell.seeds}
    splits = {"random": "Table 2 of lpm2021", "manual": "Table 8 of lpm2021"}
    absent = {split: [task for task in KERNEL_TASKS if (task, split) not in cells] for split in splits}
    variants = {"lpm2020-lstm": "Table 2 of lpm2020", "mse": "Table 3 of lpm2020"}
    printed = [printed_table("lpm2021", name) for name in ABLATIONS]
    return {
        "splits": [(splits[split], split, *tasks) for split, tasks in absent.items() if tasks],
        "ablations": [(table.name, *table.labels) for table in printed if not trained & set(table.labels)],
        "variants": [(table, variant) for variant, table in variants.items() if variant not in trained],
    }


PREFIX = "lpm2021-plus-"
BASE, BASE_VARIANT = "lpm2021", "lpm2021-base"
LINEAR = "lpm2021-linear"
"""The base with its features scaled as they are, the one thing of ours that the base has."""


@dataclass(frozen=True)
class Difference:
    """Something that our network has and lpm2021's has not.

    Attributes:
        name: name of the variant, without `PREFIX`.
        tasks: tasks where it exists.
        text: continuation of "learned has ...".
    """

    name: str
    tasks: tuple[LearnedTask, ...]
    text: str


@dataclass(frozen=True)
class Differences:
    """All differences, in the order of tables."""

    differences: tuple[Difference, ...]


def known_differences() -> tuple[Difference, ...]:
    """Returns how our network differs from lpm2021's. Raises: ParamsError for broken data of the package."""
    return load_section(FOLDER / "differences.yaml", "differences", Differences).differences


def is_difference(variant: str) -> bool:
    """Returns whether a variant is a row of these tables: lpm2021's model, or that with one thing of ours."""
    return variant in (BASE_VARIANT, LINEAR) or variant.startswith(PREFIX)


def differences_tables(results: Results, seed: int, budgets: Sequence[Budget] = ()) -> tuple[Table, ...]:
    """Returns a table for each task, split and chip where differences were measured; none without rows.

    Args:
        results: results with the variants and the base.
        seed: seed of the bootstrap.
        budgets: budgets of the training runs, for a note.

    Raises:
        ParamsError: if the package's data are broken.
    """
    variants: dict[tuple[str, str, str], set[str]] = {}
    for cell in results.variants:
        if is_difference(cell.variant) and MODEL in cell.seeds:
            variants.setdefault((cell.task, cell.split, cell.chip), set()).add(cell.variant)
    tables = []
    for (task, split, chip), names in variants.items():
        # What the variants are compared with: at their own budget, if it was trained.
        bases = (Side(MODEL, BASE_VARIANT, split, chip), Side(BASE, MAIN, split, chip))
        trained = (
            base
            for base in bases
            if (tested := results.cell(task, split, chip, base.variant)) and base.model in tested.seeds
        )
        base = next(trained, None)
        if base is not None:
            listed = sorted(names - {BASE_VARIANT})
            tables.append(_differences_table(results, task, base, listed, seed, budgets))
    return tuple(tables)


def _differences_table(
    results: Results, task: str, base: Side, variants: Sequence[str], seed: int, budgets: Sequence[Budget]
) -> Table:
    measures = error, tau = LEARNED[task].measures
    texts = {PREFIX + one.name: one.text for one in known_differences() if task in one.tasks}
    texts |= {
        PREFIX + "all": "all of these",
        LINEAR: "features scaled without a logarithm before",
    }
    listed = [variant for variant in texts if variant in variants]
    listed += sorted(set(variants) - set(listed))
    draws = CrossedDraws(stream(seed, "differences", f"{task}_{base.split}_{base.chip}"))
    compared = [
        (f"+ {texts.get(v, v.removeprefix(PREFIX))}", replace(base, model=MODEL, variant=v)) for v in listed
    ]
    named = base.variant
    if base.variant == MAIN:
        named = BASE
        compared.append(("learned: all of them, and its own training budget", replace(base, model=MODEL)))

    def means(side: Side) -> tuple[float | None, float | None, float | None, int]:
        """Returns mean error, its deviation over seeds, mean tau and the number of seeds of a model."""
        cell = results.cell(task, side.split, side.chip, side.variant)
        if cell is None or side.model not in cell.seeds:
            return None, None, None, 0
        numbers = [m.mean(cell.over_programs(side.model, m.metric)) for m in measures]
        return numbers[0], cell.deviation(side.model, error), numbers[1], len(cell.seeds[side.model])

    label = f"{title_of(BASE)}: its inputs, loss and layers"
    rows: list[tuple[Value, ...]] = [(named, label, *means(base), *[None] * 6)]
    for label, side in compared:
        numbers = means(side)
        if numbers[0] is None:
            continue
        effects: list[float | None] = []
        for measure in measures:
            sides = {one: scores_of(results.scores, task, measure.metric, one) for one in (side, base)}
            ours, bases = share_programs(sides).values()
            statistic = "geometric_mean" if measure.printed == "error" else "mean"
            if ours.programs:
                effect = estimate_difference(ours, bases, draws, statistic)
                effects += [effect.value, effect.low, effect.high]
            else:
                effects += [None] * 3
        rows.append((side.variant, label, *numbers, *effects))
    note = budget_note(
        [one for one in budgets if (one.split, one.chip) == (base.split, base.chip)],
        {name: name for name in (*listed, named, *([MAIN] if base.variant == MAIN else []))},
        task,
    )
    chip_split = ChipSplit(base.split, base.chip)
    return fill_table(
        "differences",
        rows,
        name=f"differences_{task}_{chip_split.name}",
        notes=(note,),
        where=f"{labels_of(task).heading}, {chip_split.title}",
        error=error.title,
        error_key=error.short,
        tau=tau.title,
        tau_key=tau.short,
    )
