"""What is measured: neither what stands alone, nor what is like what was measured already."""

from __future__ import annotations

import numpy as np

from costbench.rng import stream
from costbench_schedules.experiments.network_models import choose_programs, principal_components


def cluster(centre: tuple[float, float], count: int, name: str) -> np.ndarray:
    draws = stream(0, name)
    return (np.array(centre) + 0.1 * draws.standard_normal((count, 2))).astype(np.float32)


ROWS = np.concatenate([cluster((0, 0), 30, "a"), cluster((9, 0), 30, "b"), cluster((0, 9), 30, "c")])
GROUPS = np.repeat([0, 1, 2], 30)
RUNTIME = 100.0 + 10.0 * np.arange(90.0)


def test_components_keep_distances_of_scaled_columns() -> None:
    rows = np.column_stack([ROWS, np.ones(len(ROWS))]).astype(np.float32)
    points = principal_components(rows)
    scaled = (ROWS - ROWS.mean(axis=0)) / ROWS.std(axis=0)
    assert points.shape[1] == 2
    between = np.linalg.norm(points[3] - points[77])
    np.testing.assert_allclose(between, np.linalg.norm(scaled[3] - scaled[77]), rtol=1e-4)


def test_few_programs_are_of_different_clusters() -> None:
    chosen = choose_programs(ROWS, GROUPS, RUNTIME, 3, 0)
    assert sorted(GROUPS[chosen].tolist()) == [0, 1, 2]


def test_a_program_that_is_like_no_other_comes_late() -> None:
    alone = np.concatenate([ROWS, [[40.0, 40.0]]]).astype(np.float32)
    groups, runtime = np.append(GROUPS, 2), np.append(RUNTIME, 50.0)
    first = choose_programs(alone, groups, runtime, 12, 0)[0]
    assert first < 90


def test_each_is_chosen_once_and_all_when_all_are_wanted() -> None:
    chosen = choose_programs(ROWS, GROUPS, RUNTIME, 40, 0)
    assert len(set(chosen.tolist())) == 40
    assert np.array_equal(chosen, choose_programs(ROWS, GROUPS, RUNTIME, 40, 0))
    assert choose_programs(ROWS, GROUPS, RUNTIME, 500, 0).tolist() == list(range(90))


def test_runtimes_of_programs_that_are_not_chosen_are_not_read() -> None:
    chosen = choose_programs(ROWS, GROUPS, RUNTIME, 40, 0)
    hidden = np.where(np.isin(np.arange(90), chosen), RUNTIME, 7.0)
    assert np.array_equal(choose_programs(ROWS, GROUPS, hidden, 40, 0), chosen)
