"""Stage `report`: tables, figures, `summary.json` and the page, from the results of the other stages."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from costbench.experiments.identity import git_revision, identify, read_identity
from costbench.experiments.tracking import Provenance, tracked_run, tracking_uri
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.params import load_section, load_yaml
from costbench.reports.report import ReportFiles, ReportInputs, write_report

_log = logging.getLogger(__name__)
_EXPERIMENT = "costbench/report"


@dataclass(frozen=True)
class ReportParams:
    """Section `report`.

    Attributes:
        seed: of the bootstrap over programs.
        curve: metric of the training histories that is drawn.
    """

    seed: int
    curve: str


def run(params: Path) -> None:
    """Render the results, and keep tables and figures as artifacts of a tracked run.

    Raises:
        CostbenchError: for wrong parameters, or stages that have not finished.
    """
    workspace = load_workspace(params)
    section = load_section(params, "report", ReportParams)
    evaluated = read_identity(workspace.stage("evaluate"))
    split, train = workspace.stage("split"), workspace.stage("train")
    inputs = ReportInputs(
        rows=workspace.stage("evaluate") / "rows.jsonl",
        audits=split / "leakage.json",
        counts=split / "counts.json",
        card=split / "card.json",
        histories={path.parent.name: path for path in sorted(train.glob("*/history.csv"))},
        curve=section.curve,
        scatter=workspace.stage("evaluate") / "scatter.json",
        settings={"train": load_yaml(params).get("train")},
        provenance={"profile": workspace.name, "random stream of the intervals": f"seed {section.seed}"},
    )
    written = write_report(inputs, workspace.reports, section.seed)
    identity = identify(section, evaluated.data_digest, evaluated)
    provenance = Provenance(identity.params_digest, identity.data_digest, git_revision(workspace.root))
    _track(workspace, provenance, written)
    _log.info("%s", written.page)


def _track(workspace: Workspace, provenance: Provenance, written: ReportFiles) -> None:
    with tracked_run(tracking_uri(), _EXPERIMENT, workspace.name, provenance) as tracked:
        tracked.log_metrics(written.headline)
        for name in ("tables", "figures"):
            tracked.log_folder(workspace.reports / name)
        tracked.log_files([written.page, written.summary, *written.claims], "report")
