"""Tables of one task, split and chip: by program beside the papers' numbers, and model against model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.measures import APE_FLOOR_PERCENT, Measure
from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import Estimate, Standings
from costbench.reports.declarations import declaration_of, fill_table, make_table, place_name
from costbench.reports.frame import select
from costbench.reports.papers.printed import PrintedTable, main_table
from costbench.reports.results import (
    ALL,
    BASELINES,
    TITLES,
    TRAINED,
    Cell,
    Results,
    is_given,
    title_of,
)
from costbench.reports.table import Table, Value
from costbench.rng import stream

PAPER_MODELS = ("learned", "analytical")
_SHOWN = (*TRAINED, "analytical")
"""Models of tables by program, with the strongest baseline; all others are in the tables of baselines."""


def program_table(cell: Cell, paper: PrintedTable | None, strongest: str | None = None) -> Table:
    """Returns error and tau of a task per test program with averages, ours and the paper's.

    Args:
        cell: results of a task, split and chip.
        paper: table of the same task and split that the paper printed; its numbers are shown only where its
            chip is the cell's, since times of another chip are no comparison.
        strongest: name of the strongest baseline, shown beside networks and the analytical model.
    """
    printed = paper if paper is not None and paper.chip == cell.chip else None
    notes = _notes(cell, strongest, cell.described.measures, printed)
    return make_table(
        declaration_of("programs", cell.name, notes),
        cell.frame,
        words=_words(cell) | {"beside": "" if printed is None else f", beside {printed.name}"},
        printed=printed,
        rows=cell.programs,
        values={"model": _models_by_program(cell, strongest)},
    )


def short_kernels_table(cell: Cell, strongest: str | None = None) -> Table:
    """Returns the same of kernels below 5 us, of which the paper prints no rows; empty if there are none."""
    measures, models = cell.described.short_kernels, _models_by_program(cell, strongest)
    notes = _notes(cell, strongest, measures, None)
    table = make_table(
        declaration_of("short_kernels", f"{cell.name}_short", notes),
        cell.frame,
        words=_words(cell),
        rows=cell.programs,
        values={"model": models},
    )
    measured = any(cell.over_programs(model, m.metric) for model in models for m in measures)
    return table if measured else replace(table, rows=())


def _words(cell: Cell) -> dict[str, str]:
    labels = cell.labels
    words = {"task": cell.task, "split": cell.split, "chip": cell.chip, "paper": ""}
    where = place_name(cell.split, cell.chip)
    return words | {"heading": labels.heading, "kernels": labels.kernels, "where": where}


def _models_by_program(cell: Cell, strongest: str | None) -> Mapping[str, str]:
    """Returns the titles of the models that tables by program show."""
    shown = (*_SHOWN, strongest)
    return {model: title_of(model) for model in cell.models if model in shown or is_given(model)}


def _notes(
    cell: Cell, strongest: str | None, measures: Sequence[Measure], paper: PrintedTable | None
) -> tuple[str, ...]:
    notes = [
        cell.labels.definition,
        f"In the geometric mean an error below {APE_FLOOR_PERCENT}% counts as {APE_FLOOR_PERCENT}%, so that "
        "a program without error does not hide the others; – where a correlation is not positive. The "
        "standard deviation is that over programs.",
    ]
    for model in TRAINED:
        seeds = cell.seeds.get(model, ())
        if seeds and any(cell.over_programs(model, m.metric) for m in measures):
            which = ", ".join(map(str, seeds))
            notes.append(f"{title_of(model)}: mean over {len(seeds)} training run(s), seeds {which}.")
    models = _models_by_program(cell, strongest)
    if "hybrid" in models:
        notes.append("hybrid: the network adds to the analytical estimate what that gets wrong; in no paper.")
    if "lpm2021" in models:
        notes.append(f"{title_of('lpm2021')}: the paper's inputs, loss and layers, and nothing of ours.")
    if "tuned" in models:
        notes.append(
            f"{TITLES['tuned']}: with the hyper-parameters of the best trial of our sweep, maybe those of a "
            "hybrid; the tables of tuned settings say so."
        )
    if paper is None:
        return tuple(notes)
    notes.append(
        f"{paper.paper}: as printed in its {paper.table}, measured on real hardware, with other programs "
        "of the same applications; to be read as a scale, not as a target."
    )
    matched = [paper.row_for(*program) for program in cell.programs]
    lacking = []
    for row in paper.rows:
        if row not in matched:
            scores = (
                f"{m.title} "
                + " and ".join(f"{paper.value_in(row, f'{m.printed}_{model}')}" for model in PAPER_MODELS)
                for m in measures
            )
            lacking.append(f"{row.label} ({'; '.join(scores)})")
    if lacking:
        notes.append(
            f"Rows of {paper.paper}, {' and '.join(PAPER_MODELS)}, whose like we have no kernels of: "
            f"{', '.join(lacking)}. Its averages are over these as well."
        )
    return tuple(notes)


_NEEDED = {"fusion": "lpm2020-lstm", "tile": "mse"}
"""Without this variant a table of lpm2020 would only repeat the main one."""


def earlier_tables(results: Results, cell: Cell) -> tuple[Table, ...]:
    """Returns lpm2020's table 2 or 3 of the cell's task, ours beside it; none where baselines were not run.

    Args:
        results: results with the variants.
        cell: main results of a task, split and chip; only those that lpm2020 prints have a table.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    paper = main_table(cell.task, cell.split, "lpm2020")
    variant = _NEEDED.get(cell.task, MAIN)
    if (
        paper is None
        or paper.chip != cell.chip
        or not results.cell(cell.task, cell.split, cell.chip, variant)
    ):
        return ()
    frame = select(results.frame, task=cell.task, split=cell.split, chip=cell.chip, group=ALL)
    declared = declaration_of(f"lpm2020_{cell.task}", f"{paper.key}_{cell.name}")
    return (make_table(declared, frame, words=_words(cell), printed=paper, rows=cell.programs),)


