"""Gradient-boosted trees on rows of features (autotvm2018, section 3.1), by LightGBM or XGBoost.

Both libraries grow the trees from the same derivatives: those of equation 2, or of the squared error of
`Samples.speed`. The libraries are rows of `LIBRARIES`; a record in docs/decisions says why there are two.

Equation 2, the rank loss:

    sum over i, j of log(1 + exp(-sign(c_i - c_j) (f_i - f_j)))

c are runtimes and f costs. Pairs are formed within a group only, and pairs of equal runtimes, failures among
them, have no term: their sign is 0, which leaves the constant log 2. The sum here runs over ordered pairs
with c_i > c_j, half of the above. Every term is divided by n - 1, n the size of its group, which leaves the
derivative by one cost at most 1 for any n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from costbench import rng
from costbench.arrays import F32, F64, I64, AnyArray, Bool
from costbench.errors import ChoiceError, DataError, choose
from costbench.installation import install_line
from costbench_schedules.models.learner import Objective, Samples

if TYPE_CHECKING:
    import lightgbm

Derivatives = Callable[[F64], tuple[F64, F64]]
"""Costs [n] to the first and second derivatives of the objective by each, float64 [n] both."""
Predictor = Callable[[F32], F64]
"""Features [n, F] to costs [n]."""


@dataclass(frozen=True)
class BoostingSpec:
    """Number and size of trees. Depth, rate and penalty are those of AutoTVM's own tuner.

    Attributes:
        trees: boosting rounds.
        depth: largest depth of a tree.
        learning_rate: factor that the values of every tree are multiplied by.
        l2: penalty of the squares of leaf values.
        feature_share: share of the features that is drawn for each tree.

    Raises:
        ValueError: for numbers out of range.
    """

    trees: int = 100
    depth: int = 3
    learning_rate: float = 0.3
    l2: float = 1.0
    feature_share: float = 1.0

    def __post_init__(self) -> None:
        if self.trees < 1 or self.depth < 1:
            raise ValueError("trees, depth: at least 1")
        if self.learning_rate <= 0.0 or self.l2 < 0.0:
            raise ValueError("learning_rate: above 0, l2: not negative")
        if not 0.0 < self.feature_share <= 1.0:
            raise ValueError(f"feature_share is {self.feature_share}, must be above 0 and at most 1")


_LARGEST_GROUP = 512
"""Schedules that are compared with each other: a larger group is divided at random, since pairs are as many
as the square."""


class Pairs:
    """The pairs of some samples.

    Args:
        samples: measurements.
        seed: seed of the division of large groups.
    """

    def __init__(self, samples: Samples, seed: int) -> None:
        self._size = len(samples)
        self._parts: list[tuple[I64, Bool]] = []
        for indices in _divide_groups(samples.groups, seed):
            runtimes = samples.runtime_ns[indices]
            self._parts.append((indices, runtimes[:, None] > runtimes))

    def loss(self, costs: F64) -> float:
        """Returns the loss of costs [n]."""
        total = 0.0
        for indices, slower in self._parts:
            margins = (costs[indices][:, None] - costs[indices])[slower]
            total += float(np.logaddexp(0.0, -margins).sum()) / (len(indices) - 1)
        return total

    def derivatives(self, costs: F64) -> tuple[F64, F64]:
        """Returns the first and second derivatives of the loss by each cost, float64 [n] both.

        A term of margin z = f_i - f_j has the derivatives -p by f_i, p by f_j and p (1 - p) by either, with
        p = 1 / (1 + exp(z)).
        """
        first, second = np.zeros(self._size), np.zeros(self._size)
        for indices, slower in self._parts:
            margins = costs[indices][:, None] - costs[indices]
            shares = np.where(slower, 0.5 - 0.5 * np.tanh(0.5 * margins), 0.0)
            curved = shares * (1.0 - shares)
            scale = 1.0 / (len(indices) - 1)
            first[indices] = scale * (shares.sum(axis=0) - shares.sum(axis=1))
            second[indices] = scale * (curved.sum(axis=0) + curved.sum(axis=1))
        return first, second


def _divide_groups(groups: I64, seed: int) -> Sequence[I64]:
    """Returns the indices of each group, large ones in parts of even size; groups of one have no pairs."""
    parts: list[I64] = []
    for group in np.unique(groups).tolist():
        indices = np.flatnonzero(groups == group)
        count = -(-len(indices) // _LARGEST_GROUP)
        if count > 1:
            indices = rng.stream(seed, "rank", group).permutation(indices)
        parts += [part for part in np.array_split(indices, count) if len(part) > 1]
    return parts


@dataclass(frozen=True)
class Library:
    """A library that grows trees.

    Attributes:
        boost: grows trees from features float32 [n, F], starting costs float64 [n], derivatives, settings and
            a seed; returns the sum of the trees, and the trees as text.
        restore: returns the sum of the trees of such a text, unchanged since.
    """

    boost: Callable[[F32, F64, Derivatives, BoostingSpec, int], tuple[Predictor, str]]
    restore: Callable[[str], Predictor]


def _boost_lightgbm(
    features: F32, start: F64, derivatives: Derivatives, spec: BoostingSpec, seed: int
) -> tuple[Predictor, str]:
    """LightGBM grows the trees: part of every installation."""
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
    return _predict_with_lightgbm(booster), booster.model_to_string()


def _restore_lightgbm(text: str) -> Predictor:
    import lightgbm

    return _predict_with_lightgbm(lightgbm.Booster(model_str=text))


def _predict_with_lightgbm(booster: lightgbm.Booster) -> Predictor:
    def predict(features: F32) -> F64:
        costs = booster.predict(features, raw_score=True, num_threads=1)
        return np.asarray(costs, dtype=np.float64).reshape(len(features))

    return predict


def _boost_xgboost(
    features: F32, start: F64, derivatives: Derivatives, spec: BoostingSpec, seed: int
) -> tuple[Predictor, str]:
    """XGBoost grows the trees, as in the paper: part of the extra `cpu`. Its text is JSON."""
    xgboost = _import_xgboost()

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
    return _predict_with_xgboost(booster), booster.save_raw("json").decode()


def _restore_xgboost(text: str) -> Predictor:
    booster = _import_xgboost().Booster({"nthread": 1})
    booster.load_model(bytearray(text.encode()))
    return _predict_with_xgboost(booster)


def _predict_with_xgboost(booster: Any) -> Predictor:
    def predict(features: F32) -> F64:
        margin = np.zeros(len(features))
        costs = booster.inplace_predict(features, predict_type="margin", base_margin=margin)
        return np.asarray(costs, dtype=np.float64).reshape(len(features))

    return predict


def _import_xgboost() -> Any:
    try:
        import xgboost
    except ImportError as error:
        raise ChoiceError(
            "XGBoost is not installed", expected=f"`{install_line('cpu')}`, or the library lightgbm"
        ) from error
    return xgboost


LIBRARIES: Mapping[str, Library] = {
    "lightgbm": Library(_boost_lightgbm, _restore_lightgbm),
    "xgboost": Library(_boost_xgboost, _restore_xgboost),
}


@dataclass(frozen=True, eq=False)
class Trees:
    """A `ScheduleModel` of arrays float32 [n, F].

    Attributes:
        predictor: sum of the trees as a function of features.
        library: name of the library, a key of `LIBRARIES`.
        columns: F, the number of features.
        text: model in the text format of its library.
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
        objective: what the costs are fitted to.
        library: name of the library, a key of `LIBRARIES`.
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
        library_seed = int(rng.stream(seed, "trees").integers(2**31))
        derivatives = _derivatives(self.objective, samples, seed)
        boost = LIBRARIES[self.library].boost
        predictor, text = boost(features, samples.start, derivatives, self.spec, library_seed)
        return Trees(predictor, self.library, features.shape[1], text)


def _derivatives(objective: Objective, samples: Samples, seed: int) -> Derivatives:
    """Returns the derivatives of the objective as a function of costs [n]."""
    if objective == "rank":
        return Pairs(samples, seed).derivatives
    target, ones = -samples.speed, np.ones(len(samples))
    return lambda costs: (costs - target, ones)
