"""Repeats trained cells that are drawn from an archive, and compares their metric rows with the packed ones.

This is how a fresh clone, or another machine, checks results that it did not compute. Cells are trained and
evaluated by the stages themselves, in a folder of their own beside the profile's samples, so that neither the
profile's results nor a tracking store notice. The folder is kept: a rerun goes on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from costbench import rng
from costbench.artifacts import write_json
from costbench.datasets.recorded_kernels import is_recorded
from costbench.errors import DataError
from costbench.execution.workers import NO_FLAGS, BackendFlags
from costbench.experiments.archive import read_archive, read_profile_manifest
from costbench.experiments.evaluation.program import ProgramTask
from costbench.experiments.grid.baseline_fit import baselines_folder
from costbench.experiments.grid.cells import experiment_names
from costbench.experiments.grid.experiment import Experiment, ImportedGrid, load_experiment
from costbench.experiments.grid.training_run import DONE
from costbench.experiments.identity import IDENTITY_FILE, StageIdentity
from costbench.experiments.packed_cells import PackedExperiment
from costbench.experiments.parameter_file import FILE, Params, load_params
from costbench.experiments.stages import evaluate, train
from costbench.experiments.stages.train import KnownCells
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.metrics.rows import MetricRow, read_rows

_SAMPLES = ("generate", "split", "features", "sweep")
"""Stages whose results the repeated cells share with the profile."""


@dataclass(frozen=True)
class RepeatedCell:
    """A cell that was trained and evaluated again.

    Attributes:
        name: experiment and cell, joined by a slash.
        rows: number of its metric rows that the archive has; 0 for a cell whose settings or samples have
            changed, which is not repeated.
        equal: number of rows whose values are equal, bit for bit.
        difference: largest |repeated - packed| / max(1, |packed|) over the rows; infinite if one was not
            computed again, or either value is not finite where the other is.
    """

    name: str
    rows: int
    equal: int
    difference: float


def draw_cells(archive: Path, params: Params, num: int, seed: int) -> dict[str, tuple[str, ...]]:
    """Returns cells drawn at random from those that an archive has results of, by experiment.

    Cells that start from weights of others, and those of imported data, are not drawn: they need what a fresh
    clone has not.

    Args:
        archive: folder of the archive.
        params: parameters of its profile.
        num: number of cells; all are taken where there are fewer.
        seed: seed of the draw.

    Raises:
        DataError: for an archive that is damaged, of another profile, or without such cells.
    """
    packed = _packed_experiments(archive, load_workspace(params).name)
    names = [
        (experiment.name, cell.name)
        for experiment in (load_experiment(params, one) for one in experiment_names(params) if one in packed)
        for cell in experiment.cells
        if f"train/{experiment.name}/{cell.name}/{DONE}" in packed[experiment.name].texts
        and not isinstance(experiment.grid, ImportedGrid)
        and getattr(experiment.variants[cell.variant].spec, "pretrained", None) is None
    ]
    if not names:
        raise DataError("has no cells of the profile that can be repeated", where=archive)
    order = rng.stream(seed, "repeated cells").permutation(len(names))[:num]
    drawn = (names[index] for index in sorted(order))
    return {name: tuple(cell for _, cell in cells) for name, cells in groupby(drawn, lambda pair: pair[0])}


def repeat_cells(
    archive: Path,
    params: Path,
    drawn: Mapping[str, Sequence[str]],
    folder: Path,
    flags: BackendFlags = NO_FLAGS,
) -> Iterator[RepeatedCell]:
    """Trains and evaluates cells of an archive again, an experiment after another, and compares their rows.

    Args:
        archive: folder of the archive.
        params: parameter file of its profile, whose samples have to be there.
        drawn: names of cells by experiment.
        folder: folder of the repeated results.
        flags: choice of the backend.

    Yields:
        each cell.

    Raises:
        DataError: for samples that are missing, or an archive that is damaged or lacks the experiment.
    """
    workspace = load_workspace(load_params(params), flags)
    packed = _packed_experiments(archive, workspace.name)
    copy = _write_params(workspace, folder)
    for name, cells in drawn.items():
        results = _Repeated(packed[name], frozenset(cells), workspace.stage("generate"))
        train.run(copy, name, flags, lambda _, known=results: known)  # type: ignore[misc]
        (folder / "evaluate" / name / IDENTITY_FILE).unlink(missing_ok=True)  # of other cells
        evaluate.run(copy, name, flags, lambda _, known=results: known)  # type: ignore[misc]
        yield from results.compared(read_rows(folder / "evaluate" / name / evaluate.ROWS_FILE))


def _packed_experiments(archive: Path, profile: str) -> dict[str, PackedExperiment]:
    parts = read_archive(archive, read_profile_manifest(archive, profile))
    names = {part.partition("/")[2]: part for part in parts}
    return {name: PackedExperiment(name, parts[part]) for name, part in names.items() if name}


def _write_params(workspace: Workspace, folder: Path) -> Path:
    """Writes the parameters of a profile for another output folder, which shares its samples; their file."""
    folder.mkdir(parents=True, exist_ok=True)
    for stage in _SAMPLES:
        link, samples = folder / stage, workspace.stage(stage)
        if samples.exists() and not link.exists():
            link.symlink_to(os.path.relpath(samples, folder.resolve()))
    out = os.path.relpath(folder, workspace.root)
    run: Any = workspace.params.sections["run"]
    changes = {"root": os.path.relpath(workspace.root, folder), "params": f"{out}/{FILE}", "out": out}
    sections = {**workspace.params.sections, "run": {**run, **changes, "reports": f"{out}/reports"}}
    write_json(folder / FILE, sections)
    return folder / FILE


@dataclass
class _Repeated:
    """What the stages are told of an experiment: the results of all cells but those drawn are known."""

    packed: PackedExperiment
    drawn: frozenset[str]
    generated: Path
    changed: frozenset[str] = frozenset()
    cell_of: dict[tuple[str | int, ...], str] = field(default_factory=dict)
    """Names of the cells of split, chip, program, model, variant and seed: on folds a program tells whose."""

    def restore(
        self, experiment: Experiment, identity: StageIdentity, cells: Mapping[str, str], missing: object
    ) -> KnownCells:
        """Returns all cells but those to repeat; see `KnownResults`."""
        before = self.packed.identity("train")
        packed_cells = self.packed.cells
        if packed_cells is None:
            # Archives that do not say what cells follow from count as a whole.
            is_same = replace(before, code_digest=identity.code_digest) == identity
            packed_cells = dict(cells) if is_same else {}
        self.changed = frozenset(name for name in self.drawn if packed_cells.get(name) != cells[name])
        computed = set(self.drawn - self.changed)
        for split in experiment.splits if computed and experiment.grid.baselines else ():
            # Their roofline says on which kernels of a real machine models are compared.
            for chip in filter(lambda chip: is_recorded(self.generated, chip), experiment.grid.chips):
                computed.add(baselines_folder(Path(), split, chip).name)
        return KnownCells(cells.keys() - computed, identity)

    def restore_rows(self, experiment: Experiment) -> bool:
        """Returns that not all rows are known."""
        return False

    def known_rows(
        self, experiment: Experiment, programs: Mapping[str, ProgramTask]
    ) -> tuple[dict[str, ProgramTask], list[MetricRow]]:
        """Returns the programs that the repeated cells are tested on, with these models alone."""
        tested: dict[str, ProgramTask] = {}
        computed = self.drawn - self.changed
        for name, program in programs.items():
            checkpoints = tuple(model for model in program.checkpoints if model.folder.name in computed)
            for model in checkpoints:
                self.cell_of[program.split, program.chip, program.program, *model.key] = model.folder.name
            if checkpoints:
                fitted = program.fitted if is_recorded(self.generated, program.chip) else None
                tested[name] = replace(
                    program, checkpoints=checkpoints, models=(), fitted=fitted, fitted_to={}, fitted_with={}
                )
        return tested, []

    def compared(self, rows: Sequence[MetricRow]) -> Iterator[RepeatedCell]:
        """Yields each drawn cell with its rows held against those of the archive."""
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in sorted(self.drawn)}
        repeated = {row.key: row.value for row in rows}
        for key, several in self.packed.rows.items():
            cell = self.cell_of.get(key)
            if cell is not None:
                pairs[cell] += [(repeated.get(row.key, math.nan), row.value) for row in several]
        for cell, values in pairs.items():
            name = PurePosixPath(self.packed.name, cell)
            if not values and cell not in self.changed:
                raise DataError("has no rows", where=str(name), expected="results of the same test programs")
            differences = [_difference(*pair) for pair in values]
            yield RepeatedCell(str(name), len(values), differences.count(0.0), max(differences, default=0.0))


def _difference(repeated: float, packed: float) -> float:
    """Returns |repeated - packed| / max(1, |packed|); infinite if one is not finite and the other another."""
    if repeated == packed or (math.isnan(repeated) and math.isnan(packed)):
        return 0.0
    difference = abs(repeated - packed) / max(1.0, abs(packed))
    return difference if math.isfinite(difference) else math.inf
