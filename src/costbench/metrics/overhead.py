"""What evaluating one layout config takes: charged seconds beside wall times of the machine at hand.

Wall times are no results: the files are in the folder `machine` of a profile, which is no output of a stage
(decision 0034).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path

from costbench.artifacts import read_json, write_json
from costbench.errors import DataError
from costbench.params import parse

BATCH = 100
"""Configs of a batch, as in Table 10 of tpugraphs2023."""
_ORDER = attrgetter("split", "chip", "program")


@dataclass(frozen=True)
class Overhead:
    """What evaluating one layout config of a program takes, in seconds.

    Attributes:
        split: split that the program is a test program of.
        chip: chip that it runs on.
        application: application family of the program.
        program: name of the program.
        compile_s: seconds charged for compiling it.
        run_s: seconds of the simulated chip for running it once.
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
    write_json(path, [asdict(overhead) for overhead in sorted(overheads, key=_ORDER)])


def read_overheads(folders: Iterable[Path]) -> tuple[Overhead, ...]:
    """Returns what was measured, by split, chip and program.

    Args:
        folders: folders of experiments, with a file for each program; absent ones are passed over.

    Raises:
        DataError: for a file that is no list of such objects.
    """
    overheads: list[Overhead] = []
    for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
        content = read_json(path)
        if not isinstance(content, list):
            raise DataError("no list", where=path, expected="one object a program")
        overheads += [
            parse(Overhead, item, where=path, field=f"[{i}]", error=DataError)
            for i, item in enumerate(content)
        ]
    return tuple(sorted(overheads, key=_ORDER))
