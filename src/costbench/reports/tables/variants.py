"""Variants of the learned model beside lpm2021's tables 3 (inputs and loss) and 4 (networks), and our own.

`differences_tables` says what each difference between our network and lpm2021's is worth, measured one at a
time. Their base is `lpm2021-base`: the paper's inputs, loss and layers, and nothing of ours, at the budget of
the variants. Each variant `lpm2021-plus-<name>` adds one thing that the model `learned` has and the paper's
has not, `lpm2021-plus-all` everything. Without `lpm2021-base` the base is the model `lpm2021` of the main
experiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

import pandas as pd

from costbench.compiler.estimate_quality import QUALITIES
from costbench.datasets.splits import reported_split
from costbench.metrics.rows import MAIN
from costbench.params import load_section
from costbench.reports.claims.claim import Side
from costbench.reports.claims.evaluation import NOT_TRAINED_ENOUGH
from costbench.reports.declarations import RowDeclaration, declaration_of
from costbench.reports.declared_tables import make_table
from costbench.reports.frame import select
from costbench.reports.page import paragraphs
from costbench.reports.papers.printed import FOLDER, PrintedTable, printed_table
from costbench.reports.results import ALL, ChipSplit, Division, Results, split_order, title_of
from costbench.reports.scores import applications_of, make_draws
from costbench.reports.table import Table
from costbench.reports.tables.learning_curves import is_curve, is_rate
from costbench.reports.tables.tpugraphs import is_of_paper
from costbench.reports.training_guard import NetworkKey
from costbench.reports.training_runs import Budget, budget_note
from costbench.tasks import KERNEL_TASKS, LEARNED, LearnedTask

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
_LABELS = ("variant", "label")
"""First columns of the tables."""


def variant_splits(results: Results) -> tuple[ChipSplit, ...]:
    """Returns where variants were tested, in the order of cells."""
    chip_splits = {ChipSplit(cell.split, cell.chip) for cell in results.variants if MODEL in cell.seeds}
    return tuple(sorted(chip_splits, key=lambda tested: (split_order(tested.split), tested)))


def ablation_tables(
    results: Results,
    budgets: Sequence[Budget] = (),
    labels: Mapping[str, str] = MappingProxyType({}),
    untrained: Mapping[NetworkKey, str] = MappingProxyType({}),
) -> tuple[Table, ...]:
    """Returns for each split and chip tables 3 and 4 and the other variants, as far as they were run.

    Args:
        results: results with those of the variants.
        budgets: budgets of the training runs, for a note on each table.
        labels: names of variants for people, by variant.
        untrained: networks that were not trained enough, and why.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    papers = {name: printed_table("lpm2021", name) for name in ABLATIONS}
    in_papers = {label for paper in papers.values() for label in paper.labels} | set(EXTRA_INPUTS)
    tables = []
    for chip_split in variant_splits(results):
        of_split = [
            b for b in budgets if (reported_split(b.split), b.chip) == (chip_split.split, chip_split.chip)
        ]
        for name, paper in papers.items():
            titles = {row.label: row.title for row in paper.rows}
            titles |= {v: labels.get(v, v) for v in (EXTRA_INPUTS if name == "inputs" else ())}
            tables.append(_variants_table(results, chip_split, titles, paper, of_split, untrained))
        others = _other_variants(results, chip_split, in_papers, labels)
        tables.append(_variants_table(results, chip_split, others, None, of_split, untrained))
    return tuple(table for table in tables if table is not None)


def _other_variants(
    results: Results, chip_split: ChipSplit, known: Iterable[str], labels: Mapping[str, str]
) -> Mapping[str, str]:
    """Returns the variants that no other table shows, with their labels; nothing where there are none."""
    elsewhere = (is_difference, is_of_paper, is_curve, is_rate, QUALITIES.__contains__)
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
    # With the name of the experiment, which some have already.
    experiments = {v: results.experiments.get(v) for v in sorted(there - set(labelled))}
    return labelled | {
        v: f"{name}: {v.removeprefix(f'{name}.')}" if name else v for v, name in experiments.items()
    }


