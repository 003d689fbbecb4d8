"""What a report is made of: files of the stages, and what is loaded of them once for all sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_
from pathlib import Path

import pandas as pd

from costbench.datasets.layout_graphs import CollectionSize
from costbench.metrics.overhead import Overhead
from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import Standings, rank_models
from costbench.reports.claims.claim import Claim, Side, load_claims
from costbench.reports.claims.contrasts import contrasts, contrasts_on_machine
from costbench.reports.claims.evaluation import (
    NOT_EVALUATED,
    Finding,
    control_false_discoveries,
    derived_rows,
    evaluate_claims,
    look,
)
from costbench.reports.dataset_files import Card, read_cards, read_leakage, read_set_counts
from costbench.reports.extension import ReportPart
from costbench.reports.figures.search_curves import SearchPath, read_paths
from costbench.reports.frame import frame_of, select, stack
from costbench.reports.headline import Headline, HeadlineParams, load_headline
from costbench.reports.machine_searches import search_rows
from costbench.reports.overhead import overhead_rows, without_wall_times
from costbench.reports.results import FOLDS, Cell, Results, load_results
from costbench.reports.scores import ScoreIndex, score_index, scores_of
from costbench.reports.searches import Searches, load_searches
from costbench.reports.tables.hyperparameters import Settings
from costbench.reports.tables.learning_curves import Curves, is_curve, is_rate, learning_curves
from costbench.reports.training_guard import NetworkKey, TrainingGuard, guard_training, network_of
from costbench.reports.training_runs import Budget, Selected, read_budgets, read_selected
from costbench.tasks import LEARNED

HEADLINE_NETWORKS = ("learned", "hybrid")
"""Networks that the first page draws conclusions about."""


@dataclass(frozen=True)
class ReportParams:
    """Section `report`: tables, figures and the page.

    Attributes:
        seed: seed of the bootstrap over programs.
        curves: metric of the training histories that is drawn, by task.
        evidence: page of the profile `evidence`, as a path from the report's folder; empty if that is this
            report.
        tables: files that declare further tables, as paths from the repository's root.
        demo: whether the page is a demonstration: it says so and draws no conclusions on models.
        headline: packed results that the first page and the comparisons on folds rest on; null for the
            report's own.
        real: packed results of the fusion task on a machine that exists, which stand beside those on the
            simulated chip; null for none.
        machine_searches: folder of searches over fusions on a machine that exists, from the repository's
            root; empty for none, and no section where it is not there.
    """

    seed: int
    curves: Mapping[str, str]
    evidence: str
    tables: tuple[str, ...] = ()
    demo: bool = False
    headline: HeadlineParams | None = None
    real: HeadlineParams | None = None
    machine_searches: str = ""


@dataclass(frozen=True)
class ReportInputs:
    """Files that a report is made of.

    Attributes:
        rows: files of result rows, one an experiment.
        split: folder of the stage `split`, whose `leakage.json`, `counts.json` and `card.json` describe the
            simulated samples; None where all results are of imported ones.
        histories: name of a training run -> its curve as CSV; names begin with the task.
        provenance: further facts on where the numbers come from, name -> value.
        scatter: files `scatter.json`, predicted and measured times.
        settings: section -> its parameters, for the tables of hyper-parameters (see `settings_tables`).
        labels: names of variants for people, by name.
        trained: folders of the trained cells, each below that of its experiment.
        sweep: folder of the sweep; None where there is none.
        searches: rows of the stage `autotune`; None where it was not run.
        search_paths: file `search.json` of the stage `autotune`; None where it was not run.
        variant_settings: task -> variant of tpugraphs2023 -> its parameters of training.
        collections: sizes of the collections of layout graphs.
        overheads: times of evaluating a layout config.
        parts: parts that other packages add, by name.
        params: section `report`, with paths from the working directory.
    """

    rows: tuple[Path, ...]
    split: Path | None = None
    histories: Mapping[str, Path] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    scatter: tuple[Path, ...] = ()
    settings: Settings = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    trained: tuple[Path, ...] = ()
    sweep: Path | None = None
    searches: Path | None = None
    search_paths: Path | None = None
    variant_settings: Settings = field(default_factory=dict)
    collections: tuple[CollectionSize, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    parts: Mapping[str, ReportPart] = field(default_factory=dict)
    params: ReportParams = field(default_factory=lambda: ReportParams(0, {}, ""))


@dataclass(frozen=True)
class Front:
    """The results that the first page says of a task: those of the headline, or a report's own.

    Attributes:
        cells: main results.
        standings: name of a cell -> how its models stand to the strongest baseline.
        guard: what their models were given.
        profile: name of the profile whose packed results they are; empty for a report's own.
    """

    cells: tuple[Cell, ...]
    standings: Mapping[str, Standings]
    guard: TrainingGuard
    profile: str = ""


@dataclass(frozen=True)
class Variants:
    """Networks that the papers compare with each other.

    Attributes:
        results: a report's own results, and on folds those of the variants that the headline has in place of
            its own.
        budgets: budgets of their training runs.
        reasons: why a network was not trained enough; those that were are left out.
    """

    results: Results
    budgets: tuple[Budget, ...]
    reasons: Mapping[NetworkKey, str]


@dataclass(frozen=True)
class ReportData:
    """What the sections of a report are made of.

    Attributes:
        inputs: files, and the parts of other packages.
        results: results of evaluation.
        searches: results of the stage `autotune`.
        leakage: leakage audits of the simulated samples (`read_leakage`).
        set_counts: counts of the sets of each split (`read_set_counts`).
        cards: counts and distributions of the simulated samples.
        budgets: budgets of the training runs.
        selected: best validation values of the points of learning curves, and of learning rates.
        curves: learning curves of the report's own results.
        guard: networks that were not trained enough.
        frame: all results, those of searches and of other packages included, but for a user's own programs.
        findings: findings on all claims, with the effects of wall times, which no file of the report has.
        figures: folder that figures go to.
        headline: packed results that the first page rests on; None where there are none.
        real: packed results on a machine that exists; None where there are none.
    """

    inputs: ReportInputs
    results: Results
    searches: Searches
    leakage: pd.DataFrame
    set_counts: pd.DataFrame
    cards: tuple[Card, ...]
    budgets: tuple[Budget, ...]
    selected: tuple[Selected, ...]
    curves: tuple[Curves, ...]
    guard: TrainingGuard
    frame: pd.DataFrame
    findings: tuple[Finding, ...]
    figures: Path
    headline: Headline | None = None
    real: Headline | None = None

    @property
    def seed(self) -> int:
        """Seed of the bootstrap."""
        return self.inputs.params.seed

    @property
    def user_rows(self) -> tuple[pd.DataFrame, ...]:
        """Results of a user's own programs, of evaluation and of searches, those that there are."""
        frames = (self.results.of_user.frame, self.searches.user_rows)
        return tuple(frame for frame in frames if len(frame))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Main results of learned tasks."""
        return tuple(cell for cell in self.results.cells if cell.task in LEARNED)

    @property
    def estimates(self) -> Results:
        """Returns the results for estimates of several qualities: those of the headline where it has any."""
        packed = None if self.headline is None else self.headline.estimates
        return self.results if packed is None else packed

    @cached_property
    def variants(self) -> Variants:
        """Returns the networks that the papers compare with each other."""
        if self.headline is None:
            return Variants(self.results, self.budgets, self.guard.reasons)
        frame = select(self.headline.results.frame, model=Side().model)
        variants = [name for name in frame["variant"].unique() if name != MAIN and not is_curve(name)]
        packed = select(frame, variant=variants)
        keys = ["task", "split", "chip", "model", "variant"]
        of_headline = set(packed[keys].drop_duplicates().itertuples(index=False, name=None))

        def is_of_headline(network: NetworkKey) -> bool:
            task, side = network
            return (task, side.split, side.chip, side.model, side.variant) in of_headline

        # What was said of a network's own training is not true of the headline's in its place.
        own_reasons = {key: why for key, why in self.guard.reasons.items() if not is_of_headline(key)}
        return Variants(
            Results(_with_packed(self.results.frame, packed, keys)),
            (
                *(budget for budget in self.budgets if not is_of_headline(network_of(budget))),
                *(budget for budget in self.headline.budgets if is_of_headline(network_of(budget))),
            ),
            own_reasons | dict(self.headline.guard.reasons),
        )

    @cached_property
    def own_front(self) -> Front:
        """Returns the report's own results."""
        standings = {cell.name: rank_models(self.results, cell, self.seed) for cell in self.cells}
        return Front(self.cells, standings, self.guard)

    @cached_property
    def headline_front(self) -> Front:
        """Returns the results of the headline on folds; without cells where there are none."""
        if self.headline is None:
            return Front((), {}, TrainingGuard())
        results = self.headline.results
        cells = tuple(
            cell
            for cell in results.cells
            if set(HEADLINE_NETWORKS) & set(cell.seeds)
            and (cell.split, cell.chip) == (FOLDS, self.headline.chip)
        )
        standings = {cell.name: rank_models(results, cell, self.seed) for cell in cells}
        return Front(cells, standings, self.headline.guard, self.headline.profile)

    @cached_property
    def front_searches(self) -> Searches:
        """Returns all searches; on a split and chip those of the headline where it has any."""
        if self.headline is None:
            return self.searches
        keys = ["task", "split", "chip"]
        return Searches(_with_packed(self.searches.frame, self.headline.searches.frame, keys))

    @cached_property
    def front_search_paths(self) -> tuple[SearchPath, ...]:
        """Returns the curves of fusion searches among them."""
        packed_paths = () if self.headline is None else self.headline.search_paths
        packed = {(path.task, path.split, path.chip) for path in packed_paths}
        computed = read_paths(self.inputs.search_paths)
        others = (path for path in computed if (path.task, path.split, path.chip) not in packed)
        return (*packed_paths, *others)

    def front(self, task: str) -> Front:
        """Returns the results that the first page says of a task: those of the headline where it has any."""
        has_task = any(cell.task == task for cell in self.headline_front.cells)
        return self.headline_front if has_task else self.own_front

    @property
    def front_cells(self) -> tuple[Cell, ...]:
        """Main results that the first page rests on, of all tasks."""
        return tuple(cell for task in LEARNED for cell in self.front(task).cells if cell.task == task)

    @cached_property
    def printed_findings(self) -> tuple[Finding, ...]:
        """Findings on all claims, without the effects of wall times."""
        return without_wall_times(self.findings)


