"""Cost models of schedules by name, as parameter files name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from costbench.errors import choose
from costbench_schedules.models.ensemble import ACQUISITIONS, Bootstrap
from costbench_schedules.models.learner import Learner, Objective
from costbench_schedules.models.trees import BoostedTrees


def _tree_gru(objective: Objective, *, context: bool) -> Learner[Any]:
    """Returns a learner of networks. Torch is imported here: searches that trees guide start without it."""
    from costbench_schedules.models.tree_gru import TreeGruLearner, TreeGruSpec

    return TreeGruLearner(objective, TreeGruSpec(context=context))


def _graph_sage(objective: Objective) -> Learner[Any]:
    from costbench_schedules.models.graph_network import GNN, GNN_TRAINING, GraphLearner

    return GraphLearner(objective, GNN, GNN_TRAINING)


def _lstm(objective: Objective) -> Learner[Any]:
    from costbench_schedules.models.graph_network import LSTM, LSTM_TRAINING, GraphLearner

    return GraphLearner(objective, LSTM, LSTM_TRAINING)


MODELS: Mapping[str, Callable[[Objective], Learner[Any]]] = {
    "gbt": BoostedTrees,
    "gbt_xgboost": lambda objective: BoostedTrees(objective, "xgboost"),
    "gnn": _graph_sage,
    "lstm": _lstm,
    "treegru": lambda objective: _tree_gru(objective, context=False),
    "treegru_context": lambda objective: _tree_gru(objective, context=True),
}
GRAPH_NETWORKS = frozenset({"gnn", "lstm"})
"""Networks of the tile task over graphs of loops and statements."""
READS_TREES = frozenset({*GRAPH_NETWORKS, "treegru", "treegru_context"})
"""Models that read the representation "tree"; the others read rows."""


@dataclass(frozen=True)
class ScheduleModelSpec:
    """A cost model and what it reads.

    Attributes:
        model: name of the kind of model, a key of `MODELS`.
        representation: name of what the model reads, a key of `features.vectors.REPRESENTATIONS`.
        objective: what costs are fitted to, "rank" or "regression".
        models: number of bootstrapped models; 1 for one model of all measurements.
        acquisition: function of an ensemble that is searched, a key of `ACQUISITIONS`; "ei" and "ucb" need
            more than one model and the regression objective, whose costs share one scale.

    Raises:
        ChoiceError: for an unknown name.
        ValueError: for a model that cannot read the representation, or choices that do not go together.
    """

    model: str = "gbt"
    representation: str = "relation"
    objective: Objective = "rank"
    models: int = 1
    acquisition: str = "mean"

    def __post_init__(self) -> None:
        choose(MODELS, self.model, "model")
        choose(ACQUISITIONS, self.acquisition, "acquisition function")
        if (self.model in READS_TREES) != (self.representation == "tree"):
            raise ValueError(f"{self.model} does not read the representation {self.representation}")
        if self.models < 1:
            raise ValueError(f"models is {self.models}, expected at least 1")
        if self.acquisition != "mean" and (self.models < 2 or self.objective != "regression"):
            raise ValueError(f"{self.acquisition}: expected several models and the objective regression")


def learner_of(spec: ScheduleModelSpec) -> Learner[Any]:
    """Returns what fits such a model."""
    learner = MODELS[spec.model](spec.objective)
    return learner if spec.models == 1 else Bootstrap(learner, spec.models, spec.acquisition)
