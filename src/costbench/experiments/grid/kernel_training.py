"""Trains cost models of kernels: tile sizes that are ranked, and runtimes of fused kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from costbench.execution.workers import load
from costbench.training.spec import TrainSpec

if TYPE_CHECKING:
    from costbench.experiments.grid.training_run import CellTask, EpochLogger
    from costbench.training.kernel_source import KernelSource
    from costbench.training.spec import AnyTrainSpec, FitResult


@dataclass(frozen=True)
class KernelSources:
    """The kernels for training and those for validation, their estimates' quality and further features."""

    train: KernelSource
    validation: KernelSource
    estimate: str = ""
    features: str = ""

    def fit(self, task: CellTask, spec: AnyTrainSpec, logger: EpochLogger) -> FitResult:
        """Trains by `training.fit.fit`."""
        from costbench.training.fit import fit

        settings, sources = cast("TrainSpec", spec), self
        if (settings.estimate, settings.features) != (self.estimate, self.features):
            sources = KernelTraining().open(replace(task, spec=settings))
        return fit(
            settings,
            sources.train,
            sources.validation,
            task.folder,
            logger=logger,
            progress=task.progress,
        )


@dataclass(frozen=True)
class KernelTraining:
    """The `training_run.Training` of tasks whose samples are kernels."""

    modules: tuple[str, ...] = ("costbench.training.fit",)
    model_files: tuple[str, ...] = ("model.json", "weights.pt")

    def open(self, task: CellTask) -> KernelSources:
        """Returns the training and validation kernels of a cell.

        Raises:
            DataError: for missing or damaged shards.
        """
        load(("costbench.training.kernel_source",))
        from costbench.training.kernel_source import KernelSource

        cache_bytes = task.cache_mb * 1024 * 1024 // 2
        estimate, features = task.spec.estimate, task.spec.features
        train, validation = (
            KernelSource(task.shards(programs), cache_bytes=cache_bytes, estimate=estimate, features=features)
            for programs in (task.split.train, task.split.validation)
        )
        return KernelSources(train, validation, estimate, features)
