"""Searches of recorded tables whose programs have estimates of crop2024's analytical model.

What starts a search, what its trees read and who proposes differs between the arms that are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from costbench import rng
from costbench.arrays import F32, F64, I64
from costbench.errors import DataError
from costbench.search.space import Rows
from costbench_schedules.experiments.recorded_tables import TableFile, distinct_columns, features_of, table_of
from costbench_schedules.features.estimates import estimate_features
from costbench_schedules.models.trees import BoostedTrees, BoostingSpec
from costbench_schedules.records.programs import PROGRAMS, read_estimated
from costbench_schedules.records.second_measurements import TwiceMeasured, second_measurements
from costbench_schedules.records.table import RecordedTable
from costbench_schedules.search.finders import Draft, Finder, Listing
from costbench_schedules.search.guided import GuidedSpec, ModelGuided
from costbench_schedules.search.problems import EnumeratedSpace

_TREES = BoostingSpec(feature_share=0.3)
"""As in `experiments.network_models`: many features are alike, and fits take a third of the time."""


@dataclass(frozen=True)
class Arm:
    """A way of searching; trees that learn while the search goes on guide all but two.

    Attributes:
        reads: features that the trees read: context relation features of `loops`, `parts` of the analytical
            estimate, or both; empty without trees: programs are then measured in the order of `first`.
        first: programs of the first batch: drawn at random, those that the analytical model finds fastest,
            or drawn at random from a draft by it.
        residual: whether trees learn what the logarithm of the analytical estimate leaves over; it then
            chooses the first batch.
        draft: whether the analytical model proposes the candidates of each batch, of which trees choose.
    """

    reads: Literal["", "loops", "parts", "both"] = "loops"
    first: Literal["random", "crop", "draft"] = "random"
    residual: bool = False
    draft: bool = False


ARMS: Mapping[str, Arm] = {
    "random": Arm(reads=""),
    "crop": Arm(reads="", first="crop"),
    # With features of loops, as in autotvm2018: what the others are compared with.
    "trees": Arm(),
    "trees-crop-first": Arm(first="crop"),
    "trees-parts": Arm("parts"),
    "trees-both": Arm("both"),
    "hybrid": Arm("parts", residual=True),
    "hybrid-both": Arm("both", residual=True),
    "draft-verify": Arm(first="draft", draft=True),
}
"""Arms by name; reports know them under the same names."""


@dataclass(frozen=True, eq=False)
class TablePrograms:
    """The n programs of a table that ran and have estimates.

    Attributes:
        table: whole recorded table.
        indices: rows of the programs in the table, ascending, int64 [n].
        total_ns: estimated runtimes, float64 [n].
        loops: context relation features whose columns tell programs apart, float32 [n, F].
        parts: logarithm of the estimate and `estimate_features`, float32 [n, G].
    """

    table: RecordedTable
    indices: I64
    total_ns: F64
    loops: F32
    parts: F32

    @property
    def runtime_ns(self) -> F64:
        """Returns measured runtimes, float64 [n]."""
        return self.table.columns["runtime_ns"][self.indices].astype(np.float64)

    @cached_property
    def twice(self) -> TwiceMeasured | None:
        """Returns both measurements of the programs; None for a table in which nothing was measured again."""
        twice = second_measurements(self.table)
        return None if twice is None or not len(self.indices) else twice.select(self.indices)

    @property
    def space(self) -> EnumeratedSpace:
        """Returns the programs as a search space."""
        return EnumeratedSpace(self.table.space, self.table.space.rows(self.indices.tolist()))


@lru_cache(16)
def programs_of(file: TableFile, estimates: Path, digest: str) -> TablePrograms:
    """Returns the programs of a table with estimates, possibly none.

    Args:
        file: recorded table.
        estimates: folder of `costbench estimate-networks`.
        digest: digest of its `programs.arrow`, so that a changed file is read again.

    Raises:
        DataError: if a file is damaged, or the estimates are of other measurements.
    """
    path, table = estimates / PROGRAMS, table_of(file)
    estimated = read_estimated(path)
    texts = [operator.text for operator in estimated.operators]
    text = table.space.operator.text
    of_table = np.zeros(len(estimated), dtype=np.bool_)
    if text in texts:
        of_table = estimated.columns["analysed"] & (estimated.columns["operator"] == texts.index(text))
    all_rows = np.arange(len(table), dtype=np.int64)
    row_of = dict(zip(table.unrestricted_numbers(all_rows), all_rows.tolist(), strict=True))
    numbers = estimated.columns["number"][of_table].tolist()
    if not set(numbers) <= set(row_of):
        raise DataError("estimates of programs that the table does not have", where=path, field=text)
    indices = np.array([row_of[number] for number in numbers], dtype=np.int64)
    order = np.argsort(indices, kind="stable")
    indices, rows = indices[order], np.flatnonzero(of_table)[order]
    if not np.array_equal(estimated.columns["native_ns"][rows], table.columns["runtime_ns"][indices]):
        expected = f"those of {file.path.name}; run analyse-tables and estimate-networks again"
        raise DataError("estimates beside other measurements", where=path, field=text, expected=expected)
    values = {name: column[rows] for name, column in estimated.estimates.items()}
    loops = np.asarray(features_of(file, "relation"))[indices]
    parts = np.zeros((0, 1), np.float32)
    if len(rows):
        loops = np.ascontiguousarray(loops[:, distinct_columns(loops)])
        lanes = estimated.columns["lanes"][rows].astype(np.float64)
        parts = np.column_stack([np.log(values["total"]), estimate_features(values, lanes)])
        parts = parts.astype(np.float32)
    return TablePrograms(table, indices, values["total"], loops, parts)


@dataclass(frozen=True)
class EstimatedSearch:
    """One search, a work item.

    Attributes:
        table: table that is searched, where its programs have estimates.
        arm: name of the way of searching, a key of `ARMS`.
        repeat: number of the repeat.
        trials: number of trials.
        draft: number of programs that the analytical model proposes for a batch, of arms with a draft.
        guided: settings of Algorithm 1, if trees guide the search.
        estimates: folder of the estimates.
        digest: digest of its `programs.arrow`.
        seed: seed of the section.
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


