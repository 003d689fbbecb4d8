"""Gradient-boosted trees on rows of features (autotvm2018, section 3.1), by LightGBM or XGBoost.

Both libraries grow the trees from the same derivatives: those of equation 2, or of the squared error of
`Samples.speed`. The libraries are rows of `LIBRARIES`; a record in docs/decisions says why there are two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from costbench import rng
from costbench.arrays import F32, F64
from costbench.errors import DataError, choose
from costbench_schedules.models.boosting import lightgbm_trees, xgboost_trees
from costbench_schedules.models.boosting.spec import BoostingSpec, Derivatives
from costbench_schedules.models.learner import Objective, Samples
from costbench_schedules.models.rank import Pairs

Predictor = Callable[[F32], F64]


@dataclass(frozen=True)
class Library:
    """What grows trees.

    Attributes:
        boosted: features, starting costs, derivatives, settings and seed to the sum of the trees, and to the
            trees as text.
        restored: this text to the sum of the trees.
    """

    boosted: Callable[[F32, F64, Derivatives, BoostingSpec, int], tuple[Predictor, str]]
    restored: Callable[[str], Predictor]


LIBRARIES: Mapping[str, Library] = {
    "lightgbm": Library(lightgbm_trees.boosted, lightgbm_trees.restored),
    "xgboost": Library(xgboost_trees.boosted, xgboost_trees.restored),
}


@dataclass(frozen=True, eq=False)
class Trees:
    """A `ScheduleModel` of arrays float32 [n, F].

    Attributes:
        predictor: sum of the trees.
        library: a name of `LIBRARIES`.
        columns: F.
        text: the model in the text format of its library.
    """

    predictor: Predictor
    library: str
    columns: int
    text: str

    def predict(self, features: F32, /) -> F64:
        """Returns costs, float64 [n].

        Raises:
            DataError: for features of another width than the trees were fitted to.
        """
        if features.shape[1] != self.columns:
            raise DataError(
                f"{features.shape[1]} columns", where="features of schedules", expected=str(self.columns)
            )
        return self.predictor(features)


@dataclass(frozen=True)
class BoostedTrees:
    """A `Learner`.

    Attributes:
        objective: of the costs.
        library: a name of `LIBRARIES`.
        spec: number and size of trees.

    Raises:
        ChoiceError: for an unknown library.
    """

    objective: Objective = "rank"
    library: str = "lightgbm"
    spec: BoostingSpec = field(default_factory=BoostingSpec)

    def __post_init__(self) -> None:
        choose(LIBRARIES, self.library, "library")

    def fit(self, features: F32, samples: Samples, seed: int, /) -> Trees:
        """Returns the trees that are boosted from `samples.start`.

        Raises:
            ChoiceError: if the library is not installed.
        """
        drawn = int(rng.stream(seed, "trees").integers(2**31))
        derivatives = _derivatives(self.objective, samples, seed)
        boosted = LIBRARIES[self.library].boosted
        predictor, text = boosted(features, samples.start, derivatives, self.spec, drawn)
        return Trees(predictor, self.library, features.shape[1], text)


def _derivatives(objective: Objective, samples: Samples, seed: int) -> Derivatives:
    """Returns the derivatives of the objective as a function of costs [n]."""
    if objective == "rank":
        return Pairs(samples, seed).derivatives
    target, ones = -samples.speed, np.ones(len(samples))
    return lambda costs: (costs - target, ones)
