"""Stage `report`: tables, figures, `summary.json` and the page, from the results of the other stages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from costbench.artifacts import seal
from costbench.datasets.layout_graphs import read_collection_sizes
from costbench.errors import DataError
from costbench.experiments.grid.cells import MAIN, experiment_names, variant_labels
from costbench.experiments.identity import (
    IDENTITY_FILE,
    StageIdentity,
    git_revision,
    identify,
    read_identity,
)
from costbench.experiments.parameter_file import SECTION, Params, load_params
from costbench.experiments.tracking.runs import KIND, Provenance, tracked_run, tracking_uri
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.extensions import REPORT_SECTIONS, load_extensions
from costbench.metrics.overhead import read_overheads
from costbench.params import load_yaml, merge
from costbench.reports.extension import ReportExtension, ReportPart
from costbench.reports.frame import write_frame
from costbench.reports.inputs import ReportInputs, ReportParams
from costbench.reports.overhead import overhead_metrics, write_machine_overheads
from costbench.reports.report import write_report
from costbench.reports.results import PRIMARY_CHIP
from costbench.reports.tables.hyperparameters import Settings
from costbench.reports.tables.tpugraphs import is_of_paper
from costbench.reports.training_runs import write_wall_times
from costbench.tasks import LEARNED

_log = logging.getLogger(__name__)
_EXPERIMENT = "costbench/report"


def run(params: Path, *, partial: bool = False) -> None:
    """Renders the results, and keeps tables and figures as artifacts of a tracked run.

    Args:
        params: parameter file of the profile.
        partial: whether experiments that are not finished are left out; the page names them.

    Raises:
        CostbenchError: for wrong parameters, or stages that have not finished.
    """
    profile = load_params(params)
    workspace = load_workspace(profile)
    folder, names = workspace.stage("evaluate"), experiment_names(profile)
    evaluated = [name for name in names if not partial or (folder / name / IDENTITY_FILE).is_file()]
    section = profile.section("report", ReportParams)
    extensions = load_extensions(REPORT_SECTIONS, ReportExtension)
    parts = {name: extension.load(workspace) for name, extension in extensions.items()}
    tuned = workspace.stage("autotune")
    searched = [tuned] if (tuned / "rows.jsonl").is_file() else []
    identities = [read_identity(path) for path in (*(folder / name for name in evaluated), *searched)]
    identities += [identity for part in parts.values() for identity in part.identities]
    if not identities:
        raise DataError("no finished experiment", where=folder, expected="one or more of this profile")
    inputs = _collect_inputs(profile, evaluated, workspace, section, parts, identities)
    written = write_report(inputs, workspace.reports)
    write_frame(written.frame, workspace.out / "results.parquet")
    machine, overheads = workspace.stage("machine"), inputs.overheads
    write_wall_times(inputs.trained, machine)
    machine_files = write_machine_overheads(overheads, written.findings, machine)
    for part in parts.values():
        machine_files += part.write_machine_facts(machine)
    for folder in (workspace.reports, machine):
        seal(folder, "`costbench report`")
    identity = identify(__name__, section, identities[0].data_digest, *identities)
    provenance = Provenance(identity.params_digest, identity.data_digest, git_revision(workspace.root))
    tags = {"profile": workspace.name, "experiment": ",".join(evaluated), KIND: "report"}
    with tracked_run(tracking_uri(), _EXPERIMENT, workspace.name, provenance, tags) as tracked:
        tracked.log_metrics({**written.headline, **overhead_metrics(overheads)})
        # Side by side as in the report's folder, so that its links work there too.
        for name in ("tables", "figures", "pages"):
            tracked.log_folder(workspace.reports / name)
        tracked.log_files(written.pages[:1], "")
        tracked.log_files([written.summary, *written.claims], "report")
        if machine_files:
            tracked.log_files(list(machine_files), "machine")
    _log.info("%s", written.pages[0])


def _collect_inputs(
    profile: Params,
    names: Sequence[str],
    workspace: Workspace,
    section: ReportParams,
    parts: Mapping[str, ReportPart],
    identities: Sequence[StageIdentity],
) -> ReportInputs:
    """Returns the files of the experiments called `names` and of stages, and what is shown beside them."""
    unfinished = ", ".join(name for name in experiment_names(profile) if name not in names)
    experiments = _mapping(profile.sections.get(SECTION)).values()
    train, evaluated, tuned, sweep = (
        workspace.stage(name) for name in ("train", "evaluate", "autotune", "sweep")
    )
    searches, search_paths = (
        path if path.is_file() else None for path in (tuned / "rows.jsonl", tuned / "search.json")
    )
    return ReportInputs(
        rows=tuple(evaluated / name / "rows.jsonl" for name in names),
        split=workspace.stage("split") if any("data" not in _mapping(one) for one in experiments) else None,
        histories={
            path.parent.name: path
            # Of experiments with cells of one name the first counts.
            for name in reversed(names)
            for path in sorted((train / name).glob(f"*-{MAIN}-s*/history.csv"))
        },
        scatter=tuple(evaluated / name / "scatter.json" for name in names),
        settings=_network_settings(profile, sweep),
        labels=variant_labels(profile),
        # Fitted baselines have folders of other names beside the cells.
        trained=tuple(
            path.parent for name in names for path in sorted((train / name).glob("*-s[0-9]*/done.json"))
        ),
        sweep=sweep if sweep.is_dir() else None,
        searches=searches,
        search_paths=search_paths,
        provenance={
            "code": ", ".join(sorted({identity.code_digest for identity in identities})),
            "profile": workspace.name,
            "random stream of the intervals": f"seed {section.seed}",
            **({"not finished, and left out": unfinished} if unfinished else {}),
        },
        variant_settings=_variant_settings(profile),
        collections=read_collection_sizes(workspace.stage("features") / "layout" / PRIMARY_CHIP),
        overheads=read_overheads(workspace.stage("machine") / "evaluate" / name for name in names),
        parts=parts,
        params=_located(section, workspace),
    )


def _located(section: ReportParams, workspace: Workspace) -> ReportParams:
    """Returns the section with paths from the working directory, and without what does not count here."""
    headline, real = (
        packed and replace(packed, results=str(workspace.root / packed.results))
        for packed in (section.headline, section.real)
    )
    searches = workspace.root / section.machine_searches
    located = replace(
        section,
        # A project of the user's has no other report than its own.
        evidence=section.evidence if (workspace.reports / section.evidence).is_file() else "",
        tables=tuple(str(workspace.root / name) for name in section.tables),
        headline=headline,
        real=real,
        machine_searches=str(searches) if section.machine_searches and searches.is_dir() else "",
    )
    # A demonstration draws no conclusions.
    return replace(located, headline=None, real=None, machine_searches="") if section.demo else located


def _network_settings(params: Params, sweep: Path) -> Settings:
    """Returns section `train` and what the sweep chose, as the tables of hyper-parameters want it."""
    train = _mapping(params.sections.get("train"))
    tasks = {name: _mapping(train[name]) for name in LEARNED if name in train}
    tuned = {name: {"section train": settings} for name, settings in tasks.items()}
    for name, settings in tasks.items():
        path = sweep / f"{name}.yaml"
        best = load_yaml(path).get("model") if path.exists() else None
        if isinstance(best, Mapping):
            tuned[name]["best of sweep"] = merge(settings, best)
    return {"train": tasks, "tuned": tuned}


def _variant_settings(params: Params) -> Settings:
    """Returns the settings of the variants that tpugraphs2023 lists, by task and variant."""
    train, experiments = (_mapping(params.sections.get(name)) for name in ("train", SECTION))
    settings: dict[str, dict[str, object]] = {}
    for experiment in map(_mapping, experiments.values()):
        task = str(experiment.get("task"))
        base = merge(_mapping(train.get(task)), _mapping(experiment.get("settings")))
        for name, changes in _mapping(experiment.get("variants")).items():
            if is_of_paper(name):
                settings.setdefault(task, {})[name] = merge(base, _mapping(changes))
    return settings


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
