"""Stage `report`: tables, figures, `summary.json` and the page, from the results of the other stages."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from costbench.datasets.layout_graphs import read_collection_sizes
from costbench.experiments.grid.cells import MAIN, experiment_names, variant_labels
from costbench.experiments.identity import git_revision, identify, read_identity
from costbench.experiments.parameter_file import SECTION, Params, load_params
from costbench.experiments.tracking.runs import KIND, Provenance, tracked_run, tracking_uri
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.extensions import REPORT_SECTIONS, load_extensions
from costbench.metrics.overhead import read_overheads
from costbench.params import load_yaml, merge
from costbench.reports.extension import ReportExtension
from costbench.reports.frame import write_frame
from costbench.reports.inputs import ReportInputs
from costbench.reports.overhead import overhead_metrics, write_machine_overheads
from costbench.reports.report import ReportFiles, write_report
from costbench.reports.results import PRIMARY_CHIP
from costbench.reports.sections.tpugraphs import TpuGraphsInputs
from costbench.reports.tables.hyperparameters import Settings
from costbench.reports.tables.tpugraphs import is_of_paper
from costbench.reports.training_runs import write_wall_times
from costbench.tasks import LEARNED

_log = logging.getLogger(__name__)
_EXPERIMENT = "costbench/report"


@dataclass(frozen=True)
class ReportParams:
    """Section `report`: tables, figures and the page.

    Attributes:
        seed: seed of the bootstrap over programs.
        curves: metric of the training histories that is drawn, by task.
        evidence: page whose verdicts count, as a path from the report's folder; empty if that is this report.
        tables: files that declare further tables, as paths from the repository's root.
    """

    seed: int
    curves: Mapping[str, str]
    evidence: str
    tables: tuple[str, ...] = ()


def run(params: Path) -> None:
    """Render the results, and keep tables and figures as artifacts of a tracked run.

    Raises:
        CostbenchError: for wrong parameters, or stages that have not finished.
    """
    profile = load_params(params)
    workspace = load_workspace(profile)
    section = profile.section("report", ReportParams)
    split, train, evaluated, sweep = (workspace.stage(n) for n in ("split", "train", "evaluate", "sweep"))
    tuned = workspace.stage("autotune")
    searches, paths = (
        (path if path.is_file() else None) for path in (tuned / "rows.jsonl", tuned / "search.json")
    )
    names = experiment_names(profile)
    extensions = load_extensions(REPORT_SECTIONS, ReportExtension)
    parts = {name: extension.load(workspace) for name, extension in extensions.items()}
    before = [read_identity(evaluated / name) for name in names]
    if searches is not None:
        before.append(read_identity(tuned))
    before += [identity for part in parts.values() for identity in part.identities]
    inputs = ReportInputs(
        rows=tuple(evaluated / name / "rows.jsonl" for name in names),
        split=split if _has_simulated(profile) else None,
        histories={
            path.parent.name: path
            # Of experiments with cells of one name the first counts.
            for name in reversed(names)
            for path in sorted((train / name).glob(f"*-{MAIN}-s*/history.csv"))
        },
        curves=section.curves,
        scatter=tuple(evaluated / name / "scatter.json" for name in names),
        settings=_settings(profile, sweep),
        labels=variant_labels(profile),
        # Fitted baselines have folders of other names beside the cells.
        trained=tuple(
            path.parent for name in names for path in sorted((train / name).glob("*-s[0-9]*/done.json"))
        ),
        sweep=sweep if sweep.is_dir() else None,
        searches=searches,
        search_paths=paths,
        provenance={
            "code": ", ".join(sorted({identity.code_digest for identity in before})),
            "profile": workspace.name,
            "random stream of the intervals": f"seed {section.seed}",
        },
        tpugraphs=TpuGraphsInputs(
            settings=_variant_settings(profile),
            collections=read_collection_sizes(workspace.stage("features") / "layout" / PRIMARY_CHIP),
            overheads=read_overheads(workspace.stage("machine") / "evaluate" / name for name in names),
        ),
        tables=tuple(workspace.root / name for name in section.tables),
        evidence=section.evidence,
        parts=parts,
    )
    written = write_report(inputs, workspace.reports, section.seed)
    write_frame(written.frame, workspace.out / "results.parquet")
    machine, overheads = workspace.stage("machine"), inputs.tpugraphs.overheads
    write_wall_times(inputs.trained, machine)
    times = write_machine_overheads(overheads, written.findings, machine)
    identity = identify(__name__, section, before[0].data_digest, *before)
    provenance = Provenance(identity.params_digest, identity.data_digest, git_revision(workspace.root))
    for part in parts.values():
        times += part.write_machine_facts(machine)
    _track(workspace, names, provenance, written, (overhead_metrics(overheads), times))
    _log.info("%s", written.pages[0])


def _has_simulated(params: Params) -> bool:
    """Whether any experiment is over simulated samples, which the stage `split` describes."""
    return any("data" not in _mapping(one) for one in _mapping(params.sections.get(SECTION)).values())


def _settings(params: Params, sweep: Path) -> Settings:
    """Section `train` and what the sweep found, as the tables of hyper-parameters want it."""
    train = params.sections.get("train")
    tasks = {name: train[name] for name in LEARNED if name in train} if isinstance(train, Mapping) else {}
    tuned = {name: {"section train": settings} for name, settings in tasks.items()}
    for name, settings in tasks.items():
        path = sweep / f"{name}.yaml"
        best = load_yaml(path).get("model") if path.exists() else None
        if isinstance(best, Mapping):
            tuned[name]["best of sweep"] = merge(settings, best)
    return {"train": tasks, "tuned": tuned}


def _variant_settings(params: Params) -> Settings:
    """Task -> variant -> settings of the variants that tpugraphs2023 lists."""
    sections = params.sections
    train, experiments = (_mapping(sections.get(name)) for name in ("train", "experiments"))
    found: dict[str, dict[str, object]] = {}
    for entry in map(_mapping, experiments.values()):
        task = str(entry.get("task"))
        base = merge(_mapping(train.get(task)), _mapping(entry.get("settings")))
        for name, changes in _mapping(entry.get("variants")).items():
            if is_of_paper(name):
                found.setdefault(task, {})[name] = merge(base, _mapping(changes))
    return found


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _track(
    workspace: Workspace,
    names: tuple[str, ...],
    provenance: Provenance,
    written: ReportFiles,
    machine: tuple[Mapping[str, float], tuple[Path, ...]],
) -> None:
    wall_times, files = machine
    tags = {"profile": workspace.name, "experiment": ",".join(names), KIND: "report"}
    with tracked_run(tracking_uri(), _EXPERIMENT, workspace.name, provenance, tags) as tracked:
        tracked.log_metrics({**written.headline, **wall_times})
        # Side by side as in the report's folder, so that its links work there too.
        for name in ("tables", "figures", "pages"):
            tracked.log_folder(workspace.reports / name)
        tracked.log_files(written.pages[:1], "")
        tracked.log_files([written.summary, *written.claims], "report")
        if files:
            tracked.log_files(list(files), "machine")
