"""Cells whose results an archive has: they are neither trained nor evaluated again (decision 0068).

The results of a cell are current while its settings, all samples and section `evaluate` are what they were,
whatever code computed them, and under whatever name: git keeps an archive for longer than code stays as it
is. Their rows say which revision computed them. Weights are not packed, so cells that others start from or
that are asked for costs are trained all the same.

The stages are handed `PackedCells`, which passes on unchanged what earlier runs have computed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path, PurePosixPath
from shutil import rmtree

from costbench.artifacts import parse_json, read_json, seal
from costbench.baselines import BASELINES
from costbench.datasets.splits import read_split, reported_split
from costbench.errors import DataError
from costbench.execution.dotted import is_dotted
from costbench.experiments.archive import (
    FILES,
    HISTORIES,
    ROWS,
    SCHEMAS,
    Part,
    Record,
    metric_row,
    part_of,
    read_parts,
    records_of,
    table_of,
    write_results,
)
from costbench.experiments.autotuning.work_items import load_tuned, tuned_cells, tuned_experiment
from costbench.experiments.evaluation.program import EvaluateParams, ModelKey, ProgramTask
from costbench.experiments.grid.baseline_fit import DONE, baselines_folder
from costbench.experiments.grid.cells import cell_from_name, listed_as
from costbench.experiments.grid.experiment import Experiment, ImportedGrid
from costbench.experiments.identity import (
    IDENTITY_FILE,
    StageIdentity,
    identify,
    read_identity,
    source_identities,
)
from costbench.experiments.stages import evaluate
from costbench.experiments.stages.train import CELLS_FILE, KnownCells
from costbench.experiments.workspace import Workspace
from costbench.features.feature_shards import sample_paths
from costbench.metrics.rows import MetricRow
from costbench.params import parse
from costbench.programs.manifest import user_programs

_log = logging.getLogger(__name__)
VARIABLE = "COSTBENCH_ARCHIVE"
_WEIGHTS = "weights.pt"
_BASELINES = "baselines-"
_REVISION_LENGTH = 8


def packed_cells(folder: Path | None = None) -> Callable[[Workspace], PackedCells | None]:
    """Returns a function that finds the packed cells of a profile, for the stages `train` and `evaluate`.

    It returns None where there is no archive to look in, or its rows are of fewer programs than are tested.

    Args:
        folder: folder of the archive; for None that of the environment variable COSTBENCH_ARCHIVE, if any.
    """
    archive = folder or Path(os.environ.get(VARIABLE, ""))

    def cells_of(workspace: Workspace) -> PackedCells | None:
        if not archive.name:
            return None
        if user_programs(workspace.programs):
            _log.info("%s: has no results on programs of yours, so that all is computed", archive)
            return None
        return PackedCells(archive, workspace)

    return cells_of


@dataclass(frozen=True)
class PackedExperiment:
    """An experiment of an archive."""

    name: str
    part: Part

    @cached_property
    def texts(self) -> dict[str, str]:
        """Returns the contents of its files by their paths."""
        return {str(path): str(text) for path, text in records_of(self.part.tables[FILES])}

    @cached_property
    def cells(self) -> dict[str, str] | None:
        """Returns what its cells and sets of baselines follow from; None in archives that do not say."""
        path = f"train/{self.name}/{CELLS_FILE}"
        return _parse_cells(parse_json(self.texts[path].encode(), path)) if path in self.texts else None

    def identity(self, stage: str) -> StageIdentity:
        """Returns what its folder of a stage followed from. Raises: DataError, if that is missing."""
        path = f"{stage}/{self.name}/{IDENTITY_FILE}"
        text = self.texts.get(path, "null")
        return parse(StageIdentity, parse_json(text.encode(), path), where=path, error=DataError)

    @cached_property
    def histories(self) -> dict[str, list[Record]]:
        """Returns the rows of its learning curves by cell."""
        histories: dict[str, list[Record]] = {}
        for record in records_of(self.part.tables[HISTORIES]):
            histories.setdefault(str(record[1]), []).append(record)
        return histories

    @cached_property
    def tested(self) -> set[tuple[str, str, str]]:
        """Returns split, chip and name of the programs that it has rows of."""
        return {(row.split, row.chip, row.program) for rows in self.rows.values() for row in rows}

    @cached_property
    def rows(self) -> dict[tuple[str | int, ...], list[MetricRow]]:
        """Returns its rows by split, chip, program, model, variant and seed."""
        rows: dict[tuple[str | int, ...], list[MetricRow]] = {}
        for row in map(metric_row, records_of(self.part.tables[ROWS])):
            key = (row.split, row.chip, row.program, row.model, row.variant, row.seed)
            rows.setdefault(key, []).append(row)
        return rows


@dataclass(frozen=True)
class PackedCells:
    """Cells of a profile whose results an archive has.

    Attributes:
        folder: folder of the archive, which may not exist yet.
        workspace: workspace of the profile.
    """

    folder: Path
    workspace: Workspace

    @cached_property
    def _section(self) -> EvaluateParams:
        return self.workspace.params.section("evaluate", EvaluateParams)

    @cached_property
    def _experiments(self) -> dict[str, PackedExperiment]:
        """Returns the experiments of the archive that were evaluated as the parameters ask."""
        parts = read_parts(self.folder, self.workspace.name)
        names = [name.partition("/")[2] for name in parts]
        packed = {name: PackedExperiment(name, parts[part_of("train", name)]) for name in names if name}
        return {name: one for name, one in packed.items() if self._is_evaluated_alike(one)}

    def _is_evaluated_alike(self, packed: PackedExperiment) -> bool:
        trained = packed.identity("train")
        sources = source_identities(self._section.models)
        now = identify(evaluate.__name__, self._section, trained.data_digest, trained, *sources)
        return now.params_digest == packed.identity("evaluate").params_digest

    def _unchanged(self, experiment: Experiment, trained: StageIdentity) -> PackedExperiment | None:
        """Returns the packed experiment, if all of its parameters and samples are what they were."""
        packed = self._experiments.get(experiment.name)
        # Of a user's own models, which stand beside baselines, no digest tells whether they have changed.
        has_own_models = experiment.grid.baselines and any(map(is_dotted, self._section.models))
        if packed is None or has_own_models:
            return None
        before = packed.identity("train")
        return packed if replace(before, code_digest=trained.code_digest) == trained else None

    def _sources(
        self, experiment: Experiment, trained: StageIdentity, cells: Mapping[str, str]
    ) -> dict[str, tuple[PackedExperiment, str]]:
        """Returns where the archive has the current results of cells and baselines: experiment and name.

        Their digests do not name the programs that they are tested on: rows of all of these have to be there.
        """
        unchanged = self._unchanged(experiment, trained)
        # Of the same name first.
        in_order = sorted(self._experiments.values(), key=lambda packed: packed.name != experiment.name)
        tested = {where: self._tested(experiment, *where) for where in set(map(_where, cells))}
        sources: dict[str, tuple[PackedExperiment, str]] = {}
        for packed in in_order:
            packed_cells = packed.cells
            if packed_cells is None:
                packed_cells = dict(cells) if packed is unchanged else {}
            same = packed_cells if packed.name == experiment.name else {}
            names = {follows_from: name for name, follows_from in packed_cells.items()}
            for name, follows_from in cells.items():
                if packed is not unchanged and not tested[_where(name)] <= packed.tested:
                    continue
                if same.get(name) == follows_from:
                    sources.setdefault(name, (packed, name))
                elif follows_from in names and not name.startswith(_BASELINES):
                    sources.setdefault(name, (packed, names[follows_from]))
        return sources

    def _tested(self, experiment: Experiment, split: str, chip: str) -> set[tuple[str, str, str]]:
        """Returns split, chip and name of the programs that models of a split and chip are tested on."""
        grid = experiment.grid
        if isinstance(grid, ImportedGrid):  # whose programs its samples name
            return set()
        features = self.workspace.stage("features")
        return {
            (reported_split(split), tested_on, program)
            for program in read_split(self.workspace.stage("split") / f"{split}.json").test
            for tested_on in (grid.chips if grid.transfer else (chip,))
            if sample_paths(features, grid.task, tested_on, program)
        }

    def restore(
        self,
        experiment: Experiment,
        identity: StageIdentity,
        cells: Mapping[str, str],
        missing: Collection[str],
    ) -> KnownCells:
        """Writes the current results of missing cells and baselines, but for rows; see `KnownResults`.

        Where any model is evaluated, the baselines without a budget or quality of their own are fitted: they
        say on which kernels of a real machine all models are compared.
        """
        sources = self._sources(experiment, identity, cells)
        known = {name: sources[name] for name in cells if name in sources and name in missing}
        for name in self._asked_for_costs(experiment):
            known.pop(name, None)
        if len(known) < len(cells) or self._unchanged(experiment, identity) is None:
            grid = experiment.grid
            for split, chip in product(experiment.splits, grid.chips):
                known.pop(baselines_folder(Path(), split, chip).name, None)
        self._write(experiment.name, known)
        revisions = {packed.part.entry.git_revision[:_REVISION_LENGTH] for packed, _ in known.values()}
        computed_by = f" (revision {', '.join(sorted(revisions))})" if revisions else ""
        computed, again = len(missing) - len(known), len(sources.keys() & set(missing)) - len(known)
        _log.info(
            "%s: %d of %d cells and baselines come from %s%s, %d are computed%s",
            experiment.name, len(known), len(cells), self.folder, computed_by, computed,
            f", {again} of them for their weights" if again else "",
        )  # fmt: skip
        codes = {packed.identity("train").code_digest for packed, _ in known.values()}
        is_theirs = len(known) == len(cells) and len(codes) == 1
        return KnownCells(known, replace(identity, code_digest=codes.pop()) if is_theirs else identity)

    def _asked_for_costs(self, experiment: Experiment) -> set[str]:
        """Returns the cells of an experiment whose models the autotuners ask."""
        section = self.workspace.params.sections.get("autotune")
        tuned = section.values() if isinstance(section, Mapping) else ()
        listed = [str(model) for one in tuned if isinstance(one, Mapping) for model in one.get("models", ())]
        models = [model for model in listed if tuned_experiment(model) == experiment.name]
        asked = [load_tuned(self.workspace.params, model) for model in models]
        return {cell.name for one in asked for cells in tuned_cells(one).values() for cell in cells}

    def _write(self, experiment: str, known: Mapping[str, tuple[PackedExperiment, str]]) -> None:
        """Writes what the stage `train` would leave of cells and baselines, but for weights."""
        files: list[Record] = []
        histories: list[Record] = []
        for name, (packed, source) in known.items():
            # Weights of an unfinished training would pass for its own.
            rmtree(self.workspace.stage("train") / experiment / name, ignore_errors=True)
            folder = PurePosixPath("train", packed.name, source)
            for path, text in packed.texts.items():
                if PurePosixPath(path).parent == folder:
                    files.append((f"train/{experiment}/{name}/{PurePosixPath(path).name}", text))
            timing = f"machine/train/{experiment}/{name}.json"
            # As where a cell takes over the files of another, nobody timed it.
            files += [(timing, packed.texts[timing])] if timing in packed.texts and source == name else []
            histories += [(experiment, name, *row[2:]) for row in packed.histories.get(source, ())]
        empty = {file: table_of(file, ()) for file in SCHEMAS}
        contents = {FILES: table_of(FILES, files), HISTORIES: table_of(HISTORIES, histories)}
        write_results(self.workspace.out, {**empty, **contents})

    def restore_rows(self, experiment: Experiment) -> bool:
        """Writes all results of an experiment of which nothing has weights; see `KnownEvaluations`."""
        folder = self.workspace.stage("train") / experiment.name
        packed = self._unchanged(experiment, read_identity(folder))
        if packed is None or set(self._without_weights(folder)) != set(_read_cells(folder)):
            return False
        folders = [PurePosixPath(*parents, "evaluate", experiment.name) for parents in ((), ("machine",))]
        files = [
            (path, text)
            for path, text in packed.texts.items()
            if not set(folders).isdisjoint(PurePosixPath(path).parents)
        ]
        tables = {**packed.part.tables, HISTORIES: table_of(HISTORIES, ()), FILES: table_of(FILES, files)}
        write_results(self.workspace.out, tables)
        for restored in folders:
            (self.workspace.out / restored).mkdir(parents=True, exist_ok=True)  # as the stage leaves it
            seal(self.workspace.out / restored, f"`costbench evaluate --experiment {experiment.name}`")
        _log.info("%s: all %d rows come from %s", experiment.name, packed.part.entry.rows, self.folder)
        return True

    def _without_weights(self, folder: Path) -> Iterator[str]:
        """Yields the names of an experiment's cells and baselines that cannot be asked for costs."""
        for name in _read_cells(folder):
            needed = DONE if name.startswith(_BASELINES) else _WEIGHTS
            if not (folder / name / needed).exists():
                yield name

    def known_rows(
        self, experiment: Experiment, programs: Mapping[str, ProgramTask]
    ) -> tuple[dict[str, ProgramTask], list[MetricRow]]:
        """Returns programs with the models that have weights, and rows of others; see `KnownEvaluations`."""
        folder = self.workspace.stage("train") / experiment.name
        sources = self._sources(experiment, read_identity(folder), _read_cells(folder))
        known = {folder / name: sources[name] for name in self._without_weights(folder) if name in sources}
        left: dict[str, ProgramTask] = {}
        rows: list[MetricRow] = []
        for name, program in programs.items():
            for (packed, key), (model, variant, seed) in _listed(program, known):
                packed_rows = packed.rows.get((program.split, program.chip, program.program, *key), [])
                rows += [replace(row, model=model, variant=variant, seed=seed) for row in packed_rows]
            left[name] = replace(
                program,
                checkpoints=tuple(model for model in program.checkpoints if model.folder not in known),
                fitted_to={key: path for key, path in program.fitted_to.items() if path not in known},
                fitted_with={key: path for key, path in program.fitted_with.items() if path not in known},
            )
        if known:
            names = experiment.name, len(rows), len(known), self.folder
            _log.info("%s: %d rows of %d cells and baselines come from %s", *names)
        return left, rows


