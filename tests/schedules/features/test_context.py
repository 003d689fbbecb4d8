from __future__ import annotations

import numpy as np
import pytest

from benchmarks.plain_schedule_features import loop_vectors, relations
from costbench import rng
from costbench.errors import DataError
from costbench_schedules.features.context import FEATURE_NAMES, NUM_FEATURES, context_features
from costbench_schedules.features.vectors import (
    BOUNDED_BY,
    THRESHOLDS,
    config_features,
    fill_columns,
    flattened_features,
    relation_features,
)
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.nest import STATEMENTS, nest_batch, schedule_at
from costbench_schedules.spaces.space import ScheduleSpace

WORKLOADS = ["C2", "C6", "C8", "matmul-256", "depthwise-256", "dense-512", "batch-matmul-12"]
PLAIN = {"tile i": (1, 2, 2, 2), "tile j": (4, 1, 1, 4), "tile r": (2, 2), "order": "S0 S1 R0 S2 R1 S3"}


def matmul() -> tuple[ScheduleSpace, np.ndarray]:
    """for j0 < 4: for i1 < 2: (for r0 < 2: for i2 < 2: for r1 < 2: for i3 < 2: for j3 < 4), j3 vectorised."""
    space = ScheduleSpace(parse_operator("matmul:m=8,n=16,k=4"))
    rest = {"cache": "none", "vectorize": 1, "unroll": 0, "parallel": "none", "padding": "none"}
    return space, space.row_of({**PLAIN, **rest})[None]


