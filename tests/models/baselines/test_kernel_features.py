"""A row summarises the graph of its kernel, however many kernels are read at a time."""

from __future__ import annotations

import numpy as np

from costbench.features.packed_kernels import PackedKernels
from costbench.hlo.opcode import NUM_OPCODE_CODES
from costbench.models.baselines.kernel_tables import FEATURE_NAMES, NUM_FEATURES, kernel_rows


def packed() -> PackedKernels:
    """A kernel of three nodes and two decisions, then one of a single node and one decision."""
    nodes = np.zeros((4, 140), np.float32)
    nodes[:, 21] = [1.0, 3.0, 7.0, 15.0]
    return PackedKernels(
        opcodes=np.array([5, 5, 9, 9]),
        node_features=nodes,
        node_counts=np.array([3, 1]),
        edges=np.array([[0, 1], [2, 2]]),
        static_features=np.array([[1.0, 0.0, 3.0, 0.0], [7.0, 0.0, 0.0, 1.0]], np.float32),
        config_features=np.arange(84, dtype=np.float32).reshape(3, 28),
        config_counts=np.array([2, 1]),
        runtime_ns=np.ones(3),
        analytical_ns=np.ones(3),
    )


def test_rows_by_hand() -> None:
    rows = kernel_rows(packed())
    assert rows.shape == (3, NUM_FEATURES)
    assert rows.dtype == np.float32
    named = {name: rows[:, place] for place, name in enumerate(FEATURE_NAMES)}
    log2 = np.log(2.0)
    expected = {
        "flops": [log2, log2, 3 * log2],
        "bytes_written": [2 * log2, 2 * log2, 0.0],
        "nodes": [2 * log2, 2 * log2, log2],
        "edges": [np.log(3.0), np.log(3.0), 0.0],
        "opcode_5": [2.0, 2.0, 0.0],
        "opcode_9": [1.0, 1.0, 1.0],
        "max_shape_dimensions_0": [3 * log2, 3 * log2, 4 * log2],
        "mean_shape_dimensions_0": [2 * log2, 2 * log2, 4 * log2],
        "sum_shape_dimensions_0": [np.log(12.0), np.log(12.0), 4 * log2],
        "kernel_bounds_1": [log2, np.log(30.0), np.log(58.0)],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(named[name], values, rtol=1e-6, err_msg=name)
    opcodes = np.stack([named[f"opcode_{code}"] for code in range(NUM_OPCODE_CODES)], axis=1)
    assert opcodes.sum(axis=1).tolist() == [3.0, 3.0, 1.0]


def test_names_are_different() -> None:
    assert len(set(FEATURE_NAMES)) == NUM_FEATURES


def test_negative_values_keep_their_sign() -> None:
    kernels = packed()
    kernels.node_features[:, 53] = [-1.0, -1.0, -1.0, 0.0]
    place = FEATURE_NAMES.index("mean_window_padding_low_0")
    np.testing.assert_allclose(kernel_rows(kernels)[:, place], [-np.log(2.0), -np.log(2.0), 0.0])
