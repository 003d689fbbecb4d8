"""XGBoost grows the trees, as in the paper: the extra `cpu`, the only importer of xgboost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from costbench.arrays import F32, F64, AnyArray
from costbench.errors import ChoiceError
from costbench_schedules.models.boosting.spec import BoostingSpec, Derivatives


def boosted(
    features: F32, start: F64, derivatives: Derivatives, spec: BoostingSpec, seed: int
) -> tuple[Callable[[F32], F64], str]:
    """Returns the sum of the trees as a function of features [n, F], and the model as text (JSON).

    Args:
        features: float32 [n, F].
        start: float64 [n], what the trees are added to.
        derivatives: of the objective.
        spec: number and size of trees.
        seed: of the draws of features.

    Raises:
        ChoiceError: if xgboost is not installed.
    """
    xgboost = _library()

    def objective(costs: AnyArray, _: Any) -> tuple[F64, F64]:
        return derivatives(np.asarray(costs, dtype=np.float64).reshape(-1))

    settings = {
        "base_score": 0.0,
        "disable_default_eval_metric": True,
        "seed": seed,
        "nthread": 1,
        "tree_method": "hist",
        "eta": spec.learning_rate,
        "max_depth": spec.depth,
        "lambda": spec.l2,
        "colsample_bytree": spec.feature_share,
        # Derivatives of the rank loss are shares of 1, where XGBoost's own limit expects a count of samples.
        "min_child_weight": 1e-3,
    }
    data = xgboost.DMatrix(features, base_margin=start)
    booster = xgboost.train(settings, data, spec.trees, obj=objective)

    return _predictor(booster), booster.save_raw("json").decode()


def restored(text: str) -> Callable[[F32], F64]:
    """Returns the sum of the trees of a model that was stored as text, unchanged since.

    Raises:
        ChoiceError: if xgboost is not installed.
    """
    booster = _library().Booster({"nthread": 1})
    booster.load_model(bytearray(text.encode()))
    return _predictor(booster)


def _predictor(booster: Any) -> Callable[[F32], F64]:
    def predict(rows: F32) -> F64:
        found = booster.inplace_predict(rows, predict_type="margin", base_margin=np.zeros(len(rows)))
        return np.asarray(found, dtype=np.float64).reshape(len(rows))

    return predict


def _library() -> Any:
    try:
        import xgboost
    except ImportError as error:
        raise ChoiceError(
            "XGBoost is not installed", expected="`pip install 'costbench[cpu]'`, or the library lightgbm"
        ) from error
    return xgboost
