"""Searches the tables of data/schedules as profiles/evidence asks, and packs the searches.

    python tools/schedule_searches.py    # what data/results/schedules lacks, into it

Searches are files below out/evidence; a run that was interrupted goes on where it was. Those that networks
guide are left out: each takes as long as five to nine others, and no claim compares them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import load_workspace
from costbench_schedules.experiments.table_tuning import pack_searches
from costbench_schedules.stage import load_schedules_section

ROOT = Path(__file__).parents[1]
PARAMS = ROOT / "profiles/evidence/params.yaml"
REPEATS = 30
NETWORKS = "networks"
"""Group of searches that networks guide."""


def main() -> None:
    """Searches what is missing, and packs."""
    section = load_schedules_section(PARAMS).tables
    if section is None:
        sys.exit(f"{PARAMS}: no searches of tables")
    groups = {name: group for name, group in section.searches.items() if name != NETWORKS}
    section = replace(section, searches=groups, repeats=REPEATS)
    workspace = load_workspace(load_params(PARAMS))
    pack_searches(section, workspace, workspace.stage("schedules") / "tables")


if __name__ == "__main__":
    main()
