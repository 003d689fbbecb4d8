"""Trains cost models of layouts, which read whole programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from costbench.training.spec import LayoutTrainSpec

if TYPE_CHECKING:
    from costbench.experiments.grid.training_run import CellTask, EpochLogger
    from costbench.training.spec import AnyTrainSpec, FitResult


@dataclass(frozen=True)
class LayoutGraphFiles:
    """The layout graphs for training and those for validation, which are read by memory map."""

    train: list[Path]
    validation: list[Path]

    def fit(self, task: CellTask, spec: AnyTrainSpec, logger: EpochLogger) -> FitResult:
        """Trains by `training.layout.fit.fit_layout`."""
        from costbench.training.layout.fit import fit_layout

        settings = cast("LayoutTrainSpec", spec)
        return fit_layout(
            settings, self.train, self.validation, task.folder, logger=logger, progress=task.progress
        )


@dataclass(frozen=True)
class LayoutTraining:
    """The `training_run.Training` of tasks whose samples are whole programs with layout configs."""

    modules: tuple[str, ...] = ("costbench.training.layout.fit",)
    model_files: tuple[str, ...] = ("layout_model.json", "weights.pt")

    def open(self, task: CellTask) -> LayoutGraphFiles:
        """Returns the graphs of all collections that the cell's programs are in.

        Raises:
            DataError: for a program without layout graphs.
        """
        return LayoutGraphFiles(task.shards(task.split.train), task.shards(task.split.validation))
