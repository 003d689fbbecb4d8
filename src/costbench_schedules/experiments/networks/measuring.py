"""Which programs to measure on the target, for a model that may measure so many (active learning).

The rule is after the sampler of TCL (Shen et al., 2026, arXiv:2604.12891), which chooses a tenth of the
programs by representativeness, diversity and uncertainty together. How the three are computed and joined is
ours.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from costbench.arrays import F32, F64, I64
from costbench_schedules.models.ensemble import Bootstrap
from costbench_schedules.models.learner import samples_of
from costbench_schedules.models.trees import BoostedTrees, BoostingSpec

_COMPONENTS = 16
_DECIMALS = 6
_NEIGHBOURS = 10
_ROUNDS = 4
_MODELS = 5
_TREES = BoostingSpec(trees=30, feature_share=0.3)


def principal_components(rows: F32, count: int = _COMPONENTS) -> F64:
    """Returns coordinates on the first principal components of scaled columns, float64 [n, <= count].

    Columns have mean 0 and deviation 1 before; those that are constant count nothing. Last digits, which
    differ between processors and would decide between equal programs, are rounded away.
    """
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    deviation = centred.std(axis=0)
    scaled = centred[:, deviation > 0.0] / deviation[deviation > 0.0]
    left, values, _ = np.linalg.svd(scaled, full_matrices=False)
    found: F64 = np.round(left[:, :count] * values[:count], _DECIMALS)
    return found


def chosen_programs(rows: F32, groups: I64, runtime_ns: F64, count: int, seed: int) -> I64:
    """Returns which programs are measured, int64 [min(count, n)], in the order of their choice.

    One by one, that with the highest product of three numbers from 0 to 1 is chosen:

    - representativeness: 1 / (1 + d / m), d the mean distance to the ten nearest programs and m its median;
    - diversity: the distance to the nearest program that is chosen, over the largest such distance;
    - uncertainty: the standard deviation of five bootstrapped models of the programs measured so far, over
      the largest; 1 in the first round, and where all models agree. They are fitted after each quarter.

    Distances are between `principal_components`. Only runtimes of programs that were chosen before are read.

    Args:
        rows: features, [n, F].
        groups: operator of each, [n].
        runtime_ns: on the target, [n].
        count: programs that may be measured.
        seed: of the models.
    """
    points = principal_components(rows)
    size = min(count, len(rows))
    if size == len(rows):
        return np.arange(size, dtype=np.int64)
    found, _ = cKDTree(points).query(points, k=min(_NEIGHBOURS + 1, len(points)))
    near = np.asarray(found)[:, 1:].mean(axis=1)
    weights = 1.0 / (1.0 + near / max(float(np.median(near)), 1e-12))
    uncertainty = np.ones(len(rows))
    distance = np.full(len(rows), np.inf)
    chosen = np.zeros(0, dtype=np.int64)
    for part in range(_ROUNDS):
        until = size * (part + 1) // _ROUNDS
        while len(chosen) < until:
            spread = np.ones(len(rows)) if not len(chosen) else distance / max(float(distance.max()), 1e-12)
            score = weights * spread * uncertainty
            score[chosen] = -1.0
            place = int(np.argmax(score))
            chosen = np.append(chosen, place)
            distance = np.minimum(distance, np.linalg.norm(points - points[place], axis=1))
        if part < _ROUNDS - 1 and len(chosen) > 1:
            uncertainty = _uncertainty(rows, groups, runtime_ns, chosen, seed + part)
    return chosen


def _uncertainty(rows: F32, groups: I64, runtime_ns: F64, chosen: I64, seed: int) -> F64:
    learner = Bootstrap(BoostedTrees("regression", spec=_TREES), _MODELS, "mean")
    fitted = learner.fit(rows[chosen], samples_of(runtime_ns[chosen], groups[chosen]), seed)
    deviation = np.stack([model.predict(rows) for model in fitted.models]).std(axis=0)
    largest = float(deviation.max())
    return np.asarray(deviation / largest) if largest > 0.0 else np.ones(len(rows))
