"""The settings of trainings by task: one type for models of kernels, one for those of whole programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from costbench.training.layout.spec import LayoutTrainSpec
from costbench.training.spec import TrainSpec

AnyTrainSpec = TrainSpec | LayoutTrainSpec
AnySpec = TypeVar("AnySpec", bound=AnyTrainSpec)
SPECS: Mapping[str, type[TrainSpec] | type[LayoutTrainSpec]] = {
    "tile": TrainSpec,
    "fusion": TrainSpec,
    "layout": LayoutTrainSpec,
}
"""By task; parameter files are checked against them."""
