"""Tables of kernels: features by hand, and samples that count applications alike."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.features.feature_shards import FeatureShard
from costbench.features.packed_kernels import PackedKernels
from costbench.hlo.opcode import NUM_OPCODE_CODES
from costbench.models.baselines.kernel_tables import (
    FEATURE_NAMES,
    NUM_FEATURES,
    kernel_rows,
    program_tables,
    quotas,
    sample_table,
)
from costbench.models.baselines.spec import SampleSpec
from tests.models.baselines.tables import real_shard


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


def test_logarithms_are_rounded_once() -> None:
    """So they are the same on all processors, unlike float32 logarithms of NumPy."""
    kernels = packed()
    values = np.geomspace(1.0, 1e9, 3 * 1400).astype(np.float32)
    expected = np.array([float((1 + Decimal(float(value))).ln()) for value in values], np.float32)
    for part, logs in zip(np.split(values, 50), np.split(expected, 50), strict=True):
        rows = kernel_rows(replace(kernels, config_features=part.reshape(3, 28)))
        assert rows[:, -28:].ravel().tolist() == logs.tolist()


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (1000, {"a": 3, "b": 50, "c": 20}),  # all there are
        (43, {"a": 3, "b": 20, "c": 20}),
        (23, {"a": 3, "b": 10, "c": 10}),
        (6, {"a": 2, "b": 2, "c": 2}),
        (1, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_quotas(budget: int, expected: dict[str, int]) -> None:
    assert quotas({"a": 3, "b": 50, "c": 20}, budget) == expected


@pytest.fixture(scope="module")
def shards(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> list[FeatureShard]:
    """Two programs of application A and one of B, all of the same kernels."""
    folder = tmp_path_factory.mktemp("features")
    return [
        real_shard(repository, folder / f"{name}.arrow", application, 6, lambda ns, f=factor: f * ns)
        for name, application, factor in (("p", "A", 1.0), ("q", "A", 2.0), ("r", "B", 3.0))
    ]


def test_applications_share_the_budget(shards: list[FeatureShard]) -> None:
    table = sample_table(shards, SampleSpec(kernels=8, configs=3), 0, min_configs=2)
    assert np.bincount(table.applications).tolist() == [4, 4]
    assert (table.counts <= 3).all()
    assert (table.counts >= 2).all()
    assert len(table) == table.counts.sum() == len(table.features)


def test_rows_belong_together(shards: list[FeatureShard]) -> None:
    """The runtimes tell the program: they are 1, 2 or 3 times the estimate, up to rounding."""
    table = sample_table(shards, SampleSpec(kernels=1000, configs=1000), 0)
    factor = table.runtime_ns / table.analytical_ns
    kernel = np.repeat(np.arange(len(table.counts)), table.counts)
    assert (np.abs(factor - np.round(factor)) < 0.02).all()
    assert (table.applications[kernel] == (np.round(factor) == 3)).all()


def test_draws_depend_on_the_seed_alone(shards: list[FeatureShard]) -> None:
    spec = SampleSpec(kernels=6, configs=2)
    first, again, other = (sample_table(shards, spec, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.features, again.features)
    assert len(first) != len(other) or not np.array_equal(first.features, other.features)


def test_a_program_is_all_its_decisions_in_order(shards: list[FeatureShard]) -> None:
    shard = shards[0]
    tables = list(program_tables(shard))
    runtimes = np.concatenate([table.runtime_ns for table in tables])
    expected = np.concatenate([shard.runtime_ns(index) for index in range(len(shard))])
    np.testing.assert_array_equal(runtimes, expected)
    decisions = np.concatenate([table.decisions for table in tables])
    raw = np.concatenate([shard.config_features(index) for index in range(len(shard))])
    np.testing.assert_allclose(decisions, np.log1p(raw), rtol=1e-6)


def test_kernels_without_a_choice_are_left_out(shards: list[FeatureShard]) -> None:
    least = int(max(shard.num_configs().max() for shard in shards)) + 1
    with pytest.raises(DataError, match=f"has {least} or more decisions"):
        sample_table(shards, SampleSpec(kernels=6, configs=100), 0, min_configs=least)
