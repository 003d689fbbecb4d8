"""Names the cells of an experiment's grid: task x split x chip x variant x seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from costbench.compiler.estimate_quality import QUALITIES
from costbench.errors import DataError, ParamsError
from costbench.experiments.parameter_file import SECTION, Params

_NAME = re.compile(
    r"(?P<task>[a-z]+)-(?P<split>[a-z_]+[0-9]*)-(?P<chip>[A-Za-z0-9_.]+)-(?P<variant>[a-z0-9_-]+)-s(?P<seed>\d+)"
)
MAIN = "main"
"""Name of the variant without changes, also used for models that are not trained."""
LEARNED = "learned"
LABEL = "label"
"""Key of a variant: its name for people, which changes no training."""
_MODELS: Mapping[str, str] = {name: name for name in ("hybrid", "tuned", "lpm2021")}
"""Variants that tables list as separate models beside `learned`."""


@dataclass(frozen=True, order=True)
class Cell:
    """One training run.

    Attributes:
        task: the compiler's decision.
        split: split that says which programs are held out; `fold1` and so on for a fold.
        chip: the chip that is measured.
        variant: variant of the experiment.
        seed: seed of initial weights and sampling.
    """

    task: str
    split: str
    chip: str
    variant: str
    seed: int

    @property
    def name(self) -> str:
        """Name of folders and tracked runs, such as `tile-random-tpu_v2-main-s0`."""
        return f"{self.task}-{self.split}-{self.chip}-{self.variant}-s{self.seed}"


def listed_as(cell: Cell, chip: str) -> tuple[str, str]:
    """Returns the model and variant under which the results of a cell on a chip are listed.

    A model that is tested on a chip that it was not trained for is listed as a separate variant.
    """
    name, _, quality = cell.variant.partition("-")
    if quality in QUALITIES:
        # The estimate that a hybrid corrects is its variant, as it is that of the analytical model.
        model, variant = _MODELS.get(name, LEARNED), quality
    else:
        quality, model = "", _MODELS.get(cell.variant, LEARNED)
        variant = cell.variant if model == LEARNED else MAIN
    if chip == cell.chip:
        return model, variant
    return model, f"from-{cell.chip}" if variant == MAIN else f"{variant}-from-{cell.chip}"


def cell_from_name(name: str) -> Cell:
    """Returns the cell with the given name, such as that of a folder.

    Raises:
        DataError: if the name is not that of a cell.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise DataError(f"{name!r} names no cell", expected="a name such as tile-random-tpu_v2-main-s0")
    return Cell(match["task"], match["split"], match["chip"], match["variant"], int(match["seed"]))


def experiment_names(params: Params) -> tuple[str, ...]:
    """Returns the names of all experiments, in the file's order.

    Raises:
        ParamsError: if the section is missing or not a mapping.
    """
    section = params.sections.get(SECTION)
    if not isinstance(section, Mapping):
        raise ParamsError("is no mapping", where=params.path, field=SECTION, expected="experiments by name")
    return tuple(map(str, section))


def selected(params: Params, experiment: str | None) -> tuple[str, ...]:
    """Returns the requested experiment alone, or all of them for None."""
    return experiment_names(params) if experiment is None else (experiment,)


def variant_labels(params: Params) -> dict[str, str]:
    """Returns the names of variants for people, by name, of those that have one, in the file's order."""
    entries = params.sections.get(SECTION)
    labels: dict[str, str] = {}
    for entry in entries.values() if isinstance(entries, Mapping) else ():
        variants = entry.get("variants") if isinstance(entry, Mapping) else None
        for name, changes in variants.items() if isinstance(variants, Mapping) else ():
            if isinstance(changes, Mapping) and LABEL in changes:
                labels.setdefault(str(name), str(changes[LABEL]))
    return labels