def test_features_of_a_small_nest_by_hand() -> None:
    space, rows = matmul()
    contexts = context_features(nest_batch(space, rows))
    own = contexts.values[0, contexts.block("compute")][contexts.real[0, contexts.block("compute")]]
    by_name = {name: own[:, column] for column, name in enumerate(FEATURE_NAMES)}
    two = lambda *numbers: np.log2(1.0 + np.array(numbers)).astype(np.float32)  # noqa: E731
    assert by_name["extent"] == pytest.approx(two(4, 2, 2, 2, 2, 2, 4))
    assert by_name["depth"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert by_name["height"].tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert by_name["top_down"] == pytest.approx(two(4, 8, 16, 32, 64, 128, 512))
    assert by_name["bottom_up"] == pytest.approx(two(512, 128, 64, 32, 16, 8, 4))
    assert by_name["reduce"].tolist() == [0, 0, 1, 0, 1, 0, 0]
    assert by_name["vectorize"].tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert by_name["compute"].tolist() == [1] * 7
    # output[i, j]: 8 x 16 in all, 8 x 4 inside j0, 4 x 4 inside i1, ...
    written = np.array([128, 32, 16, 16, 8, 8, 4])
    # left[i, r]: 8 x 4, 8 x 4, 4 x 4, 4 x 2, 2 x 2, 2, 1;
    # right[r, j]: 4 x 16, 4 x 4, 4 x 4, 2 x 4, 2 x 4, 4, 4.
    left, right = np.array([32, 32, 16, 8, 4, 2, 1]), np.array([64, 16, 16, 8, 8, 4, 4])
    inside = np.array([512, 128, 64, 32, 16, 8, 4])
    for name, touched in (("written", written), ("first", left), ("second", right)):
        assert by_name[f"touched_{name}"] == pytest.approx(two(*(4 * touched)))
        assert by_name[f"reuse_{name}"] == pytest.approx(two(*(inside / touched)))
    assert by_name["working_set"] == pytest.approx(two(*(4 * (written + left + right))))
    assert by_name["stride_written"] == pytest.approx(two(16, 256, 0, 128, 0, 64, 4))
    assert by_name["stride_second"] == pytest.approx(two(16, 0, 128, 0, 64, 0, 4))


def test_the_tree_of_a_small_nest_by_hand() -> None:
    space, rows = matmul()
    contexts = context_features(nest_batch(space, rows))
    [init, compute, write] = [contexts.block(STATEMENTS[code]) for code in contexts.statements]
    indices = np.flatnonzero(contexts.real[0, compute]) + compute.start
    assert contexts.parents[0, indices].tolist() == [-1, *indices[:-1]]
    # The sums are set to 0 inside j0 and i1, by loops i2, i3 and j3 of its own.
    own = np.flatnonzero(contexts.real[0, init]) + init.start
    assert contexts.parents[0, own].tolist() == [indices[1], own[0], own[1]]
    assert contexts.leaves[0].tolist() == [own[2], indices[6], -1]
    assert contexts.present[0].tolist() == [True, True, False]
    assert not contexts.real[0, write].any()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_arrays_equal_one_number_at_a_time(workload: str) -> None:
    space = ScheduleSpace(parse_operator(workload))
    rows = space.sample(rng.stream(0, "features", workload), 40)
    nests = nest_batch(space, rows)
    contexts = context_features(nests)
    related = relation_features(contexts)
    for index in range(len(rows)):
        plain = loop_vectors(schedule_at(nests, index))
        expected = np.array([[vector[name] for name in FEATURE_NAMES] for vector in plain])
        np.testing.assert_allclose(contexts.values[index, contexts.real[index]], expected, rtol=1e-6)
        np.testing.assert_allclose(related[index], relations(plain), rtol=1e-6)
    assert related.shape[1] == (len(BOUNDED_BY) * len(THRESHOLDS) + 1) * NUM_FEATURES


@pytest.mark.parametrize("workload", WORKLOADS)
def test_parents_stand_before_their_loops_or_in_the_computation(workload: str) -> None:
    space = ScheduleSpace(parse_operator(workload))
    contexts = context_features(nest_batch(space, space.sample(rng.stream(1, "features"), 40)))
    depth = contexts.values[:, :, FEATURE_NAMES.index("depth")]
    for position in range(len(contexts)):
        for loop in np.flatnonzero(contexts.real[position]).tolist():
            parent = int(contexts.parents[position, loop])
            assert (parent < 0) == (depth[position, loop] == 0)
            if parent >= 0:
                assert contexts.real[position, parent]
                assert depth[position, parent] == depth[position, loop] - 1


def test_a_candidate_has_the_same_features_in_any_batch() -> None:
    space = ScheduleSpace(parse_operator("C6"))
    rows = space.sample(rng.stream(2, "features"), 70)
    whole = relation_features(context_features(nest_batch(space, rows)))
    alone = [relation_features(context_features(nest_batch(space, row[None])))[0] for row in rows[60:]]
    assert np.array_equal(whole[60:], np.stack(alone))


def test_config_features_by_hand() -> None:
    space, rows = matmul()
    tiles = [0, 1, 1, 1, 2, 0, 0, 2, 1, 1]
    rest = [1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1]
    assert config_features(space, rows)[0].tolist() == [*tiles, *rest]


def test_a_sub_space_has_the_config_features_of_the_whole() -> None:
    space = ScheduleSpace(parse_operator("matmul-256"))
    part = space.sub_space({"vectorize": [1], "unroll": [512, 16], "cache": ["block"]})
    rows = part.sample(rng.stream(3, "features"), 20)
    assert np.array_equal(config_features(part, rows), config_features(space, part.full_rows(rows)))


def test_flattened_features_by_hand() -> None:
    space, rows = matmul()
    contexts = context_features(nest_batch(space, rows))
    flat = flattened_features(contexts)
    assert flat[0, :4].tolist() == [0, 1, 1, 0]
    loops = flat[0, 4:].reshape(10, NUM_FEATURES)
    # In loop order i0 j0 i1 j1 r0 i2 j2 r1 i3 j3, of which i0, j1 and j2 have one iteration.
    extents = np.log2(1.0 + np.array([0, 4, 2, 0, 2, 2, 0, 2, 2, 4]))
    assert loops[:, FEATURE_NAMES.index("extent")] == pytest.approx(extents)
    assert not loops[[0, 3, 6]].any()


def test_features_are_filled_up_and_never_cut() -> None:
    features = np.array([[1.0, 2.0]], dtype=np.float32)
    assert fill_columns(features, 4).tolist() == [[1.0, 2.0, 0.0, 0.0]]
    assert fill_columns(features, 2).tolist() == [[1.0, 2.0]]
    with pytest.raises(DataError, match="2 columns"):
        fill_columns(features, 1)
