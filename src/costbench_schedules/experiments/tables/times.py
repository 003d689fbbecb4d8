"""Takes wall times of models on recorded schedules: facts of the machine at hand (docs/decisions/0034)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from costbench import rng
from costbench_schedules.experiments.tables.arms import ARMS, TIMED
from costbench_schedules.experiments.tables.tables import TableFile, features_of, runtimes
from costbench_schedules.metrics.model_times import ModelTime
from costbench_schedules.models.learner import samples_of
from costbench_schedules.models.spec import learner_of

_ROUNDS = 2


def model_times(files: Iterable[TableFile], samples: int, seed: int) -> list[ModelTime]:
    """Returns the times of fitting models to random schedules of each table and of predicting all of it.

    Each is the fastest of two rounds, after both libraries have been loaded. All features of a model's
    representation are read, as a search on the machine itself would.

    Args:
        files: tables.
        samples: schedules that are fitted to.
        seed: of the draw.
    """
    return [_timed(file, arm, samples, seed) for file in files for arm in TIMED]


def _timed(file: TableFile, arm: str, samples: int, seed: int) -> ModelTime:
    spec = ARMS[arm].model
    learner = learner_of(spec)
    features: Any = features_of(file, spec.representation)
    runtime_ns = runtimes(file)
    drawn = rng.stream(seed, "schedule times", file.workload).permutation(len(runtime_ns))[:samples]
    own, measured = features[drawn], samples_of(runtime_ns[drawn])
    first = np.arange(min(8, len(drawn)))
    learner.fit(own[first], measured.select(first), seed).predict(own[first])
    fits, predictions = [], []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        model = learner.fit(own, measured, seed)
        fits.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        model.predict(features)
        predictions.append(time.perf_counter() - begun)
    place = (file.target, file.workload, file.operator, arm)
    return ModelTime(*place, min(fits), min(predictions), len(drawn), len(runtime_ns))
