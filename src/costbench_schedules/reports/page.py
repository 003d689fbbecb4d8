"""The page on schedules: AutoTVM's searches, tuning tables of GPUs, Crop's model, claims of papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costbench.experiments.identity import read_identity
from costbench.experiments.workspace import Workspace
from costbench.reports.claims.claim import Claim, read_claims
from costbench.reports.claims.evaluation import Finding
from costbench.reports.extension import RenderedPart, ReportExtension, ReportPart
from costbench_schedules.reports.autotvm2018.results import load_schedules, write_machine_times
from costbench_schedules.reports.autotvm2018.searches import flat_schedules
from costbench_schedules.reports.autotvm2018.section import flat_models, schedule_rows, schedule_section
from costbench_schedules.reports.crop2024.results import load_networks, not_trained_enough
from costbench_schedules.reports.crop2024.section import flat_networks, networks_section
from costbench_schedules.reports.gpus.results import flat_gpus, load_gpus
from costbench_schedules.reports.gpus.section import gpus_section
from costbench_schedules.reports.table_claims import rows_of_tables
from costbench_schedules.section_file import recorded_tables

_CLAIMS = tuple(Path(__file__).parent / paper / "claims.yaml" for paper in ("autotvm2018", "crop2024"))
_TITLE = "How well do cost models choose schedules of tensor operators?"
_LEAD = (
    "Searches for schedules of tensor operators and for parameters of GPU kernels, with learned cost models "
    "and without, and an analytical model that reads LLVM IR, on what real processors and GPUs measured."
)


def schedule_claims() -> tuple[Claim, ...]:
    """Returns the claims of autotvm2018, then those of crop2024."""
    return tuple(claim for path in _CLAIMS for claim in read_claims(path))


def load_part(workspace: Workspace) -> ReportPart:
    """Returns what the stage `schedules` left behind as a part of the report; empty where it was not run.

    Raises:
        DataError: naming the file, if one is malformed.
        ParamsError: for a broken `schedules.yaml`.
    """
    folder = workspace.stage("schedules")
    schedules = load_schedules(folder / "tables", workspace.root / recorded_tables(workspace.params.path))
    networks = load_networks(folder / "networks", folder / "estimated")
    gpus = load_gpus(folder / "gpus")

    def render(findings: Sequence[Finding], figures: Path) -> RenderedPart:
        sections = (
            schedule_section(schedules, figures),
            gpus_section(gpus, figures),
            networks_section(networks, figures),
        )
        summary = flat_schedules(schedules, findings) | flat_models(schedules) | flat_networks(networks)
        summary |= flat_gpus(gpus)
        return RenderedPart(tuple(section for section in sections if section is not None), summary)

    return ReportPart(
        title=_TITLE,
        lead=_LEAD,
        render=render,
        claims=schedule_claims(),
        rows=(*schedule_rows(schedules), *networks.rows, *gpus.rows, *rows_of_tables(schedules, gpus)),
        untrained=not_trained_enough(networks),
        identities=(read_identity(folder),) if schedules.rows or networks.rows or gpus.rows else (),
        write_machine_facts=lambda machine: write_machine_times(schedules, machine),
    )


EXTENSION = ReportExtension(load_part)
