"""Models of several workloads: features that mean the same in all of them, and fits to samples of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from costbench.arrays import F32, I64
from costbench_schedules.experiments.tables.tables import TableFile, features_of, runtimes
from costbench_schedules.features.trees import stack_trees
from costbench_schedules.features.vectors import fill_columns
from costbench_schedules.models.learner import ScheduleModel, samples_of
from costbench_schedules.models.spec import READS_TREES, ScheduleModelSpec, learner_of


def distinct_columns(rows: F32) -> I64:
    """Returns the places of the columns that tell rows apart, the first of equal ones, int64 [k], ascending.

    Boosted trees split at the same places with and without the others, and grow faster without.
    """
    first = np.sort(np.unique(rows, axis=1, return_index=True)[1])
    varied = first[np.ptp(rows[:, first], axis=0) > 0.0]
    return np.asarray(varied if len(varied) else first[:1], dtype=np.int64)


def joint_features(files: Sequence[TableFile], model: ScheduleModelSpec) -> list[Any]:
    """Returns the features of all configurations of each table, as one model can read them.

    Rows are filled up to the width of the widest table and lose the columns that tell no schedules apart.
    """
    parts: list[Any] = [features_of(one, model.representation) for one in files]
    if model.model in READS_TREES:
        return parts
    width = max(rows.shape[1] for rows in parts)
    parts = [fill_columns(rows, width) for rows in parts]
    columns = distinct_columns(np.concatenate(parts))
    return [np.ascontiguousarray(rows[:, columns]) for rows in parts]


def fitted_to(
    sources: Sequence[TableFile],
    features: Sequence[Any],
    model: ScheduleModelSpec,
    samples: int,
    drawing: tuple[np.random.Generator, int],
) -> ScheduleModel[Any]:
    """Returns a model of random schedules of several tables.

    Args:
        sources: the tables.
        features: of all configurations of each.
        model: what is fitted.
        samples: drawn from all tables together.
        drawing: draws the samples; seed of the model.
    """
    times = np.concatenate([runtimes(one) for one in sources])
    groups = np.repeat(np.arange(len(sources)), [len(part) for part in features])
    generator, seed = drawing
    drawn = generator.permutation(len(times))[:samples]
    together = stack_trees(features) if model.model in READS_TREES else np.concatenate(features)
    return learner_of(model).fit(together[drawn], samples_of(times[drawn], groups[drawn]), seed)
