"""Tabulates what each difference between our network and lpm2021's is worth, measured one at a time.

The base is `lpm2021-base`: the paper's inputs, loss and layers, and nothing of ours, at the budget of the
variants. Each variant `lpm2021-plus-<name>` adds one thing that the model `learned` has and the paper's has
not, `lpm2021-plus-all` everything. Without `lpm2021-base` the base is the model `lpm2021` of the main
experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costbench.metrics.intervals import CrossedDraws
from costbench.metrics.measures import Measure
from costbench.metrics.rows import MAIN
from costbench.params import load_section
from costbench.reports.claims.claim import Side
from costbench.reports.described_table import described_table
from costbench.reports.results import SPLIT_NAMES, Results, title_of
from costbench.reports.scores import matched, scores_of
from costbench.reports.standings import Estimate, difference
from costbench.reports.table import Table, Value
from costbench.reports.training_runs import Budget, budget_note
from costbench.rng import stream
from costbench.tasks import LEARNED, LearnedTask, labels_of

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
            tables.append(_table(results, (place[0], base), listed, seed, budgets))
    return tuple(tables)


def _base(results: Results, place: tuple[str, str, str]) -> Side | None:
    """Returns what the variants of a place are compared with, None if it was not trained."""
    for side in (Side(OURS, BASE_VARIANT, *place[1:]), Side(BASE, MAIN, *place[1:])):
        cell = results.cell(*place, side.variant)
        if cell is not None and side.model in cell.seeds:
            return side
    return None


def _table(
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
