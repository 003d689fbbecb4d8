"""The settings of trainings by task: one type for models of kernels, one for those of whole programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, get_type_hints

from costbench.tasks import LEARNED
from costbench.training.spec import LayoutTrainSpec, TrainSpec

AnyTrainSpec = TrainSpec | LayoutTrainSpec
AnySpec = TypeVar("AnySpec", bound=AnyTrainSpec)


@dataclass(frozen=True)
class TrainParams:
    """Section `train`: settings that the variants of experiments change. Seeds are given by the experiments.

    Attributes:
        cache_mb: memory of a process for kernels, which are read repeatedly, in MB.
        tile: network, loss, batches and optimiser for the choice of tile sizes.
        fusion: network, loss, batches and optimiser for runtimes of fused kernels.
        layout: network, loss, samples and optimiser for the layouts of whole programs.
    """

    cache_mb: int
    tile: TrainSpec
    fusion: TrainSpec
    layout: LayoutTrainSpec

    def __post_init__(self) -> None:
        for name in LEARNED:
            if getattr(self, name).seed != 0:
                raise ValueError(f"{name}.seed is taken from experiments, and must be left out")


@dataclass(frozen=True)
class SweptModels:
    """The settings that trials change, by task; None for tasks that are not swept.

    Attributes:
        tile: changes to `train.tile`.
        fusion: changes to `train.fusion`.
        layout: changes to `train.layout`.
    """

    tile: TrainSpec | None = None
    fusion: TrainSpec | None = None
    layout: LayoutTrainSpec | None = None

    @property
    def by_task(self) -> dict[str, AnyTrainSpec]:
        """Returns the settings of the tasks that are swept."""
        settings = {name: getattr(self, name) for name in LEARNED}
        return {name: spec for name, spec in settings.items() if spec is not None}


SPECS: Mapping[str, type[AnyTrainSpec]] = {
    name: hint for name, hint in get_type_hints(TrainParams).items() if name in LEARNED
}
"""Type of the settings by task; parameter files are checked against them."""