def replay_search(task: EstimatedSearch) -> I64:
    """Returns the rows of the table that were measured, in this order, int64 [trials] or fewer.

    Repeat r of every arm has the same random numbers, so that arms that begin at random begin alike.
    """
    programs = programs_of(task.table, task.estimates, task.digest)
    arm, space = ARMS[task.arm], programs.space
    draws = rng.stream(task.seed, "searches with estimates", task.table.workload, task.repeat)
    trials = min(task.trials, len(programs.indices))
    # In the order of the analytical estimate, equal ones in random order.
    mixed = draws.permutation(len(programs.indices))
    ranked = programs.indices[mixed[np.argsort(programs.total_ns[mixed], kind="stable")]]
    if not arm.reads:
        if arm.first != "crop":
            ranked = programs.indices[draws.permutation(len(programs.indices))]
        return np.asarray(ranked[:trials])
    runtime_ns = dict(zip(programs.indices.tolist(), programs.runtime_ns.tolist(), strict=True))
    first = _first_batch(arm, ranked, task, draws)
    proposals = _guided_strategy(task, arm, programs)(space, draws, space.rows(first.tolist()))
    measured: list[int] = []
    batch = next(proposals)
    while True:
        numbers = space.numbers(batch)
        measured += numbers
        try:
            batch = proposals.send(np.array([runtime_ns[number] for number in numbers]))
        except StopIteration:
            return np.array(measured[:trials], dtype=np.int64)


def _first_batch(arm: Arm, ranked: I64, task: EstimatedSearch, draws: np.random.Generator) -> I64:
    """Returns the rows of the first batch; none where it is drawn at random or an earlier model chooses."""
    batch = min(task.guided.batch, task.trials)
    if arm.first == "crop":
        return ranked[:batch]
    if arm.first == "draft":
        return draws.permutation(ranked[: max(task.draft, batch)])[:batch]
    return ranked[:0]


def _guided_strategy(task: EstimatedSearch, arm: Arm, programs: TablePrograms) -> ModelGuided[F32]:
    table_space = programs.table.space
    features = {"loops": programs.loops, "parts": programs.parts}.get(arm.reads)
    if features is None:
        features = np.concatenate([programs.parts, programs.loops], axis=1)

    def positions(rows: Rows) -> I64:
        return np.searchsorted(programs.indices, table_space.numbers(rows))

    def finder(*_: object) -> Finder:
        listing = Listing(programs.space.listed)
        if not arm.draft:
            return listing
        return Draft(listing, lambda rows: FirstColumn().predict(programs.parts[positions(rows)]), task.draft)

    return ModelGuided(
        lambda rows: features[positions(rows)],
        BoostedTrees(spec=_TREES),
        task.guided,
        FirstColumn() if arm.residual else None,
        min(task.trials, len(programs.indices)),
        finder,
    )
