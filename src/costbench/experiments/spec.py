"""What an experiment is one of: the cells of the grid task x split x chip x variant x seed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from costbench.errors import DataError

_NAME = re.compile(
    r"(?P<task>[a-z]+)-(?P<split>[a-z]+)-(?P<chip>[A-Za-z0-9_.]+)-(?P<variant>[a-z0-9_-]+)-s(?P<seed>\d+)"
)


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


def cell_from_name(name: str) -> Cell:
    """The cell that a folder is called after.

    Raises:
        DataError: if it is called after none.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise DataError(f"{name!r} names no cell", expected="a name such as tile-random-tpu_v2-main-s0")
    return Cell(match["task"], match["split"], match["chip"], match["variant"], int(match["seed"]))
