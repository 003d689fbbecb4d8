"""What a real machine measured of programs, beside the runtimes in fusion shards (`recorded_generation`).

Columns of a shard hold one runtime of each kernel. The second measurement of each, and the runs of whole
programs with the kernels that they are made of, stand beside it, in a file per program.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import read_json
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError
from costbench.params import parse

RECORDED = "recorded"
"""Key of a shard's metadata that says that a real machine ran its kernels; also a folder beside shards."""


NO_TILE = TileSizes(np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int64))
"""What stands for the tile size of a kernel that has none."""


def is_recorded(data: Path, chip: str) -> bool:
    """Returns whether the samples of a chip are a real machine's; `data` is the folder of the data set."""
    return (data / RECORDED / chip).is_dir()


def measurements_path(data: Path, chip: str, program: str) -> Path:
    """Returns the path of a program's second measurements in a data set."""
    return data / RECORDED / chip / f"{program}.json"


def name_of_recorded(chip: str, program: str) -> str:
    """Returns the name of the compiled program that recorded kernels are views of (`CompiledPrograms`)."""
    return f"{chip}/{program}"


@dataclass(frozen=True)
class WholeProgram:
    """A fusion config of a program, run as a whole.

    Attributes:
        origin: origin of the config, as in `machine_records`.
        kernels: rows in the shard of its distinct kernels, as far as the machine spent time on them.
        runs: runs of each of them in one run of the program.
        first_ns: runtime of the program.
        second_ns: runtime at another time; 0 where it was measured once.
    """

    origin: str
    kernels: tuple[int, ...]
    runs: tuple[int, ...]
    first_ns: int
    second_ns: int

    def add_up(self, kernel_ns: F64) -> float:
        """Returns the sum of the runtimes of its kernels, given those of all kernels in the shard, [k]."""
        return float((np.array(self.runs, np.float64) * kernel_ns[np.array(self.kernels)]).sum())


@dataclass(frozen=True)
class Measurements:
    """What was measured of a program besides the runtimes in its shard.

    Attributes:
        second_ns: second measurement of each kernel, in the order of the shard; 0 where there is none.
        programs: runs of the whole program.
    """

    second_ns: tuple[int, ...]
    programs: tuple[WholeProgram, ...]

    @property
    def again_ns(self) -> F64 | None:
        """Returns the second measurements, float64 [k]; None if any is missing."""
        again = np.array(self.second_ns, np.float64)
        return again if (again > 0.0).all() else None


def read_measurements(data: Path, chip: str, program: str) -> Measurements:
    """Reads what was measured of a program besides the runtimes in its shard.

    Raises:
        DataError: naming the file, if it is missing or something else.
    """
    path = measurements_path(data, chip, program)
    return parse(Measurements, read_json(path), where=path, error=DataError)
