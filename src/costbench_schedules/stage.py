"""Stage `schedules`: searches of recorded tables of schedules, tests of models on them and on networks."""

from __future__ import annotations

from pathlib import Path

from costbench.artifacts import digest_bytes
from costbench.execution.workers import NO_FLAGS, BackendFlags
from costbench.experiments.identity import identify, write_identity
from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import load_workspace
from costbench_schedules.experiments.estimated.work_items import search_estimated
from costbench_schedules.experiments.networks.work_items import evaluate_networks
from costbench_schedules.experiments.section import load_schedules_section
from costbench_schedules.experiments.tables.work_items import tune_schedules


def run(params: Path, flags: BackendFlags = NO_FLAGS) -> None:
    """Compute the results that are missing, in a folder for each part: `tables`, `networks`, `estimated`.

    Args:
        params: the parameter file; the parameters of this stage are in `schedules.yaml` beside it.
        flags: where the searches run.

    Raises:
        CostbenchError: for wrong parameters, or damaged files.
    """
    workspace = load_workspace(load_params(params), flags)
    section = load_schedules_section(params)
    folder = workspace.stage("schedules")
    digests = (
        tune_schedules(section.tables, workspace, folder / "tables"),
        evaluate_networks(section.networks, workspace, folder / "networks"),
        search_estimated(section.estimated, workspace, folder / "estimated"),
    )
    data_digest = digest_bytes(" ".join(digests).encode())[:16]
    write_identity(folder, identify(__name__, section, data_digest))
