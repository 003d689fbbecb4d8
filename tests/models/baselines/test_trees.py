"""Trees learn what they are shown and stop where validation says so; relevances follow runtimes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.models.baselines.trees import RankingTrees, RuntimeTrees, relevances
from tests.models.baselines.tables import SPEC, TREES, made_up

MANY = replace(SPEC, trees=replace(TREES, max_trees=120, patience=120))


def test_runtimes_are_learned() -> None:
    table = made_up(0, kernels=200)
    features = table.features.copy()
    features[:, 0] = np.log(table.analytical_ns)
    known = replace(table, features=features)
    predicted = RuntimeTrees.fit(known, known, MANY, 0).predict(known)
    assert np.median(np.abs(predicted / known.runtime_ns - 1.0)) < 0.1


def test_orders_are_learned() -> None:
    train, test = made_up(1, kernels=200, configs=8), made_up(2, configs=8)
    costs = RankingTrees.fit(train, test, MANY, 0).predict(test).reshape(-1, 8)
    runtimes = test.runtime_ns.reshape(-1, 8)
    earlier, later = np.triu_indices(8, 1)
    agree = np.sign(costs[:, earlier] - costs[:, later]) == np.sign(runtimes[:, earlier] - runtimes[:, later])
    assert agree.mean() > 0.85


def test_boosting_ends_where_validation_programs_say() -> None:
    """Validation runtimes that have nothing to do with features: more trees make it worse soon."""
    train, other = made_up(3), made_up(4)
    shuffled = replace(other, runtime_ns=other.runtime_ns[::-1].copy())
    few = RuntimeTrees.fit(train, shuffled, replace(MANY, trees=replace(MANY.trees, patience=5)), 0)
    many = RuntimeTrees.fit(train, train, MANY, 0)
    assert 1 <= few.loaded.num_trees() < many.loaded.num_trees()


def test_relevances_by_hand() -> None:
    """Three distinct runtimes in the first kernel: 31 for the fastest, round(31 / 2) = 16, 0."""
    table = replace(made_up(5, kernels=2), runtime_ns=np.array([30.0, 10.0, 20.0, 20.0, 5.0, 5.0, 5.0, 5.0]))
    assert relevances(table).tolist() == [0.0, 31.0, 16.0, 16.0, 31.0, 31.0, 31.0, 31.0]


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(DataError, match="no trees"):
        RuntimeTrees("tree\nversion=v4\n")


def test_more_configs_than_lambdarank_compares_are_an_error() -> None:
    table = made_up(0, kernels=1, configs=10_001)
    with pytest.raises(DataError, match="10001 configs of a kernel") as refused:
        RankingTrees.fit(table, made_up(1), SPEC, 0)
    assert refused.value.field == "training.configs"
