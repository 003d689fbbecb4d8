"""How the models of each task are trained.

Cells carry the entry of their task and do not look it up, so that the code which trains the models of one
task is no part of what those of another follow from.
"""

from __future__ import annotations

from collections.abc import Mapping

from costbench.experiments.grid.training_run import Training, train_cell
from costbench.experiments.grid.trainings.kernels import KernelTraining
from costbench.experiments.grid.trainings.layouts import LayoutTraining
from costbench.experiments.identity import code_digest

TRAININGS: Mapping[str, Training] = {
    "tile": KernelTraining(),
    "fusion": KernelTraining(),
    "layout": LayoutTraining(),
}
"""By task."""


def training_code(task: str) -> str:
    """Return the digest of the code that trains the models of a task."""
    return code_digest(train_cell, type(TRAININGS[task]))
