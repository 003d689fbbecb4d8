"""What a module adds to the section about CPU schedules."""

from __future__ import annotations

from dataclasses import dataclass

from costbench.reports.page import PageFigure
from costbench.reports.table import Table


@dataclass(frozen=True)
class Part:
    """Text, figures and tables.

    Attributes:
        paragraphs: plain text.
        figures: shown below the text of all parts.
        tables: shown below the figures.
        shown: how many of the tables are open; the others are folded.
    """

    paragraphs: tuple[str, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    tables: tuple[Table, ...] = ()
    shown: int = 1
