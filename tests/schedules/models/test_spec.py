from __future__ import annotations

from typing import Any

import pytest

from costbench.errors import CostbenchError
from costbench_schedules.models.ensemble import Bootstrap
from costbench_schedules.models.graph_network import GNN, GNN_TRAINING, LSTM, LSTM_TRAINING, GraphLearner
from costbench_schedules.models.spec import (
    GRAPH_NETWORKS,
    MODELS,
    READS_TREES,
    ScheduleModelSpec,
    learner_of,
)
from costbench_schedules.models.tree_gru import TreeGruLearner
from costbench_schedules.models.trees import BoostedTrees


def test_learners_are_what_their_names_say() -> None:
    assert learner_of(ScheduleModelSpec()) == BoostedTrees("rank", "lightgbm")
    assert learner_of(ScheduleModelSpec("gbt_xgboost", "config", "regression")) == BoostedTrees(
        "regression", "xgboost"
    )
    plain = learner_of(ScheduleModelSpec("treegru", "tree", "regression"))
    assert isinstance(plain, TreeGruLearner)
    assert (plain.objective, plain.spec.context) == ("regression", False)
    assert learner_of(ScheduleModelSpec("treegru_context", "tree")) == TreeGruLearner("rank")
    assert learner_of(ScheduleModelSpec("gnn", "tree")) == GraphLearner("rank", GNN, GNN_TRAINING)
    assert learner_of(ScheduleModelSpec("lstm", "tree", "regression")) == GraphLearner(
        "regression", LSTM, LSTM_TRAINING
    )
    several = learner_of(ScheduleModelSpec(objective="regression", models=5, acquisition="ei"))
    assert several == Bootstrap(BoostedTrees("regression"), 5, "ei")


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_has_a_representation(model: str) -> None:
    own, other = ("tree", "relation") if model in READS_TREES else ("relation", "tree")
    learner = learner_of(ScheduleModelSpec(model, own))
    kind: type = BoostedTrees
    if model in READS_TREES:
        kind = GraphLearner if model in GRAPH_NETWORKS else TreeGruLearner
    assert isinstance(learner, kind)
    with pytest.raises((ValueError, CostbenchError)):
        ScheduleModelSpec(model, other)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "forest"},
        {"model": "treegru"},
        {"representation": "tree"},
        {"models": 0},
        {"acquisition": "luck"},
        {"acquisition": "ei"},
        {"acquisition": "ei", "models": 5},
        {"acquisition": "ucb", "objective": "regression"},
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((ValueError, CostbenchError)):
        ScheduleModelSpec(**changes)
