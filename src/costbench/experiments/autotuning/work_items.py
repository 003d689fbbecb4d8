"""Lists the work items of the stage `autotune`: the programs that are tuned, and the models that are used.

A work item is a decision, a split, a chip and a program. Tile sizes are also tuned for the programs that gain
most from exhaustive search (lpm2021, figure 4, shows four such programs beside the test set). These are
selected by their measured samples among the test programs of other splits, are tuned with the models trained
for the split that tests them, and are listed under the split `gains`. Programs that a fold tests are tuned
with the models of that fold, and listed under `folds`. So no program is tuned with a model that was trained
on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from costbench.datasets.splits import FOLDS, check_split, expand_folds, read_split, reported_split
from costbench.errors import DataError, ParamsError
from costbench.experiments.autotuning.comparison import AutotuneTask
from costbench.experiments.autotuning.fusion_comparison import AutotuneFusionParams
from costbench.experiments.autotuning.tile_comparison import AutotuneTileParams
from costbench.experiments.grid.cells import MAIN, Cell, listed_as
from costbench.experiments.grid.experiment import Experiment, load_experiment, num_folds
from costbench.experiments.parameter_file import Params
from costbench.experiments.workspace import Workspace, chip_files
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.programs.manifest import ProgramEntry, all_programs

_log = logging.getLogger(__name__)
GAINS = "gains"
_T = TypeVar("_T")


def tuned_experiment(model: str) -> str:
    """Returns the experiment of a model that is named `EXPERIMENT` or `EXPERIMENT.VARIANT`."""
    return model.partition(".")[0]


def load_tuned(params: Params, model: str) -> Experiment:
    """Returns the experiment of a model, with its variant alone where the model names one.

    Raises:
        ParamsError: for an experiment or a variant that section `experiments` does not have.
    """
    experiment = load_experiment(params, tuned_experiment(model))
    _, _, variant = model.partition(".")
    if not variant:
        return experiment
    if variant not in experiment.variants:
        problem, expected = f"no variant {variant!r} of {experiment.name}", ", ".join(experiment.variants)
        raise ParamsError(problem, where=params.path, field="autotune.models", expected=expected)
    return replace(experiment, variants={variant: experiment.variants[variant]})


def tuned_cells(experiment: Experiment) -> dict[tuple[str, str, str], tuple[Cell, ...]]:
    """Returns the cells whose weights are asked for costs, in order of their seeds, by task, split and chip.

    They are those of the variant `main`, or of the first one where there is none of that name.
    """
    first = MAIN if MAIN in experiment.variants else next(iter(experiment.variants), MAIN)
    cells: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in sorted(experiment.cells, key=lambda cell: cell.seed):
        if cell.variant == first:
            cells.setdefault((cell.task, cell.split, cell.chip), []).append(cell)
    return {key: tuple(of_key) for key, of_key in cells.items()}


@dataclass(frozen=True)
class ChosenPrograms:
    """The programs whose decisions are tuned.

    Attributes:
        splits: splits whose test programs are tuned; `folds` stands for every fold.
        chips: chips by name.
        max_programs: largest number of programs of each split, evenly spaced in order of name; 0 for all. A
            user's own programs do not count and are always tuned.
        max_instructions: instructions above which a program is left out; 0 for no limit.
        gains: number of programs, besides those of `splits`, that gain most from exhaustive search.
        gain_splits: splits whose test programs they are taken from, by the names of their files (`manual`,
            `fold1`); a program that several test is tuned with the models of the first.
    """

    splits: tuple[str, ...]
    chips: tuple[str, ...]
    max_programs: int = 0
    max_instructions: int = 0
    gains: int = 0
    gain_splits: tuple[str, ...] = ("manual",)

    def __post_init__(self) -> None:
        for name in ("splits", "chips", "gain_splits"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be different ones")
        for name in ("splits", "gain_splits"):
            for split in {*getattr(self, name)} - {FOLDS}:
                check_split(split, name)
        if min(self.max_programs, self.max_instructions, self.gains) < 0:
            raise ValueError("max_programs, max_instructions, gains: at least 0")
        if FOLDS in self.splits and any(reported_split(name) == FOLDS for name in {*self.splits} - {FOLDS}):
            raise ValueError(f"splits are {list(self.splits)}, where {FOLDS} stands for every fold already")
        if any({name, reported_split(name)} & {*self.splits} for name in self.gain_splits):
            raise ValueError(f"gain_splits are {list(self.gain_splits)}, must be none of splits")


@dataclass(frozen=True)
class TileTuning:
    """How tile sizes are tuned.

    Attributes:
        programs: the programs.
        models: experiments, of which the variant `main` or the only one is a model, or `EXPERIMENT.VARIANT`
            for another variant, named as evaluation names it; every seed has results of its own.
        search: settings of the search.
    """

    programs: ChosenPrograms
    models: tuple[str, ...]
    search: AutotuneTileParams = field(default_factory=AutotuneTileParams)


@dataclass(frozen=True)
class FusionTuning:
    """How fusion configs are tuned.

    Attributes:
        programs: the programs.
        models: experiments, of which the variant `main` or the only one is a model, or `EXPERIMENT.VARIANT`
            for another variant, named as evaluation names it; repeats take its seeds in turn.
        search: settings of the search.
    """

    programs: ChosenPrograms
    models: tuple[str, ...]
    search: AutotuneFusionParams = field(default_factory=AutotuneFusionParams)

    def __post_init__(self) -> None:
        if self.programs.gains:
            raise ValueError("programs.gains: only for tile sizes")


@dataclass(frozen=True)
class AutotuneParams:
    """Section `autotune`: cost models in the compiler and in autotuners of programs.

    Attributes:
        tile: the tile autotuner.
        fusion: the fusion autotuner.
        seed: seed of the machine's noise.
    """

    tile: TileTuning
    fusion: FusionTuning
    seed: int = 0


@dataclass(frozen=True)
class TuningItem:
    """Work item: one program to tune.

    Attributes:
        split: name of the split in result rows.
        application: application of the program.
        instructions: number of instructions of the program.
        task: program, models and settings.
    """

    split: str
    application: str
    instructions: int
    task: AutotuneTask

    @property
    def name(self) -> str:
        """Key of the work item: names its file and its line in the log."""
        task = self.task
        return f"{task.decision}-{self.split}-{task.chip}-{task.program}"


@dataclass(frozen=True)
class TuningItems:
    """Lists the work items of a profile.

    Attributes:
        workspace: its folders.
        seed: seed of the machine's noise.
    """

    workspace: Workspace
    seed: int

    @cached_property
    def _entries(self) -> dict[str, ProgramEntry]:
        return {entry.name: entry for entry in all_programs(self.workspace.programs)}

    def _entry(self, name: str) -> ProgramEntry:
        if name not in self._entries:
            expected = "a program that the stage `generate` measured"
            raise DataError(f"no program {name!r}", where=self.workspace.programs, expected=expected)
        return self._entries[name]

    def of(self, decision: str, tuning: TileTuning | FusionTuning) -> Iterator[TuningItem]:
        """Yields the work items of a decision, and logs which programs are too large.

        Raises:
            DataError: for a program that is not in the corpus, or a stage that has not finished.
            ParamsError: for an experiment that section `experiments` does not have.
        """
        chosen, chip_file = tuning.programs, chip_files(self.workspace.params)
        experiments = [load_tuned(self.workspace.params, model) for model in tuning.models]
        for chip in chosen.chips:
            # Name of the split in result rows, split of the models, program.
            programs: list[tuple[str, str, ProgramEntry]] = []
            for split in self._expanded(chosen.splits):
                tested = self._test_programs(decision, split, chip)
                small = self._small_programs(tested, chosen.max_instructions)
                corpus = [entry for entry in small if not entry.is_user_program]
                # A user's own programs come on top, so that those of the corpus stay the same.
                of_user = [entry for entry in small if entry.is_user_program]
                entries = (*evenly_spaced(corpus, chosen.max_programs), *of_user)
                programs += [(reported_split(split), split, entry) for entry in entries]
            programs += [(GAINS, split, entry) for entry, split in self._gaining(chosen, chip)]
            for name, trained_on, entry in programs:
                task = AutotuneTask(
                    decision=decision,
                    file=self.workspace.programs / entry.file,
                    program=entry.name,
                    chip=chip,
                    checkpoints=self._checkpoints(decision, experiments, trained_on, chip),
                    params=tuning.search,
                    seed=self.seed,
                    chip_file=chip_file.get(chip, ""),
                )
                yield TuningItem(name, entry.application, entry.instructions, task)

    def _expanded(self, splits: Sequence[str]) -> tuple[str, ...]:
        """Returns splits by the names of their files."""
        params = self.workspace.params
        k = num_folds(params.sections, params.path) if FOLDS in splits else 0
        return expand_folds(splits, k)

    def _small_programs(self, programs: Sequence[str], max_instructions: int) -> list[ProgramEntry]:
        """Returns the programs of at most so many instructions, or all for 0."""
        entries = []
        for entry in map(self._entry, programs):
            if 0 < max_instructions < entry.instructions:
                sizes = entry.instructions, max_instructions
                _log.info("%s is left out: %d instructions, at most %d", entry.name, *sizes)
            else:
                entries.append(entry)
        return entries

    def _test_programs(self, decision: str, split: str, chip: str) -> list[str]:
        """Returns the test programs of a split that have samples of the decision, as evaluation does."""
        features = self.workspace.stage("features")
        names = sorted(read_split(self.workspace.stage("split") / f"{split}.json").test)
        return [name for name in names if feature_path(features, decision, chip, name).exists()]

    def _gaining(self, chosen: ChosenPrograms, chip: str) -> list[tuple[ProgramEntry, str]]:
        """Returns the programs that gain most, each with the split that tests it, the largest gain first."""
        if not chosen.gains:
            return []
        splits = self._expanded(chosen.splits)
        tested = {name for split in splits for name in self._test_programs("tile", split, chip)}
        features = self.workspace.stage("features")
        gains: dict[str, tuple[float, str]] = {}
        for split in self._expanded(chosen.gain_splits):
            names = self._test_programs("tile", split, chip)
            others = [name for name in names if name not in tested and name not in gains]
            for entry in self._small_programs(others, chosen.max_instructions):
                if entry.is_user_program:
                    continue
                shard = FeatureShard(feature_path(features, "tile", chip, entry.name))
                gains[entry.name] = exhaustive_gain(shard), split
        ordered = sorted(gains, key=lambda name: (-gains[name][0], name))
        return [(self._entry(name), gains[name][1]) for name in ordered[: chosen.gains]]

    def _checkpoints(
        self, decision: str, experiments: Sequence[Experiment], split: str, chip: str
    ) -> dict[str, tuple[Path, ...]]:
        """Returns the folders of each experiment's networks for a split and a chip, by model name."""
        folders = {}
        for experiment in experiments:
            cells = tuned_cells(experiment).get((decision, split, chip), ())
            if cells:
                model, _ = listed_as(cells[0], chip)
                trained = self.workspace.stage("train") / experiment.name
                folders[model] = tuple(trained / cell.name for cell in cells)
        return folders


def evenly_spaced(items: Sequence[_T], count: int) -> Sequence[_T]:
    """Returns `count` of the items at equal distances, from the first on; 0 for all."""
    if not 0 < count < len(items):
        return items
    return [items[number * len(items) // count] for number in range(count)]


def exhaustive_gain(shard: FeatureShard) -> float:
    """Returns what the best measured tile sizes gain.

    It is the program's runtime with the analytical model's tile sizes divided by that with the best ones.

    (sum over kernels of runs x runtime of the lowest estimate) / (sum of runs x lowest runtime)
    """
    chosen = best = 0.0
    runs: Sequence[int] = shard.runs().tolist()
    for index, count in enumerate(runs):
        runtime_ns = shard.runtime_ns(index)
        chosen += count * float(runtime_ns[np.argmin(shard.analytical_ns(index))])
        best += count * float(runtime_ns.min())
    return chosen / best if best else 1.0
