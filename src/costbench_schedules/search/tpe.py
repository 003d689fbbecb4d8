"""Optuna's TPE, the tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), as it comes.

A parameter of numbers is an integer, the number of its value in order; any other is a category. Spaces
are lists and TPE knows none: the listed configuration that is nearest to a proposal and was not measured
takes its place. What failed is infinitely slow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from costbench.arrays import I64
from costbench_schedules.search.replay import Replay


def search_tpe(replay: Replay, rng: np.random.Generator) -> None:
    """Measures what TPE asks for, or the nearest that was not measured, until no trial is left."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=int(rng.integers(2**31)))
    study = optuna.create_study(sampler=sampler)
    listed = replay.space.listed.astype(np.int64)
    names = list(replay.space.parameters)
    distributions: dict[str, Any] = {
        name: optuna.distributions.IntDistribution(0, len(values) - 1)
        if all(isinstance(value, int | float) for value in values)
        else optuna.distributions.CategoricalDistribution([*range(len(values))])
        for name, values in replay.space.parameters.items()
        if len(values) > 1
    }
    varying = [names.index(name) for name in distributions]
    unmeasured = np.ones(len(listed), dtype=bool)
    while replay.left:
        trial = study.ask(distributions)
        asked = np.array([trial.params[name] for name in distributions], dtype=np.int64)
        number = _nearest(listed[:, varying], asked, unmeasured)
        unmeasured[number] = False
        [runtime_ns] = replay.measure([number]).tolist()
        taken = listed[number, varying]
        if np.array_equal(taken, asked):
            study.tell(trial, runtime_ns)
            continue
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        params = dict(zip(distributions, taken.tolist(), strict=True))
        study.add_trial(
            optuna.trial.create_trial(value=runtime_ns, params=params, distributions=distributions)
        )


def _nearest(listed: I64, asked: I64, unmeasured: Any) -> int:
    """Returns the configuration left that differs in the fewest parameters, then in the fewest steps."""
    apart = np.abs(listed - asked)
    distance = (apart > 0).sum(axis=1) * 1_000_000 + apart.sum(axis=1)
    return int(np.argmin(np.where(unmeasured, distance, np.iinfo(np.int64).max)))
