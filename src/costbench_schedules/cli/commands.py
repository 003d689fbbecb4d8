"""The commands that this package adds to `costbench`, and its stage of the pipeline."""

from __future__ import annotations

from pathlib import Path

from costbench.cli.options import BackendName, Jobs, Params, Scheduler, backend_flags, run_stage
from costbench.extensions import CommandGroup, StageExtension
from costbench_schedules.cli.crop import COMMANDS as CROP
from costbench_schedules.cli.live import tune_schedule
from costbench_schedules.cli.schedules import COMMANDS as SCHEDULES
from costbench_schedules.section_file import SECTION, read_sections


def schedules(
    params: Params = Path("params.yaml"),
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
) -> None:
    """Search recorded tables of schedules, and test models of them; parameters are in `schedules.yaml`.

    Finished work items are kept: after a kill, the next run computes what is missing.
    """
    from costbench_schedules.stage import run

    run_stage(lambda path: run(path, backend_flags(backend, scheduler, jobs)), params)


COMMANDS = CommandGroup("Schedules on this machine's processor", (tune_schedule, *SCHEDULES, *CROP))
STAGE = StageExtension(
    schedules,
    "costbench_schedules.stage",
    read_sections,
    sections={SECTION: "costbench_schedules.stage:SchedulesSection"},
    results=(
        *("tables/rows.jsonl", "tables/curves.json", "tables/tables.json", "tables/wall_times.json"),
        *("networks/rows.jsonl", "networks/card.json", "estimated/rows.jsonl", "estimated/curves.json"),
    ),
)
