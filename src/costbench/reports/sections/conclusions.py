"""What the results say in a few sentences: templates chosen by verdicts, filled with numbers of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costbench.metrics.measures import Measure
from costbench.reports.baseline_comparison import Standing, Standings
from costbench.reports.page import Pointer
from costbench.reports.results import FOLDS, PRIMARY_CHIP, SPLIT_NAMES, Cell, split_order, title_of
from costbench.tasks import LEARNED

_NAMED = {"learned": "The learned model", "hybrid": "The hybrid of network and analytical model"}
_TEMPLATES: Mapping[int, str] = {
    -1: "{model} is better than the strongest baseline ({baseline})",
    1: "{model} is worse than the strongest baseline ({baseline})",
    0: "Whether {model} is better than the strongest baseline ({baseline}) cannot be told",
}
"""By the sign of the difference of errors, as far as its interval tells."""


def primary_cell(cells: Sequence[Cell], task: str, model: str) -> Cell | None:
    """Returns the results that a conclusion about a model is drawn from.

    Folds where there are any, as they test every program, else the random split; of their chips the one
    whose timing was fitted to measurements, if there is one.
    """
    own = [cell for cell in cells if cell.task == task and model in cell.seeds]
    ranked = sorted(
        own,
        key=lambda c: (c.split != FOLDS, split_order(c.split), c.chip != PRIMARY_CHIP, c.chip),
    )
    return next(iter(ranked), None)


def conclusions(cells: Sequence[Cell], found: Mapping[str, Standings]) -> tuple[Pointer, ...]:
    """Returns a conclusion for each learned task and each of network and hybrid that was evaluated.

    Args:
        cells: main results of learned tasks.
        found: by name of cell, how its models stand to the strongest baseline.
    """
    said = []
    for task in LEARNED:
        for model in _NAMED:
            cell = primary_cell(cells, task, model)
            if cell is not None:
                said.append(_conclusion(cell, model, found[cell.name]))
    return tuple(one for one in said if one is not None)


def _conclusion(cell: Cell, model: str, found: Standings) -> Pointer | None:
    own = found.of(model)
    strongest = None if found.strongest is None else found.of(found.strongest)
    if own is None or strongest is None or own.difference is None:
        return None
    name = _NAMED[model]
    subject = name[0].lower() + name[1:] if own.sign == 0 else name
    labels = cell.labels
    said = _TEMPLATES[own.sign].format(model=subject, baseline=title_of(strongest.model))
    headline = f"{labels.title}: {said}"
    where = f"{SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}{labels.kernels}"
    measure = cell.described.measures[0]
    answer = f"{_numbers(own, strongest, measure, labels.short_error)}; {where}."
    return Pointer(headline, answer, f"baselines_{cell.name}")


def _numbers(own: Standing, strongest: Standing, measure: Measure, error: str) -> str:
    difference = own.difference
    if difference is None or own.won is None:
        return ""
    digits = measure.decimals
    ends = sorted(abs(end) for end in (difference.low, difference.high))
    if difference.sign:
        gap = f"{abs(difference.value):.{digits}f} points {'less' if difference.value < 0.0 else 'more'}"
        span = f"{ends[0]:.{digits}f} to {ends[1]:.{digits}f}"
    else:
        gap = f"a difference of {difference.value:+.{digits}f} points"
        span = f"{difference.low:+.{digits}f} to {difference.high:+.{digits}f}"
    return (
        f"{error} {own.error.value:.{digits}f}% against {strongest.error.value:.{digits}f}%, {gap} "
        f"(95% interval {span}), ahead on {100.0 * own.won:.0f}% of {own.compared} programs"
    )
