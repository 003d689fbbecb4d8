"""What evaluating one layout config takes: charged seconds beside wall times of the machine at hand.

Wall times are no results: the files are in the folder `machine` of a profile, which is no output of a stage
(decision 0034).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from costbench.artifacts import read_json, write_json
from costbench.errors import DataError
from costbench.params import parse

BATCH = 100
"""Configs of a batch, as in Table 10 of tpugraphs2023."""


@dataclass(frozen=True)
class Overhead:
    """What evaluating one layout config of a program takes, in seconds.

    Attributes:
        split: of the program.
        chip: that it runs on.
        application: of the program.
        program: by name.
        compile_s: charged for compiling it.
        run_s: of the simulated chip, for running it once.
        extraction_s: wall time of extracting the features of its graph, once for all configs.
        batch_s: wall time of scoring a hundred configs, divided by a hundred.
        single_s: wall time of scoring one config.
    """

    split: str
    chip: str
    application: str
    program: str
    compile_s: float
    run_s: float
    extraction_s: float
    batch_s: float
    single_s: float

    def __post_init__(self) -> None:
        for name in ("compile_s", "run_s", "extraction_s", "batch_s", "single_s"):
            if getattr(self, name) <= 0.0:
                raise ValueError(f"{name} is {getattr(self, name)}, must be above 0")


def write_overheads(path: Path, overheads: Iterable[Overhead]) -> None:
    """Writes what was measured, as a list of objects. Raises: DataError, if that is impossible."""
    write_json(path, [asdict(one) for one in sorted(overheads, key=_place)])


def read_overheads(folders: Iterable[Path]) -> tuple[Overhead, ...]:
    """Returns what was measured, by split, chip and program.

    Args:
        folders: of experiments, with a file for each program; those that are not there are passed over.

    Raises:
        DataError: for a file that is no list of such objects.
    """
    found = []
    for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
        content = read_json(path)
        if not isinstance(content, list):
            raise DataError("no list", where=path, expected="one object a program")
        found += [parse(Overhead, one, where=path, field=f"[{i}]") for i, one in enumerate(content)]
    return tuple(sorted(found, key=_place))


def _place(one: Overhead) -> tuple[str, str, str]:
    return one.split, one.chip, one.program
