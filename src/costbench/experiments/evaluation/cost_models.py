"""The cost models that are not trained, by name; each builds one prediction function per seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.execution.dotted import is_dotted
from costbench.experiments.evaluation.baselines import IterationModel, RandomModel
from costbench.experiments.evaluation.scoring import Predict
from costbench.models.user_model import GivenModel, load_given_model
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


def given_models(names: Iterable[str], task: str, architecture: Architecture) -> dict[str, GivenModel]:
    """Return the user's own models among some names, as far as they are for a task.

    Raises:
        DataError: for one that cannot be loaded (see `load_given_model`).
    """
    found = {name: load_given_model(name, architecture) for name in names if is_dotted(name)}
    return {name: model for name, model in found.items() if task in model.tasks}
