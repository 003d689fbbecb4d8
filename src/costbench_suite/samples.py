"""What the files of a task are written from: its programs, their sets in each fold, and their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

Sets = Mapping[str, tuple[str, ...]]
"""Programs of a fold by set: `train`, `validation` and `test`."""


@dataclass(frozen=True)
class Samples:
    """What the data of a task is made of.

    Attributes:
        applications: application of each program, in order; the unit that is independent of all others.
        sets: sets of each fold by its number; folds may name programs without samples.
        tables: tables of each program by name, in the same order.
    """

    applications: Mapping[str, str]
    sets: Mapping[int, Sets]
    tables: Iterator[Mapping[str, pa.Table]]


def leave_one_out(applications: Mapping[str, str]) -> dict[int, Sets]:
    """Returns a fold for each application, in order, whose programs are tested by what all others tell.

    There are no validation programs: who needs some divides the training programs.
    """
    return {
        number: {
            "train": tuple(name for name, other in applications.items() if other != application),
            "validation": (),
            "test": tuple(name for name, other in applications.items() if other == application),
        }
        for number, application in enumerate(dict.fromkeys(applications.values()), start=1)
    }
