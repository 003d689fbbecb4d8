"""Kernels laid end to end; `tests/training/test_kernel_source.py` compares them with kernels read singly."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from benchmarks.synthetic_kernels import kernel_samples
from costbench.errors import DataError
from costbench.features.packed_kernels import PackedKernels, packed

SAMPLES = [kernel_samples(seed, 3 + seed, 2 + seed) for seed in range(4)]


def pack(*places: int, estimates: bool = True) -> PackedKernels:
    some = [SAMPLES[place] for place in places]
    return packed(
        [sample.graph for sample in some],
        [sample.config_features for sample in some],
        [sample.runtime_ns for sample in some],
        [2.0 * sample.runtime_ns for sample in some] if estimates else None,
    )


def test_edges_of_later_kernels_are_shifted() -> None:
    found = pack(0, 1)
    assert found.num_kernels == 2
    assert found.node_counts.tolist() == [3, 4]
    first = SAMPLES[0].graph.edges.shape[1]
    np.testing.assert_array_equal(found.edges[:, :first], SAMPLES[0].graph.edges)
    np.testing.assert_array_equal(found.edges[:, first:], SAMPLES[1].graph.edges + 3)


def test_joined_parts_are_the_kernels_packed_at_once() -> None:
    found, expected = PackedKernels.joined([pack(0, 1), pack(2), pack(3, 0)]), pack(0, 1, 2, 3, 0)
    for field in fields(found):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))
    assert PackedKernels.joined([pack(0), pack(1, estimates=False)]).analytical_ns is None


def test_no_parts_are_refused() -> None:
    with pytest.raises(DataError, match="no kernels"):
        PackedKernels.joined([])
