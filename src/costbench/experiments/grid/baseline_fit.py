"""Fits the baselines of an experiment, once for each of its splits and chips.

They are entries of the store, as trained cells are: a folder is complete once it holds `done.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from costbench.artifacts import digest_files, write_json
from costbench.baselines import BASELINES, FITS_FILE
from costbench.datasets.splits import TrainingPrograms
from costbench.features.feature_shards import paths_of_programs, read_paths, roofline_of
from costbench.features.roofline import write_roofline
from costbench.models.baselines.fitting import fit_all, save_baselines
from costbench.models.baselines.spec import BaselineSpec
from costbench.params import digest
from costbench.store import Entry, KeyedResult, WorkItem, key_of
from costbench.tasks import LEARNED

DONE = "done.json"


def baselines_folder(experiment: Path, split: str, chip: str, *names: str) -> Path:
    """Returns the folder of the baselines of a split and chip inside that of a trained experiment.

    Args:
        experiment: folder of the experiment.
        split: name of the split's file.
        chip: name of the chip.
        names: name of the quality of the estimates that they are fitted to, where it is not that of the
            chip's compiler; or names of a budget and `seed<seed>`.
    """
    return experiment / "-".join(["baselines", split, chip, *filter(None, names)])


@dataclass(frozen=True)
class BaselineTask:
    """Work item: all baselines of a task, split and chip.

    Attributes:
        task: name of the task.
        chip: name of the chip.
        features: folder of the feature shards.
        split: the programs to fit and to validate on; all of them have samples.
        spec: samples and sizes.
        seed: seed of all draws.
        folder: folder of the models.
        code: digest of the code that fits them.
        estimate: quality of the estimates, of which only baselines that read these are fitted; empty for all
            baselines, with the estimates of the chip's compiler.
        budget: name of the budget that `spec` is of, with which only boosted trees are fitted; empty for all
            baselines.
        timing: file for the processor time of each boosted model, a fact of the machine; None for none.
    """

    task: str
    chip: str
    features: Path
    split: TrainingPrograms
    spec: BaselineSpec
    seed: int
    folder: Path
    code: str
    estimate: str = ""
    budget: str = ""
    timing: Path | None = None

    def shards(self, programs: tuple[str, ...]) -> list[Path]:
        """Returns the paths of the programs' feature shards, in order."""
        return paths_of_programs(self.features, self.task, self.chip, programs)

    @cached_property
    def key(self) -> str:
        """Returns a digest of everything that the models depend on."""
        sets = self.split.train, self.split.validation
        shards = [path for programs in sets for path in self.shards(programs)]
        files = digest_files(read_paths(shards, self.estimate), self.features)
        settings = digest(self.spec), str(self.seed), self.code, self.budget
        return key_of(self.task, self.chip, self.estimate, *map(",".join, sets), files, *settings)

    @property
    def entry(self) -> Entry:
        """Returns where the store keeps the models."""
        return Entry(self.folder / DONE, self.key, None)


@dataclass(frozen=True)
class FittedBaselines(KeyedResult):
    """Fitted baselines of a split and chip, stored in their folder as `done.json`.

    Attributes:
        models: their names, sorted.
    """

    models: tuple[str, ...]


def fit_baselines(task: BaselineTask) -> FittedBaselines:
    """Fits the baselines of a split and chip, unless they are there already.

    Raises:
        DataError: for missing or damaged shards, or a folder that cannot be written.
    """
    return task.entry.get(FittedBaselines, lambda: _fit(task))


def fit_item(item: WorkItem[BaselineTask]) -> FittedBaselines:
    """Fits the baselines of a work item, as `fit_baselines` does."""
    return fit_baselines(item.task)


def _fit(task: BaselineTask) -> FittedBaselines:
    train, validation = (task.shards(programs) for programs in (task.split.train, task.split.validation))
    only_boosted = bool(task.budget)
    roofline = roofline_of(train) if LEARNED[task.task].samples == "kernel" else None
    fits = fit_all(
        task.task,
        train,
        validation,
        task.spec,
        task.seed,
        task.estimate,
        only_boosted=only_boosted,
        roofline=roofline,
    )
    if roofline is not None:
        write_roofline(task.folder, roofline)
    save_baselines(task.folder, task.task, {name: fit.model for name, fit in fits.items()})
    boosted = {name: fit for name, fit in fits.items() if BASELINES[name].is_boosted}
    fields = ("kernels", "samples", "trees", "validation")
    given = {name: {field: getattr(fit, field) for field in fields} for name, fit in boosted.items()}
    write_json(task.folder / FITS_FILE, given)
    if task.timing is not None:
        seconds = {name: round(fit.core_seconds, 1) for name, fit in boosted.items()}
        write_json(task.timing, {"core_seconds": seconds})
    return FittedBaselines(task.key, tuple(sorted(fits)))