def _where(name: str) -> tuple[str, str]:
    """Returns the split and the chip of a cell or a set of baselines, by its name."""
    _, split, chip = name.split("-")[:3]
    return split, chip


def _read_cells(folder: Path) -> dict[str, str]:
    """Returns the same of the trained experiment in a folder. Raises: DataError, if it is missing."""
    path = folder / CELLS_FILE
    if not path.exists():
        raise DataError("not there", where=path, expected="the stage `train` to run again")
    return _parse_cells(read_json(path))


def _parse_cells(content: object) -> dict[str, str]:
    """Returns what cells and baselines follow from, by name; of anything else, nothing."""
    return {str(key): str(value) for key, value in content.items()} if isinstance(content, dict) else {}


def _listed(
    program: ProgramTask, known: Mapping[Path, tuple[PackedExperiment, str]]
) -> Iterator[tuple[tuple[PackedExperiment, ModelKey], ModelKey]]:
    """Yields the packed experiment, the key of its rows, and the key of ours, of each known model."""
    for checkpoint in program.checkpoints:
        if checkpoint.folder in known:
            packed, source = known[checkpoint.folder]
            model, variant = listed_as(cell_from_name(source), program.chip)
            yield (packed, (model, variant, checkpoint.seed)), checkpoint.key
    fitted = {(quality, 0): folder for quality, folder in program.fitted_to.items()}
    for (variant, seed), folder in {**fitted, **program.fitted_with}.items():
        for model in BASELINES if folder in known else ():
            yield (known[folder][0], (model, variant, seed)), (model, variant, seed)
