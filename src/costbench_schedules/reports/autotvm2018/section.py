"""The section of the page about CPU schedules.

A part of the section is a function of the results and the folder of figures. To add one, write a module with
such a function and add it to `PARTS`; where claims are decided on numbers of its own, add a function that
returns them as rows to `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from costbench.metrics.rows import MetricRow
from costbench.reports.page import Section
from costbench_schedules.reports.autotvm2018 import end_to_end, models, operators, searches, times
from costbench_schedules.reports.autotvm2018.part import Part
from costbench_schedules.reports.autotvm2018.results import ScheduleResults

ANCHOR = "schedules"
PARTS: Sequence[Callable[[ScheduleResults, Path], Part | None]] = (
    searches.part,
    models.part,
    operators.part,
    end_to_end.part,
)
"""In the order of the page."""
ROWS: Sequence[Callable[[ScheduleResults], tuple[MetricRow, ...]]] = (
    lambda found: found.rows,
    times.rows,
    operators.rows,
)
"""What claims are decided on."""


def schedule_rows(results: ScheduleResults) -> tuple[MetricRow, ...]:
    """Returns all rows that claims about schedules are decided on, wall times included."""
    return tuple(row for rows in ROWS for row in rows(results))


def schedule_section(results: ScheduleResults, figures: Path) -> Section | None:
    """Returns the section, or None where no schedules were searched.

    Args:
        results: of the stage `autotune`.
        figures: folder that figures go to.

    Raises:
        DataError: if a figure cannot be written.
    """
    parts = [part for make in PARTS if (part := make(results, figures)) is not None]
    if not parts:
        return None
    return Section(
        anchor=ANCHOR,
        title="CPU schedules: AutoTVM on a real processor",
        label="CPU schedules",
        paragraphs=tuple(text for part in parts for text in part.paragraphs),
        figures=tuple(figure for part in parts for figure in part.figures),
        tables=tuple(table for part in parts for table in part.tables),
        folded=tuple(table.name for part in parts for table in part.tables[part.shown :]),
    )
