"""The cost models that evaluation compares, by name: each gives one prediction function a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from costbench.experiments.baselines import IterationModel, RandomModel
from costbench.experiments.evaluation import Predict
from costbench.models.analytical import AnalyticalModel
from costbench.target import Architecture


@dataclass(frozen=True)
class ModelSources:
    """What models are made from.

    Attributes:
        architecture: public figures of the chip.
        checkpoints: folders of trained cells, by seed.
        random_seeds: of the random rankings.
    """

    architecture: Architecture
    checkpoints: Mapping[int, Path]
    random_seeds: tuple[int, ...]


BySeed = dict[int, Predict]


def _learned(sources: ModelSources) -> BySeed:
    # The only one that needs torch, which takes a second to import.
    from costbench.models.checkpoint import load_checkpoint

    return {seed: load_checkpoint(path).predict for seed, path in sources.checkpoints.items()}


def _analytical(sources: ModelSources) -> BySeed:
    return {0: AnalyticalModel(sources.architecture).predict}


def _iterations(sources: ModelSources) -> BySeed:
    return {0: IterationModel().predict}


def _random(sources: ModelSources) -> BySeed:
    return {seed: RandomModel(seed).predict for seed in sources.random_seeds}


COST_MODELS: Mapping[str, Callable[[ModelSources], BySeed]] = {
    "learned": _learned,
    "analytical": _analytical,
    "iterations": _iterations,
    "random": _random,
}