def _with_packed(computed: pd.DataFrame, packed: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Returns packed rows, and of the computed ones those with other values of the keys."""
    known = pd.MultiIndex.from_frame(packed[keys])
    is_replaced = pd.MultiIndex.from_frame(computed[keys]).isin(known)
    return stack([computed[~is_replaced], packed])


def load_report_data(inputs: ReportInputs, figures: Path) -> ReportData:
    """Returns the data of a report, with all claims decided.

    Args:
        inputs: files of the stages.
        figures: folder that figures go to.

    Raises:
        DataError: if an input is missing or malformed.
    """
    params, seed = inputs.params, inputs.params.seed
    results, searches = load_results(*inputs.rows), load_searches(inputs.searches)
    budgets = read_budgets(inputs.trained)
    rows_of_parts = frame_of((row for part in inputs.parts.values() for row in part.rows), "autotune")
    frame = stack([results.frame, searches.frame, rows_of_parts])
    leakage, counts, card = (
        None if inputs.split is None else inputs.split / name
        for name in ("leakage.json", "counts.json", "card.json")
    )
    claims = (*load_claims(), *(claim for part in inputs.parts.values() for claim in part.claims))
    selected = read_selected(
        inputs.trained, budgets, params.curves, lambda variant: is_curve(variant) or is_rate(variant)
    )
    headline, real = (
        None if packed is None else load_headline(packed, params.curves, claims)
        for packed in (params.headline, params.real)
    )
    curves = learning_curves(results, selected, budgets, params.curves)
    # Networks on folds are held against curves on folds, which the headline has.
    of_headline = () if headline is None else headline.curves
    guard = guard_training(results, budgets, (*curves, *of_headline), claims)
    guard = replace(
        guard,
        reasons=reduce(or_, (dict(part.untrained) for part in inputs.parts.values()), dict(guard.reasons)),
    )
    # Wall times of inference are no results that a file keeps.
    wall_times = frame_of(overhead_rows(inputs.overheads))
    findings = evaluate_claims(
        contrasts(claims, results.scores),
        stack([frame, derived_rows(results.frame), wall_times]),
        seed,
        guard=guard,
    )
    return ReportData(
        inputs=inputs,
        results=results,
        searches=searches,
        leakage=read_leakage(leakage),
        set_counts=read_set_counts(counts),
        cards=read_cards(card),
        budgets=budgets,
        selected=selected,
        curves=curves,
        guard=guard,
        frame=frame,
        findings=(
            *decide_on_headline(findings, claims, headline, seed),
            *find_on_machine(real, search_rows(params.machine_searches), claims, seed),
        ),
        figures=figures,
        headline=headline,
        real=real,
    )


def decide_on_headline(
    findings: tuple[Finding, ...], claims: tuple[Claim, ...], headline: Headline | None, seed: int
) -> tuple[Finding, ...]:
    """Returns the findings with those in place that the headline has all sides of.

    Args:
        findings: findings on a report's own results.
        claims: claims as the papers print them.
        headline: results of the headline; None leaves the findings as they are.
        seed: seed of the bootstrap.
    """
    if headline is None:
        return findings
    every_run, declared = (
        stack([rows, derived_rows(rows)]) for rows in (headline.every_run, headline.results.frame)
    )
    frame = stack([every_run, headline.training_times, headline.searches.frame])
    tested = tuple(
        claim for claim in contrasts(claims, score_index(frame)) if claim.sides and not claim.construction
    )
    before = score_index(declared)
    decided = {
        finding.claim.id: replace(
            look(finding, 1 + _looks_before(finding, before, headline)), profile=headline.profile
        )
        for finding in evaluate_claims(tested, frame, seed, guard=headline.guard, margins_of=claims)
        if finding.verdict != NOT_EVALUATED
    }
    replaced = [decided.pop(finding.claim.id, finding) for finding in findings]
    return control_false_discoveries((*replaced, *decided.values()))


def _looks_before(finding: Finding, before: ScoreIndex, headline: Headline) -> int:
    """Returns how often a claim was looked at before the last of its further runs: 0 without any."""
    claim, looks = finding.claim, [0]
    for side, runs in finding.seeds.items():
        if runs > scores_of(before, claim.task, claim.metric, side).runs > 0:
            columns = {"task": side.task or claim.task, "model": side.model, "variant": side.variant}
            rows = select(headline.further_runs, **columns, chip=side.chip)
            looks.append(sum(headline.looks[name] for name in rows["experiment"].unique()))
    return max(looks)


def find_on_machine(
    real: Headline | None, searches: pd.DataFrame, claims: tuple[Claim, ...], seed: int
) -> tuple[Finding, ...]:
    """Returns the findings on all comparisons that the results on a machine have both sides of.

    Args:
        real: packed results; None for none.
        searches: rows of searches on the machine.
        claims: claims as the papers print them.
        seed: seed of the bootstrap.
    """
    rows = None if real is None else real.every_run
    of_models = [] if rows is None else [rows, derived_rows(rows)]
    frame = stack([*of_models, searches])
    if frame.empty:
        return ()
    asked = contrasts_on_machine(claims, score_index(frame), str(min(frame["chip"])))
    guard = TrainingGuard() if real is None else real.guard
    findings = evaluate_claims(asked, frame, seed, guard=guard, margins_of=claims)
    # Recorded searches had networks of their own, of whose steps the records say nothing.
    searched = set(searches["metric"])
    return tuple(
        replace(finding, steps={}) if finding.claim.metric in searched else finding
        for finding in findings
        if finding.verdict != NOT_EVALUATED
    )
