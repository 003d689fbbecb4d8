"""The cost models that are not trained, by name; each builds one prediction function per seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from costbench.compiler.analytical.model import AnalyticalModel
from costbench.experiments.evaluation.baselines import IterationModel, RandomModel
from costbench.experiments.evaluation.scoring import Predict
from costbench.target import Architecture


@dataclass(frozen=True)
class ModelSources:
    """What the models are built from.

    Attributes:
        architecture: public figures of the chip.
        random_seeds: one random ranking each.
    """

    architecture: Architecture
    random_seeds: tuple[int, ...]


BySeed = dict[int, Predict]


def _analytical(sources: ModelSources) -> BySeed:
    return {0: AnalyticalModel(sources.architecture).predict_nest}


def _iterations(sources: ModelSources) -> BySeed:
    return {0: IterationModel().predict_nest}


def _random(sources: ModelSources) -> BySeed:
    return {seed: RandomModel(seed).predict_nest for seed in sources.random_seeds}


COST_MODELS: Mapping[str, Callable[[ModelSources], BySeed]] = {
    "analytical": _analytical,
    "iterations": _iterations,
    "random": _random,
}