def _variants_table(
    results: Results,
    chip_split: ChipSplit,
    labels: Mapping[str, str],
    paper: PrintedTable | None,
    budgets: Sequence[Budget],
    untrained: Mapping[NetworkKey, str],
) -> Table | None:
    """Returns a row for each variant that was run, with the columns of each task that it was run on.

    Args:
        results: results with those of the variants.
        chip_split: split and chip that they were tested on.
        labels: variant -> what it is.
        paper: table that the paper printed of the same variants; None for those of no paper.
        budgets: budgets of the training runs on the split and chip.
        untrained: networks that were not trained enough, and why.

    Returns:
        None if none was run.
    """
    frame = select(results.frame, model=MODEL, group=ALL, split=chip_split.split, chip=chip_split.chip)
    frame = select(frame, variant=list(labels))
    run = {task: set(select(frame, task=task)["variant"]) for task in LEARNED}
    # Variants of whole programs are most of them in the tables of tpugraphs2023; main alone would be none.
    tasks = [task for task in LEARNED if task in KERNEL_TASKS or run[task] - {MAIN}]
    rows = {variant: label for variant, label in labels.items() if any(variant in run[t] for t in tasks)}
    tasks = [task for task in tasks if run[task] & set(rows)]
    if not rows:
        return None
    kind = next((name for name in ABLATIONS if paper == printed_table("lpm2021", name)), "")
    printed = paper if paper and (paper.split, paper.chip) == (chip_split.split, chip_split.chip) else None
    flags = {
        task: {v: untrained.get((task, Side(MODEL, v, chip_split.split, chip_split.chip))) for v in rows}
        for task in tasks
    }
    reasons: dict[str, dict[str, list[str]]] = {task: {} for task in tasks}
    for task, by_variant in flags.items():
        for variant, reason in by_variant.items():
            if reason and variant in run[task]:
                reasons[task].setdefault(reason, []).append(variant)
    asked = {
        task: [v for v in labels if printed is None or printed.value(v, f"{task}_mean") is not None]
        for task in tasks
    }
    notes = [
        *paragraphs(
            "models",
            "variants_notes",
            paper="" if printed is None else printed.paper,
            one_run=(frame.groupby(["task", "variant"])["seed"].nunique() == 1).all(),
            absent={
                task: [v for v in names if v not in run[task] and v not in EXTRA_INPUTS]
                for task, names in asked.items()
            },
            flag=NOT_TRAINED_ENOUGH,
            flagged={
                task: [f"{', '.join(rows[v] for v in some)}: {reason}" for reason, some in why.items()]
                for task, why in reasons.items()
                if why
            },
        ),
        # A model that was trained for another chip had the budget of the main one.
        *(budget_note(budgets, rows, task) for task in tasks),
    ]
    declared = declaration_of(
        "variants",
        f"{paper.key if paper else 'variants'}_{chip_split.name}",
        notes,
        rows=_LABELS,
        cases=tuple(RowDeclaration((name, label), {"variant": name}) for name, label in rows.items()),
        values={"task": dict(zip(tasks, tasks, strict=True))},
    )
    heading = ABLATIONS.get(kind, "Other variants")
    return make_table(
        declared,
        frame,
        words={"split": chip_split.split, "heading": heading, "where": chip_split.title},
        printed=printed,
        numbers={
            f"{task}_training": {
                (v, rows[v]): NOT_TRAINED_ENOUGH if reason else "" for v, reason in of_task.items()
            }
            for task, of_task in flags.items()
            if any(of_task.values())
        },
    )


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
    texts = {PREFIX + known.name: known.text for known in known_differences() if task in known.tasks}
    texts |= {
        PREFIX + "all": "all of these",
        LINEAR: "features scaled without a logarithm before",
    }
    listed = [variant for variant in texts if variant in variants]
    listed += sorted(set(variants) - set(listed))
    of_base = "base"
    name = BASE if base.variant == MAIN else base.variant
    cases = [RowDeclaration((name, f"{title_of(BASE)}: its inputs, loss and layers"), {"model": of_base})]
    cases += [
        RowDeclaration((v, f"+ {texts.get(v, v.removeprefix(PREFIX))}"), {"model": MODEL, "variant": v})
        for v in listed
    ]
    tested = Division(task, base.split, base.chip)
    frame = select(results.frame, **asdict(tested), group=ALL)
    trained = [*listed, name]
    if base.variant == MAIN:
        trained.append(MAIN)
        if len(select(frame, model=MODEL, variant=MAIN)):
            label = "learned: all of them, and its own training budget"
            cases.append(RowDeclaration((MAIN, label), {"model": MODEL, "variant": MAIN}))
    of_split = [budget for budget in budgets if (budget.split, budget.chip) == (base.split, base.chip)]
    note = budget_note(of_split, trained, task)
    bases = select(frame, model=base.model, variant=base.variant)
    return make_table(
        declaration_of(
            "differences", f"differences_{tested.name}", (note,), rows=_LABELS, cases=tuple(cases)
        ),
        pd.concat([bases.assign(model=of_base), select(frame, model=MODEL)]),
        words=tested.words | {"where": f"{tested.labels.heading}, {tested.where}"},
        draws=make_draws(applications_of(frame), seed, "differences", tested.name),
    )
