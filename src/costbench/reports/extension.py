"""What other packages add to a report: claims, rows that decide them, headline numbers and a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from costbench.experiments.identity import StageIdentity
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import MetricRow
from costbench.reports.claims.claim import Claim, Side
from costbench.reports.claims.evaluation import Finding
from costbench.reports.page import Section


@dataclass(frozen=True)
class RenderedPart:
    """What a part shows.

    Attributes:
        sections: sections of its page, in order; without any there is no page.
        summary: headline numbers that `summary.json` has besides those of costbench.
    """

    sections: tuple[Section, ...] = ()
    summary: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportPart:
    """What a package adds to the report of one profile.

    Attributes:
        title: heading of its page, which is `NAME.html` after the name of the entry point.
        lead: first paragraph of the page.
        render: function of the findings on all claims and of the folder that figures go to.
        claims: statements of papers that its rows decide, listed after those of costbench.
        rows: result rows.
        untrained: (task, side) of models that decide no claim -> why.
        identities: identities of the stages that the rows are from.
        write_machine_facts: function that writes what differs from machine to machine into a folder, and
            returns the files.
    """

    title: str
    lead: str
    render: Callable[[Sequence[Finding], Path], RenderedPart]
    claims: tuple[Claim, ...] = ()
    rows: tuple[MetricRow, ...] = ()
    untrained: Mapping[tuple[str, Side], str] = field(default_factory=dict)
    identities: tuple[StageIdentity, ...] = ()
    write_machine_facts: Callable[[Path], tuple[Path, ...]] = lambda folder: ()


@dataclass(frozen=True)
class ReportExtension:
    """An entry point of the group `costbench.report_sections`.

    Attributes:
        load: function that returns the part of a profile's report from what its stages left behind, be it
            nothing.
    """

    load: Callable[[Workspace], ReportPart]
