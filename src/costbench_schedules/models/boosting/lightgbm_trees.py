"""LightGBM grows the trees: part of every installation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from costbench.arrays import F32, F64, AnyArray
from costbench_schedules.models.boosting.spec import BoostingSpec, Derivatives

if TYPE_CHECKING:
    import lightgbm


def boosted(
    features: F32, start: F64, derivatives: Derivatives, spec: BoostingSpec, seed: int
) -> tuple[Callable[[F32], F64], str]:
    """Returns the sum of the trees as a function of features [n, F], and the model as text.

    Args:
        features: float32 [n, F].
        start: float64 [n], what the trees are added to.
        derivatives: of the objective.
        spec: number and size of trees.
        seed: of the draws of features.
    """
    import lightgbm

    def objective(costs: AnyArray, _: lightgbm.Dataset) -> tuple[F64, F64]:
        return derivatives(np.asarray(costs, dtype=np.float64))

    settings = {
        "objective": objective,
        "metric": "None",
        "seed": seed,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
        "learning_rate": spec.learning_rate,
        "max_depth": spec.depth,
        "num_leaves": 2**spec.depth,
        "lambda_l2": spec.l2,
        "feature_fraction": spec.feature_share,
        # A search begins with a few tens of measurements: LightGBM's own limits would grow no tree from them.
        "min_data_in_leaf": 1,
        "min_data_in_bin": 1,
        "min_sum_hessian_in_leaf": 1e-3,
        "feature_pre_filter": False,
    }
    data = lightgbm.Dataset(features, np.zeros(len(features)), init_score=start, params=settings)
    booster = lightgbm.train(settings, data, spec.trees)

    return _predictor(booster), booster.model_to_string()


def restored(text: str) -> Callable[[F32], F64]:
    """Returns the sum of the trees of a model that was stored as text, unchanged since."""
    import lightgbm

    return _predictor(lightgbm.Booster(model_str=text))


def _predictor(booster: lightgbm.Booster) -> Callable[[F32], F64]:
    def predict(rows: F32) -> F64:
        found = booster.predict(rows, raw_score=True, num_threads=1)
        return np.asarray(found, dtype=np.float64).reshape(len(rows))

    return predict