def baselines_table(cell: Cell, standings: Standings) -> Table:
    """Returns one row a model, the least error first, and below them one a ceiling.

    Args:
        cell: results of a task, split and chip.
        standings: how its models stand to the strongest baseline.
    """
    error, tau = cell.described.measures
    rows: list[tuple[Value, ...]] = [
        (
            title_of(model.model),
            _kind(model.model, standings.strongest),
            *_ends(model.error),
            cell.deviation(model.model, error),
            model.tau,
            None if model.won is None else 100.0 * model.won,
            *_ends(model.difference),
            model.programs,
            model.seeds,
        )
        for model in standings.models
    ]
    for name in cell.ceilings:
        # Mean error and tau alone: what knows the machine is compared with nothing.
        errors = cell.over_programs(name, error.metric)
        means = (error.mean(errors), None, None, None, tau.mean(cell.over_programs(name, tau.metric)))
        rows.append((title_of(name), "ceiling", *means, *[None] * 4, len(errors), len(cell.seeds[name])))
    return fill_table(
        "baselines",
        rows,
        name=f"baselines_{cell.name}",
        notes=(_CEILINGS,) if cell.ceilings else (),
        averages=len(cell.ceilings),
        **_words(cell),
        error=error.title,
        tau=tau.title,
    )


_CEILINGS = (
    "Ceilings know the machine and are no models. Measured again: another measurement of the same tile "
    "sizes, the fastest of three runs as theirs is. Machine without irregular code: the simulated machine "
    "without noise and without the factor of each structure of inner loops, which looks random to whoever "
    "has no example of it."
)


def _kind(model: str, strongest: str | None) -> str:
    if model == strongest:
        return "strongest baseline"
    if is_given(model):
        return "yours"
    return "baseline" if model in BASELINES else "network"


def _ends(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)


def comparison_table(cell: Cell, seed: int) -> Table:
    """Returns the paired bootstrap over test programs of learned - baseline, for tau and the task's error.

    Args:
        cell: results of a task, split and chip.
        seed: seed of the resampling; the same one gives the same table.
    """
    rows: list[tuple[Value, ...]] = []
    for baseline in cell.models:
        for measure in reversed(cell.described.measures) if baseline != "learned" else ():
            pairs = [
                (left, right)
                for _, program in cell.programs
                if (left := cell.score("learned", measure.metric, program)) is not None
                and (right := cell.score(baseline, measure.metric, program)) is not None
            ]
            if not pairs:
                continue
            learned, other = zip(*pairs, strict=True)
            generator = stream(seed, "comparison", cell.name, baseline, measure.metric)
            interval = paired_bootstrap(learned, other, generator)
            better = interval.share_negative if measure.better == "lower" else 1.0 - interval.share_negative
            named = (title_of(baseline), measure.title.replace("(%)", "(points)"), len(pairs))
            rows.append((*named, interval.difference, interval.low, interval.high, better))
    where = f"{cell.labels.prefix}{cell.split} split, {cell.chip}"
    return fill_table("comparison", rows, name=f"comparison_{cell.name}", where=where)
