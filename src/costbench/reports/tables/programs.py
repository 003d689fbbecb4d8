"""Tables of one task, split and chip: by program beside the papers' numbers, and model against model.

Test kernels that training has seen, by fingerprint or by structure, have tables as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.measures import APE, APE_FLOOR_PERCENT, TAU, Measure, geometric_mean
from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import Standings
from costbench.reports.declarations import declaration_of
from costbench.reports.declared_tables import fill_table, make_table
from costbench.reports.frame import select
from costbench.reports.losses import SKEWED, spread
from costbench.reports.page import paragraphs
from costbench.reports.papers.printed import PrintedTable, main_table
from costbench.reports.results import (
    ALL,
    BASELINES,
    BEST,
    TITLES,
    TRAINED,
    Cell,
    Results,
    common_scores,
    is_user_model,
    title_of,
)
from costbench.reports.scores import MIN_INTERVAL
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
    kind = "skewed_programs" if cell.task in SKEWED else "programs"
    notes = _notes(cell, strongest, cell.described.measures, printed)
    values = {"model": _models_by_program(cell, strongest)}
    declared = declaration_of(kind, cell.name, notes, values=values)
    return make_table(declared, cell.frame, words=_words(cell), printed=printed, rows=cell.programs)


def short_kernels_table(cell: Cell, strongest: str | None = None) -> Table:
    """Returns the same of kernels below 5 us, of which the paper prints no rows; empty if there are none."""
    measures, models = cell.described.short_kernels, _models_by_program(cell, strongest)
    notes = _notes(cell, strongest, measures, None)
    declared = declaration_of("short_kernels", f"{cell.name}_short", notes, values={"model": models})
    table = make_table(declared, cell.frame, words=cell.words, rows=cell.programs)
    measured = any(cell.over_programs(model, m.metric) for model in models for m in measures)
    return table if measured else replace(table, rows=())


def _words(cell: Cell) -> dict[str, Any]:
    """Returns the words of tables of a cell, the number of random orders among them for a skewed task."""
    orders = len(cell.seeds.get(SKEWED[cell.task].chance, ())) if cell.task in SKEWED else 0
    return cell.words | {"orders": str(orders)}


def _models_by_program(cell: Cell, strongest: str | None) -> Mapping[str, str]:
    """Returns the titles of the models that tables by program show, chance among them for a skewed task."""
    chance = SKEWED[cell.task].chance if cell.task in SKEWED else None
    shown = (*_SHOWN, strongest, chance)
    return {model: title_of(model) for model in cell.models if model in shown or is_user_model(model)}


def _notes(
    cell: Cell, strongest: str | None, measures: Sequence[Measure], paper: PrintedTable | None
) -> tuple[str, ...]:
    """Returns what the numbers by program are: their definition, their training runs, the paper's.

    Args:
        cell: results of a task, split and chip.
        strongest: name of the strongest baseline.
        measures: measures of the table.
        paper: table that is printed beside ours.
    """
    matched = [] if paper is None else [paper.row_for(*program) for program in cell.programs]
    lacking = [] if paper is None else [row for row in paper.rows if row not in matched]
    return paragraphs(
        "results",
        "program_notes",
        definition=cell.labels.definition,
        floor=APE_FLOOR_PERCENT,
        trained={
            title_of(model): cell.seeds[model]
            for model in TRAINED
            if model in cell.seeds and any(cell.over_programs(model, m.metric) for m in measures)
        },
        models=_models_by_program(cell, strongest),
        titles=TITLES,
        paper=paper,
        paper_models=PAPER_MODELS,
        lacking={
            row.label: {
                m.title: [paper.value_in(row, f"{m.printed}_{model}") for model in PAPER_MODELS]
                for m in measures
            }
            for row in lacking
            if paper is not None
        },
    )


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
    return (make_table(declared, frame, words=cell.words, printed=paper, rows=cell.programs),)


def baselines_table(cell: Cell, standings: Standings) -> Table:
    """Returns one row a model, the least error first, and below them one a ceiling.

    Args:
        cell: results of a task, split and chip.
        standings: how its models stand to the strongest baseline.
    """
    error = cell.described.measures[0]
    rows: list[dict[str, object]] = []
    for standing in standings.models:
        row = standing.row | {"kind": _kind(standing.model, standings.strongest)}
        row["runs"] = cell.deviation(standing.model, error)
        if standing.programs < MIN_INTERVAL:
            row |= dict.fromkeys(("low", "high", "difference_low", "difference_high"))
        rows.append(row | _spread_of_errors(cell, standing.model))
    for name in cell.ceilings:
        # Mean error and tau alone: what knows the machine is compared with nothing.
        means = dict(zip(("error", "tau"), cell.means(name), strict=True))
        counts = {"programs": len(cell.over_programs(name, error.metric)), "seeds": len(cell.seeds[name])}
        named = {"model": title_of(name), "kind": "ceiling"}
        rows.append({**named, **means, **counts, **_spread_of_errors(cell, name)})
    return fill_table(
        "skewed_baselines" if cell.task in SKEWED else "baselines",
        rows,
        name=f"baselines_{cell.name}",
        notes=paragraphs("results", "ceilings_note", cell=cell) if cell.ceilings else (),
        averages=len(cell.ceilings),
        **_words(cell),
    )


def _spread_of_errors(cell: Cell, model: str) -> dict[str, float]:
    """Returns averages of a skewed task's errors beside the geometric mean, by column; none of others."""
    if cell.task not in SKEWED:
        return {}
    error, best_of_ten = cell.described.measures[0], SKEWED[cell.task].best_of_ten
    return {
        f"{prefix}{'arithmetic_mean' if kind == 'mean' else kind}": value
        for prefix, metric in (("", error.metric), (f"{best_of_ten}_", best_of_ten))
        for kind, value in spread(error, cell.over_programs(model, metric)).items()
    }


