"""What an experiment is one of: the cells of the grid task x split x chip x variant x seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from costbench.errors import DataError, ParamsError
from costbench.params import load_yaml

_NAME = re.compile(
    r"(?P<task>[a-z]+)-(?P<split>[a-z]+)-(?P<chip>[A-Za-z0-9_.]+)-(?P<variant>[a-z0-9_-]+)-s(?P<seed>\d+)"
)
SECTION = "experiments"
MAIN = "main"
"""The variant without changes; also that of models that are not trained."""
LEARNED = "learned"
_MODELS: Mapping[str, str] = {"hybrid": "hybrid", "tuned": "tuned"}
"""Variants that are cost models in their own right, beside `learned` in every table."""


@dataclass(frozen=True, order=True)
class Cell:
    """One training run.

    Attributes:
        task: the compiler's decision.
        split: which programs are held out.
        chip: what is measured.
        variant: of the experiment.
        seed: of initial weights and sampling.
    """

    task: str
    split: str
    chip: str
    variant: str
    seed: int

    @property
    def name(self) -> str:
        """`tile-random-tpu_v2-main-s0`: names folders and tracked runs."""
        return f"{self.task}-{self.split}-{self.chip}-{self.variant}-s{self.seed}"


def listed_as(cell: Cell, chip: str) -> tuple[str, str]:
    """Model and variant under which the results of a cell on a chip are listed.

    A model tested on a chip that it was not trained for is a variant of its own there.
    """
    model = _MODELS.get(cell.variant, LEARNED)
    variant = cell.variant if model == LEARNED else MAIN
    if chip == cell.chip:
        return model, variant
    return model, f"from-{cell.chip}" if variant == MAIN else f"{variant}-from-{cell.chip}"


def cell_from_name(name: str) -> Cell:
    """The cell that a folder is called after.

    Raises:
        DataError: if it is called after none.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise DataError(f"{name!r} names no cell", expected="a name such as tile-random-tpu_v2-main-s0")
    return Cell(match["task"], match["split"], match["chip"], match["variant"], int(match["seed"]))


def experiment_names(params: Path) -> tuple[str, ...]:
    """Names of all experiments, in the file's order.

    Raises:
        ParamsError: if the section is missing or no mapping.
    """
    section = load_yaml(params).get(SECTION)
    if not isinstance(section, Mapping):
        raise ParamsError("is no mapping", where=params, field=SECTION, expected="experiments by name")
    return tuple(map(str, section))


def selected(params: Path, experiment: str | None) -> tuple[str, ...]:
    """The one experiment that is asked for, or all."""
    return experiment_names(params) if experiment is None else (experiment,)
