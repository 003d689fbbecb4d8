"""Runs one search of the programs of a table that have estimates, a work item."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench import rng
from costbench.arrays import F32, F64, I64
from costbench.search.space import Rows
from costbench_schedules.experiments.estimated.arms import ARMS, Arm
from costbench_schedules.experiments.estimated.programs import TablePrograms, programs_of
from costbench_schedules.experiments.tables.tables import TableFile
from costbench_schedules.models.trees import BoostedTrees, BoostingSpec
from costbench_schedules.search.finders import Draft, Finder, Listing
from costbench_schedules.search.guided import GuidedSpec, ModelGuided

_TREES = BoostingSpec(feature_share=0.3)
"""As in `experiments.networks.rivals`: many features are alike, and fits take a third of the time."""


@dataclass(frozen=True)
class EstimatedSearch:
    """One search.

    Attributes:
        table: that is searched, where its programs have estimates.
        arm: a name of `ARMS`.
        repeat: number of the repeat.
        trials: of the search.
        draft: see `EstimatedTuning`.
        guided: settings, if trees guide it.
        estimates: folder of the estimates.
        digest: of its `programs.arrow`.
        seed: of the section.
    """

    table: TableFile
    arm: str
    repeat: int
    trials: int
    draft: int
    guided: GuidedSpec
    estimates: Path
    digest: str
    seed: int = 0

    @property
    def name(self) -> str:
        """Key of the work item: names its file and its line in the log."""
        return f"{self.table.target}-{self.table.workload}-{self.arm}-r{self.repeat}"


@dataclass(frozen=True)
class FirstColumn:
    """A `ScheduleModel` whose cost is the first feature: the logarithm of the analytical estimate."""

    def predict(self, features: F32, /) -> F64:
        """Returns the first column, float64 [n]."""
        return features[:, 0].astype(np.float64)


def searched(task: EstimatedSearch) -> I64:
    """Returns the rows of the table that were measured, in this order, int64 [trials] or fewer.

    Repeat r of every arm has the same random numbers, so that arms that begin at random begin alike.
    """
    programs = programs_of(task.table, task.estimates, task.digest)
    arm, space = ARMS[task.arm], programs.space
    draws = rng.stream(task.seed, "searches with estimates", task.table.workload, task.repeat)
    most = min(task.trials, len(programs.places))
    ranked = _ranked(programs, draws)
    if not arm.reads:
        order = ranked if arm.first == "crop" else programs.places[draws.permutation(len(programs.places))]
        return order[:most]
    runtime = dict(zip(programs.places.tolist(), programs.runtime_ns.tolist(), strict=True))
    start = space.rows(_first(arm, ranked, task, draws).tolist())
    guided = _guided(task, arm, programs)(space, draws, start)
    found: list[int] = []
    batch = next(guided)
    while True:
        numbers = space.numbers(batch)
        found += numbers
        try:
            batch = guided.send(np.array([runtime[number] for number in numbers]))
        except StopIteration:
            return np.array(found[:most], dtype=np.int64)


def _ranked(programs: TablePrograms, draws: np.random.Generator) -> I64:
    """Returns the rows in the order of the analytical estimate, equal ones in random order."""
    mixed = draws.permutation(len(programs.places))
    order = mixed[np.argsort(programs.total_ns[mixed], kind="stable")]
    return np.asarray(programs.places[order])


def _first(arm: Arm, ranked: I64, task: EstimatedSearch, draws: np.random.Generator) -> I64:
    """Returns the rows of the first batch; none where it is drawn at random or an earlier model chooses."""
    batch = min(task.guided.batch, task.trials)
    if arm.first == "crop":
        return ranked[:batch]
    if arm.first == "draft":
        return draws.permutation(ranked[: max(task.draft, batch)])[:batch]
    return ranked[:0]


def _guided(task: EstimatedSearch, arm: Arm, programs: TablePrograms) -> ModelGuided[F32]:
    features = _Rows(programs.places, _read(programs, arm))
    estimates = _Rows(programs.places, programs.parts)

    def drafts(rows: Rows) -> F64:
        return FirstColumn().predict(estimates.of(programs.table.space.numbers(rows)))

    def finder(*_: object) -> Finder:
        whole = Listing(programs.space.listed)
        return Draft(whole, drafts, task.draft) if arm.draft else whole

    return ModelGuided(
        lambda rows: features.of(programs.table.space.numbers(rows)),
        BoostedTrees(spec=_TREES),
        task.guided,
        FirstColumn() if arm.residual else None,
        min(task.trials, len(programs.places)),
        finder,
    )


def _read(programs: TablePrograms, arm: Arm) -> F32:
    """Returns what the arm's trees read, float32 [n, F]."""
    if arm.reads == "both":
        return np.concatenate([programs.parts, programs.loops], axis=1)
    return programs.parts if arm.reads == "parts" else programs.loops


@dataclass(frozen=True, eq=False)
class _Rows:
    """Features of programs by their row in the table.

    Attributes:
        places: int64 [n], rows of the table, ascending.
        features: float32 [n, F].
    """

    places: I64
    features: F32

    def of(self, numbers: list[int]) -> F32:
        """Returns the features of some rows."""
        return self.features[np.searchsorted(self.places, numbers)]
