"""Trains cost models of kernels: tile sizes that are ranked, and runtimes of fused kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from costbench.execution.workers import load
from costbench.features.feature_shards import roofline_of
from costbench.features.roofline import Roofline, write_roofline
from costbench.training.spec import TrainSpec

if TYPE_CHECKING:
    from costbench.experiments.grid.training_run import CellTask, EpochLogger
    from costbench.training.kernel_source import KernelSource
    from costbench.training.spec import AnyTrainSpec, FitResult


@dataclass(frozen=True)
class KernelSources:
    """The kernels for training and those for validation, and what they have beside features and runtimes.

    Attributes:
        train: kernels for training.
        validation: kernels for validation.
        estimate: quality of their estimates; empty for that of the chip's compiler.
        features: dotted path of further features of nodes; empty for none.
        roofline: formula of the estimates that a hybrid of a real machine corrects; None for others.
    """

    train: KernelSource
    validation: KernelSource
    estimate: str = ""
    features: str = ""
    roofline: Roofline | None = None

    def fit(self, task: CellTask, spec: AnyTrainSpec, logger: EpochLogger) -> FitResult:
        """Trains by `training.fit.fit`."""
        from costbench.training.fit import fit
        from costbench.training.kernel_source import draw_kernels

        settings, sources = cast("TrainSpec", spec), self
        if (settings.estimate, settings.features) != (self.estimate, self.features):
            sources = KernelTraining().open(replace(task, spec=settings))
        if sources.roofline is not None:
            write_roofline(task.folder, sources.roofline)
        return fit(
            settings,
            draw_kernels(sources.train, settings.max_kernels, settings.seed),
            sources.validation,
            task.folder,
            logger=logger,
            progress=task.progress,
            pretrained=task.pretrained,
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
        settings = cast("TrainSpec", task.spec)
        estimate, features = settings.estimate, settings.features
        is_hybrid = settings.net.residual != "none"
        roofline = roofline_of(task.shards(task.split.train)) if is_hybrid else None
        train, validation = (
            KernelSource(
                task.shards(programs),
                cache_bytes=cache_bytes,
                estimate=estimate,
                features=features,
                roofline=roofline,
            )
            for programs in (task.split.train, task.split.validation)
        )
        return KernelSources(train, validation, estimate, features, roofline)
