"""Reads the experiments of a parameter file; each is a grid of training runs (cells).

An experiment has its own stages `train@NAME` and `evaluate@NAME`, so a change of one experiment reruns that
one alone. The settings of a run are merged from four sources, where later ones win: the task's settings in
section `train`; the best values of the sweep, if the experiment follows it; the experiment's own changes
(`settings`, such as a smaller budget); and those of the variant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Literal

from costbench.datasets.splits import FOLD_KINDS, FOLDS, FoldsParams, expand_folds
from costbench.errors import ParamsError
from costbench.experiments.grid.cells import LABEL, MAIN, Cell
from costbench.experiments.parameter_file import SECTION, Params
from costbench.experiments.sweeps.best import best_path, read_best
from costbench.models.baselines.spec import TreesBudget
from costbench.params import merge, parse
from costbench.tasks import LearnedTask
from costbench.training.spec import SPECS, AnyTrainSpec

_VARIANT = re.compile(r"[a-z0-9][a-z0-9_-]*")
_SHARE = "share"
OWN = "own"
"""Name of the split that an imported data set comes with."""
_TPUGRAPHS = "tpugraphs:"


@dataclass(frozen=True)
class Grid:
    """Fields of an experiment's entry other than its variants; only the task is required.

    Attributes:
        task: the compiler's decision, of the stage `features`.
        splits: splits of the stage `split`; `folds` and `random_folds` stand for every fold, `own` for that
            of an imported data set. The first of `split.names` where it is left out.
        chips: chips of the stage `features`, by name; the first of `features.chips` where it is left out.
        seeds: seeds of the training runs, one run each.
        baselines: whether the models that are not trained are evaluated, too.
        transfer: whether models are also tested on chips that they were not trained for.
        follows: the stage that training depends on: `features`, or `sweep`, whose best values then replace
            those in section `train`.
        estimates: qualities of estimates, of `features.estimates`, with which the baselines that read an
            estimate are fitted and evaluated, too; needs `baselines`.
    """

    task: LearnedTask
    splits: tuple[Literal["random", "manual", "folds", "random_folds", "own"], ...]
    chips: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    baselines: bool = False
    transfer: bool = False
    follows: Literal["features", "sweep"] = "features"
    estimates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.estimates and not self.baselines:
            raise ValueError(f"estimates are {list(self.estimates)}, which need baselines: true")
        for name in ("splits", "chips", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")
        if OWN in self.splits and not isinstance(self, ImportedGrid):
            raise ValueError(f"splits are {list(self.splits)}, {OWN} needs imported data (key data)")


@dataclass(frozen=True)
class BudgetGrid(Grid):
    """Fields of an experiment that fits boosted trees with several budgets, once for each of its seeds.

    A type of its own: the digests of all other experiments are without its field.

    Attributes:
        budgets: budgets by name, which is the variant of their result rows.
    """

    budgets: Mapping[str, TreesBudget] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.budgets:
            if not _VARIANT.fullmatch(name) or name == MAIN:
                raise ValueError(f"budgets has {name!r}, must be lower-case letters, digits, - and _")


@dataclass(frozen=True)
class ImportedGrid(Grid):
    """Fields of an experiment over an imported data set, whose files do not tell chips apart.

    A type of its own: the digests of all other experiments are without its fields.

    Attributes:
        data: `tpugraphs:DIR`, a folder of TpuGraphs; relative ones start at the repository's root.
        collections: collections to train and test on, such as `layout:xla:random`; empty for all of the task.
    """

    data: str = ""
    collections: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data.removeprefix(_TPUGRAPHS) or not self.data.startswith(_TPUGRAPHS):
            raise ValueError(f"data is {self.data!r}, must be {_TPUGRAPHS}DIR")
        if self.splits != (OWN,):
            raise ValueError(f"splits are {list(self.splits)}, must be [{OWN}] for imported data")
        if len(self.chips) > 1:
            raise ValueError(f"chips are {list(self.chips)}, must be one for imported data")

    @property
    def folder(self) -> str:
        """Returns the folder that `data` names."""
        return self.data.removeprefix(_TPUGRAPHS)


@dataclass(frozen=True)
class _VariantKeys:
    """Keys of a variant that are no settings; the label is read by the report alone."""

    share: float = 1.0
    label: str = ""

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"share is {self.share}, must be above 0 and at most 1")


@dataclass(frozen=True)
class Variant:
    """The settings that the cells of one variant share.

    Attributes:
        spec: settings of the training.
        share: share of the training programs of each application, taken in the order of a seeded draw; above
            0 and at most 1.
    """

    spec: AnyTrainSpec
    share: float = 1.0


@dataclass(frozen=True)
class Experiment:
    """One entry of section `experiments`, its variants resolved.

    Attributes:
        name: name of the entry.
        grid: task, splits, chips and seeds.
        variants: settings by name.
        num_folds: number of folds that `folds`, or `random_folds`, among the splits stands for.
    """

    name: str
    grid: Grid
    variants: Mapping[str, Variant]
    num_folds: int = 0

    @property
    def splits(self) -> tuple[str, ...]:
        """Returns the splits by the names of their files, `fold1` and so on in place of `folds`."""
        return expand_folds(self.grid.splits, self.num_folds)

    @property
    def fits_baselines(self) -> bool:
        """Returns whether the stage `train` fits baselines, and so reads section `baselines`."""
        return self.grid.baselines or isinstance(self.grid, BudgetGrid)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Returns all training runs, sorted."""
        grid = self.grid
        combinations = product([grid.task], self.splits, grid.chips, self.variants, grid.seeds)
        return tuple(sorted(Cell(*values) for values in combinations))

    def with_first_seeds(self, num: int | None) -> Experiment:
        """Returns the experiment with the first `num` of its seeds; for None with all of them."""
        return self if num is None else replace(self, grid=replace(self.grid, seeds=self.grid.seeds[:num]))


