"""Compares recorded runtimes of a real TPU with those of the simulated chip."""

from __future__ import annotations

from os import PathLike

from costbench.datasets.tpugraphs.raw import read_tile_tuning
from costbench.errors import DataError
from costbench.hardware.fidelity import FidelityReport, RecordedKernel, evaluate_fidelity
from costbench.target import Target


def evaluate_file(path: str | PathLike[str], target: Target) -> FidelityReport:
    """Price every recorded (kernel, tile size) of a raw TpuGraphs tile-tuning file and compare.

    Raises:
        DataError: if the file is missing, no tile-tuning file, or holds no run that did not fail.
        UnsupportedKernelError: if the simulated chip can price none of the kernels.
    """
    recorded = [
        RecordedKernel(item.module.name, item.kernel, item.tile_sizes, item.runtime_ns)
        for item in read_tile_tuning(path)
        if len(item.runtime_ns)
    ]
    if not recorded:
        raise DataError("no runs", where=path, expected="tile sizes that were measured and did not fail")
    return evaluate_fidelity(recorded, target)
