"""Gradient-boosted trees on rows of features (autotvm2018, section 3.1), by LightGBM or XGBoost.

Both libraries grow the trees from the same derivatives: those of equation 2, or of the squared error of
`Samples.speed`. The libraries are rows of `LIBRARIES`; a record in docs/decisions says why there are two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from costbench import rng
from costbench.errors import choose
from costbench.models.schedule.boosting import lightgbm_trees, xgboost_trees
from costbench.models.schedule.boosting.spec import BoostingSpec, Derivatives
from costbench.models.schedule.learner import FloatArray, Objective, Samples
from costbench.models.schedule.rank import Pairs

FeatureArray = npt.NDArray[np.float32]
Predictor = Callable[[FeatureArray], FloatArray]
Booster = Callable[[FeatureArray, FloatArray, Derivatives, BoostingSpec, int], tuple[Predictor, str]]

LIBRARIES: Mapping[str, Booster] = {
    "lightgbm": lightgbm_trees.boosted,
    "xgboost": xgboost_trees.boosted,
}


@dataclass(frozen=True, eq=False)
class Trees:
    """A `ScheduleModel` of arrays float32 [n, F].

    Attributes:
        predictor: sum of the trees.
        text: the model in the text format of its library.
    """

    predictor: Predictor
    text: str

    def predict(self, features: FeatureArray, /) -> FloatArray:
        """Returns costs, float64 [n]."""
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

    def fit(self, features: FeatureArray, samples: Samples, seed: int, /) -> Trees:
        """Returns the trees that are boosted from `samples.start`.

        Raises:
            ChoiceError: if the library is not installed.
        """
        drawn = int(rng.stream(seed, "trees").integers(2**31))
        predictor, text = LIBRARIES[self.library](
            features, samples.start, _derivatives(self.objective, samples, seed), self.spec, drawn
        )
        return Trees(predictor, text)


def _derivatives(objective: Objective, samples: Samples, seed: int) -> Derivatives:
    """Returns the derivatives of the objective as a function of costs [n]."""
    if objective == "rank":
        return Pairs(samples, seed).derivatives
    target, ones = -samples.speed, np.ones(len(samples))
    return lambda costs: (costs - target, ones)