def load_experiment(params: Params, name: str, swept: Path | None = None) -> Experiment:
    """Returns the experiment called `name`.

    Args:
        params: the parameters of a profile.
        name: name of the entry.
        swept: folder of the sweep, if the experiment follows it; None where only its cells are needed.

    Raises:
        ParamsError: naming the key, if the entry does not exist or a field is unknown, missing or impossible.
    """
    sections, path = params.sections, params.path
    entries = _mapping(sections.get(SECTION), path, SECTION, "experiments by name")
    if name not in entries:
        known = ", ".join(map(str, entries)) or "none"
        raise ParamsError(f"no experiment {name!r}", where=path, field=SECTION, expected=known)
    field = f"{SECTION}.{name}"
    entry = dict(_mapping(entries[name], path, field, "task and variants, maybe splits, chips, seeds"))
    changes = _mapping(entry.pop("variants", {MAIN: {}}), path, f"{field}.variants", "variants by name")
    settings = dict(_mapping(entry.pop("settings", {}), path, f"{field}.settings", "changes, or {} for none"))
    settings.pop(LABEL, None)  # of a variant that they extend
    entry = _defaults(sections) | entry
    kind_of_grid = ImportedGrid if "data" in entry else BudgetGrid if "budgets" in entry else Grid
    grid = parse(kind_of_grid, entry, where=path, field=field)
    train = _mapping(sections.get("train"), path, "train", "settings by task")
    base = _mapping(train.get(grid.task), path, f"train.{grid.task}", "settings of the task")
    if swept is not None and grid.follows == "sweep":
        base = merge(base, read_best(best_path(swept, grid.task)))
    base, kind = merge(base, settings), SPECS[grid.task]
    variants = {
        str(name): _variant(str(name), change, base, kind, path, f"{field}.variants.{name}")
        for name, change in changes.items()
    }
    if not variants and not isinstance(grid, BudgetGrid):
        raise ParamsError("no variants", where=path, field=f"{field}.variants", expected="one or more")
    k = num_folds(sections, path) if {*grid.splits} & {*FOLD_KINDS} else 0
    return Experiment(name, grid, variants, k)


def _defaults(sections: Mapping[str, object]) -> dict[str, object]:
    """Returns the first split and the first chip of a parameter file, as far as it names any."""
    defaults: dict[str, object] = {}
    for key, section, names in (("splits", "split", "names"), ("chips", "features", "chips")):
        mapping = sections.get(section)
        values = mapping.get(names) if isinstance(mapping, Mapping) else None
        if isinstance(values, Sequence) and not isinstance(values, str) and values:
            defaults[key] = [values[0]]
    return defaults


def num_folds(sections: Mapping[str, object], params: Path) -> int:
    """Returns the number of folds, `split.folds.k`.

    Args:
        sections: sections of the parameter file.
        params: the file, for errors.

    Raises:
        ParamsError: if the key is missing or wrong.
    """
    split = _mapping(sections.get("split"), params, "split", "a section with the key folds")
    return parse(FoldsParams, split.get(FOLDS), where=params, field=f"split.{FOLDS}").k


def _variant(
    name: str,
    change: object,
    base: Mapping[str, object],
    kind: type[AnyTrainSpec],
    where: Path,
    field: str,
) -> Variant:
    if not _VARIANT.fullmatch(name):
        expected = "lower-case letters, digits, - and _"
        raise ParamsError("is no name", where=where, field=field, expected=expected)
    changes = dict(_mapping(change, where, field, "changes, or {} for none"))
    keys = {key: changes.pop(key) for key in (_SHARE, LABEL) if key in changes}
    share = parse(_VariantKeys, keys, where=where, field=field).share
    return Variant(parse(kind, merge(base, changes), where=where, field=f"{field}.spec"), share)


def _mapping(value: object, where: Path, field: str, expected: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ParamsError("is no mapping", where=where, field=field, expected=expected)
    return value
