from __future__ import annotations

import numpy as np

from costbench.features.gathers import place_in_kernels, runs, shifted_pairs, write_bounds

NONE = np.zeros(0, np.int64)


def test_runs_of_numbers() -> None:
    assert runs(np.array([7, 3, 0]), np.array([2, 0, 3])).tolist() == [7, 8, 0, 1, 2]
    assert runs(NONE, NONE).tolist() == []


def test_pairs_of_later_kernels_are_shifted() -> None:
    pairs = np.array([[0, 1], [1, 2], [0, 3], [0, 1]], np.int32)
    found = shifted_pairs(pairs, np.array([2, 0, 1, 1]), np.array([0, 3, 5, 10]))
    assert found.tolist() == [[0, 1, 5, 10], [1, 2, 8, 11]]
    assert found.dtype == np.int64
    assert shifted_pairs(pairs[:0], NONE, NONE).shape == (2, 0)


def test_inputs_have_numbers_and_others_say_whether_they_are_outputs() -> None:
    """Of two inputs and two instructions, then of no input and one instruction."""
    own = np.full((5, 2), 9, np.float32)
    is_output = np.array([0, 0, 0, 1, 1], np.uint8)
    place_in_kernels(own, is_output, np.array([2, 0]), np.array([4, 1]))
    assert own.tolist() == [[0, 9], [1, 9], [9, 0], [9, 1], [9, 1]]


def test_bounds_with_their_sum_and_product() -> None:
    """Two columns for single bounds; lists of three and none, then of one and two bounds."""
    table = np.zeros((2, 8), np.float32)
    bounds = np.array([2, 3, 4, 5, 6, 7], np.int32)
    write_bounds(table, bounds, np.array([[3, 0], [1, 2]]), np.array([0, 4]), 2)
    assert table.tolist() == [[2, 3, 9, 24, 0, 0, 0, 0], [5, 0, 5, 5, 6, 7, 13, 42]]
