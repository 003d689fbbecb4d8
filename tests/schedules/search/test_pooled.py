"""Bayesian search over a pool of schedules, on a made-up machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.synthetic_schedules import synthetic_ns
from costbench.arrays import F64
from costbench.rng import stream
from costbench.search.space import Rows, Seen
from costbench_schedules.experiments.live import live_space, small_rows
from costbench_schedules.features.vectors import config_features
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.search.bayesian import BayesianSpec
from costbench_schedules.search.pooled import PooledBayesian, PoolSpec

SPACE = live_space(parse_operator("matmul:m=64,n=64,k=64"))
SMALL = small_rows(SPACE)
SPEC = PoolSpec(drawn=128, steps=64)


def measured(
    search: PooledBayesian,
    seed: int = 0,
    times: Callable[[Rows], F64] = lambda rows: synthetic_ns(SPACE, rows),
) -> tuple[Rows, F64]:
    """Returns what a search measured, in order, and the times."""
    proposals = search(SPACE, stream(seed, "pooled"), SPACE.rows([]))
    rows, all_times, batch = [], [], next(proposals)
    while True:
        rows.append(batch)
        all_times.append(times(batch))
        try:
            batch = proposals.send(all_times[-1])
        except StopIteration:
            return np.concatenate(rows), np.concatenate(all_times)


def searching(
    trials: int = 30, earlier: Callable[[Rows], F64] | None = None, spec: PoolSpec = SPEC
) -> PooledBayesian:
    def columns(rows: Rows) -> object:
        return config_features(SPACE, rows)

    return PooledBayesian(columns, columns, SMALL[::16], earlier, trials, spec)


def test_it_finds_faster_schedules_than_random_draws() -> None:
    rows, times = measured(searching())
    assert len(rows) == len(times) == 30
    random = synthetic_ns(SPACE, SPACE.draw(stream(1, "random"), 300, Seen()))
    assert times.min() < random.min()


def test_no_program_is_measured_twice() -> None:
    rows, _ = measured(searching())
    assert Seen().fresh(config_features(SPACE, rows)).all()
    assert SPACE.legal(rows).all()


def test_a_model_of_another_machine_chooses_the_first_trial() -> None:
    """Its costs are in a unit of its own and half the truth; the scale of costs has no effect."""
    first, times = measured(searching(4, lambda rows: np.log(synthetic_ns(SPACE, rows))))
    assert times[0] < np.quantile(synthetic_ns(SPACE, SMALL), 0.02)
    scaled, _ = measured(searching(4, lambda rows: 7.0 + 3.0 * np.log(synthetic_ns(SPACE, rows))))
    np.testing.assert_array_equal(first, scaled)


def test_it_goes_on_where_all_fail_and_with_few_modelled_measurements() -> None:
    rows, _ = measured(searching(12), times=lambda rows: np.full(len(rows), np.inf))
    assert len(rows) == 12
    few = PoolSpec(drawn=64, steps=32, patience=2, process=BayesianSpec(modelled=8, growth=4))
    rows, times = measured(searching(40, spec=few))
    assert len(rows) == 40
    assert times.argmin() > 8


def test_it_ends_where_no_program_is_left() -> None:
    search = PooledBayesian(
        lambda rows: config_features(SPACE, rows), lambda rows: rows[:, -3:] * 0, SMALL[:4], None, None, SPEC
    )
    rows, _ = measured(search)
    assert 1 <= len(rows) <= SPEC.process.first


def test_rows_of_the_small_space_are_the_same_schedules() -> None:
    from costbench_schedules.spaces.sub_spaces import recorded_space

    small = recorded_space(SPACE.operator)
    assert len(SMALL) == small.size
    for index in (0, len(SMALL) // 2, len(SMALL) - 1):
        assert SPACE.choices(SMALL[index]) == small.choices(small.rows([index])[0])


def test_impossible_pools() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PoolSpec(steps=0)
