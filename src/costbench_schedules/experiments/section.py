"""Section `schedules`: what the stage of that name searches and tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costbench.params import parse_section
from costbench_schedules.experiments.estimated.params import EstimatedTuning
from costbench_schedules.experiments.networks.params import NetworkTesting
from costbench_schedules.experiments.tables.params import ScheduleTuning
from costbench_schedules.section_file import SECTION, read_sections, section_file


@dataclass(frozen=True)
class SchedulesSection:
    """Section `schedules`.

    Attributes:
        tables: searches of recorded tables, and models of them; None for none.
        networks: tests of models on recorded programs of networks; None for none.
        estimated: searches of recorded tables with estimates of the analytical model; None for none.
    """

    tables: ScheduleTuning | None = None
    networks: NetworkTesting | None = None
    estimated: EstimatedTuning | None = None


def load_schedules_section(params: Path) -> SchedulesSection:
    """Reads the section from the file beside a parameter file; a profile without that file asks for nothing.

    Raises:
        ParamsError: for a broken file.
    """
    path = section_file(params)
    if not path.exists():
        return SchedulesSection()
    return parse_section(read_sections(params), SECTION, SchedulesSection, where=path)