def _kind(model: str, strongest: str | None) -> str:
    if model == strongest:
        return "strongest baseline"
    if is_user_model(model):
        return "yours"
    return "baseline" if model in BASELINES else "network"


def comparison_table(cell: Cell, seed: int) -> Table:
    """Returns the paired bootstrap over test programs of learned - baseline, for tau and the task's error.

    Args:
        cell: results of a task, split and chip.
        seed: seed of the resampling; the same one gives the same table.
    """
    rows = []
    for baseline in cell.models:
        for measure in reversed(cell.described.measures) if baseline != "learned" else ():
            learned, other = common_scores(cell, "learned", cell, baseline, measure.metric)
            if len(learned) < MIN_INTERVAL:
                continue
            generator = stream(seed, "comparison", cell.name, baseline, measure.metric)
            interval = paired_bootstrap(learned, other, generator)
            better = interval.share_negative if measure.better == "lower" else 1.0 - interval.share_negative
            named = {"baseline": title_of(baseline), "metric": measure.title.replace("(%)", "(points)")}
            rows.append(asdict(interval) | named | {"programs": len(learned), "share_better": better})
    where = f"{cell.labels.prefix}{cell.split} split, {cell.chip}"
    return fill_table("comparison", rows, name=f"comparison_{cell.name}", where=where)


NEW_STRUCTURE = "new_structure"
"""Group of kernels whose operator graph, extents aside, occurs in no training program."""
_KERNELS = "kernels"
_UNSEEN_MODELS = ("learned", "hybrid", "analytical")


def structure_table(cell: Cell, new: Cell | None, strongest: str | None) -> Table:
    """Returns kernels of known structure and errors on all and on new structures, a row a program.

    The table is empty where nothing of a new structure was evaluated.

    Args:
        cell: results over all kernels.
        new: results over kernels of new structure; None where there are none.
        strongest: strongest baseline, shown beside networks.
    """
    models = [model for model in cell.models if model in (*TRAINED, "analytical", strongest)]
    declared = declaration_of(
        "structure",
        f"structure_{cell.name}",
        paragraphs("results", "structure_note"),
        values={"model": {model: title_of(model) for model in models}},
    )
    every = ("geometric_mean",)
    groups = {pair: [pair[1]] for pair in cell.programs} | {every: [program for _, program in cell.programs]}
    shares = {} if new is None else {row: _kernels_and_share(cell, new, groups[row]) for row in groups}
    table = make_table(
        declared,
        cell.frame if new is None else pd.concat([cell.frame, new.frame]),
        words=cell.words,
        rows=cell.programs,
        numbers={
            "kernels": {row: kernels for row, (kernels, _) in shares.items()},
            "known": {row: share for row, (_, share) in shares.items()},
        },
    )
    return replace(table, rows=()) if new is None else table


def share_of_structures(cell: Cell, new: Cell | None) -> float | None:
    """Returns the share of the test kernels whose structure occurs in training, 0 to 1; None if unknown."""
    if new is None:
        return None
    _, percent = _kernels_and_share(cell, new, [program for _, program in cell.programs])
    return None if percent is None else percent / 100.0


def _kernels_and_share(cell: Cell, new: Cell, programs: list[str]) -> tuple[float | None, float | None]:
    """Returns how many kernels the programs have and the percentage whose structure training has seen."""
    kernels = sum(cell.score(BEST, _KERNELS, program) or 0.0 for program in programs)
    if not kernels:
        return None, None
    fresh = sum(new.score(BEST, _KERNELS, program) or 0.0 for program in programs)
    return kernels, 100.0 * (1.0 - fresh / kernels)


def unseen_table(cell: Cell, unseen: Cell) -> Table:
    """Returns APE and tau per test program over all and over unseen kernels, and their averages.

    Args:
        cell: results over all kernels.
        unseen: results over kernels that do not occur in training programs; programs that have none are not
            in the averages.
    """
    kernels: dict[tuple[str, ...], Value] = {
        pair: unseen.score(BEST, _KERNELS, pair[1]) or 0.0 for pair in cell.programs
    }
    notes = paragraphs("results", "unseen_note", floor=APE_FLOOR_PERCENT)
    return make_table(
        declaration_of("unseen", f"unseen_{cell.name}", notes),
        pd.concat([cell.frame, unseen.frame]),
        words=cell.words,
        rows=cell.programs,
        numbers={"unseen_kernels": kernels},
    )


def unseen_means(cell: Cell, unseen: Cell | None) -> list[tuple[str, tuple[float, ...], tuple[float, ...]]]:
    """Returns each model with its mean APE and its mean tau, over all kernels and without those seen.

    Args:
        cell: results over all kernels.
        unseen: results over kernels that do not occur in training programs; None where there are none.
    """
    means: list[tuple[str, tuple[float, ...], tuple[float, ...]]] = []
    if unseen is None:
        return means
    for model in _UNSEEN_MODELS:
        errors, taus = (common_scores(cell, model, unseen, model, metric) for metric in (APE, TAU))
        if errors[0] and taus[0]:
            ape = tuple(geometric_mean(values, APE_FLOOR_PERCENT) for values in errors)
            means.append((model, ape, tuple(float(np.mean(values)) for values in taus)))
    return means
