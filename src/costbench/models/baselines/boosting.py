"""One run of LightGBM: what it is given, and when it stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from costbench import rng
from costbench.arrays import F32, F64, I64, AnyArray
from costbench.models.baselines.spec import TreesSpec
from costbench.models.baselines.table import KernelTable

if TYPE_CHECKING:
    import lightgbm


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows for LightGBM.

    Attributes:
        table: gives their weights.
        features: float32 [D, F].
        start: float64 [D], what the trees are added to.
        groups: int64 [K], rows of each kernel, for objectives that compare these; else None.
    """

    table: KernelTable
    features: F32
    start: F64
    groups: I64 | None = None


@dataclass(frozen=True)
class Boosting:
    """Settings of a run.

    Attributes:
        spec: size and speed.
        seed: of the draws of features.
        settings: the objective and its settings, by LightGBM's names.
        score: of start + sum of trees for the validation samples, float64 [D]; higher is better.
    """

    spec: TreesSpec
    seed: int
    settings: Mapping[str, object]
    score: Callable[[F64], float]

    def fit(self, train: Samples, validation: Samples, target: F64) -> str:
        """Return the model of the round with the highest score, in LightGBM's text format.

        Args:
            train: the samples.
            validation: those that are scored after every round.
            target: float64 [D], what start + sum of trees is fitted to.
        """
        import lightgbm

        def feval(output: AnyArray, _: lightgbm.Dataset) -> tuple[str, float, bool]:
            return "score", self.score(np.asarray(output, np.float64)), True

        weights = train.table.row_weights
        known = lightgbm.Dataset(
            train.features,
            target,
            weight=weights / weights.mean(),
            group=train.groups,
            init_score=train.start,
            params=self._parameters(),
        )
        held_out = lightgbm.Dataset(
            validation.features,
            np.zeros(len(validation.features)),
            group=validation.groups,
            init_score=validation.start,
            reference=known,
        )
        booster = lightgbm.train(
            self._parameters(),
            known,
            self.spec.max_trees,
            valid_sets=[held_out],
            feval=feval,
            callbacks=[lightgbm.early_stopping(self.spec.patience, verbose=False)],
        )
        return booster.model_to_string(num_iteration=booster.best_iteration)

    def _parameters(self) -> dict[str, Any]:
        spec = self.spec
        return {
            **self.settings,
            "metric": "None",
            "seed": int(rng.stream(self.seed, "trees").integers(2**31)),
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            "learning_rate": spec.learning_rate,
            "num_leaves": spec.num_leaves,
            "min_data_in_leaf": spec.min_samples,
            "feature_fraction": spec.feature_share,
            "lambda_l2": spec.l2,
        }
