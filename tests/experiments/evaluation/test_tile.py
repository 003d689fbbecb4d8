"""Metrics of a program from predictions whose outcome is clear."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from costbench.arrays import F64
from costbench.errors import DataError
from costbench.experiments.evaluation.tile import EvaluatedKernel, evaluate_program


def _measured(
    runtime: Sequence[int], runs: int = 1, groups: tuple[str, ...] = ()
) -> tuple[Sequence[int], int, tuple[str, ...]]:
    return runtime, runs, groups


Predict = Callable[[F64], F64]
MODELS: dict[str, Predict] = {
    "truth": lambda runtime: runtime,
    "backwards": lambda runtime: -runtime,
    "constant": lambda runtime: np.ones(len(runtime)),
}


def _evaluate(
    kernels: Sequence[tuple[Sequence[int], int, tuple[str, ...]]],
    models: Mapping[str, Predict] = MODELS,
    top_k: Sequence[int] = (1,),
) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the metrics of a program by group of kernels, name of the model and metric."""
    priced = [
        EvaluatedKernel(
            np.array(runtime),
            runs,
            {(name, "main", 0): model(np.array(runtime, np.float64)) for name, model in models.items()},
            groups,
        )
        for runtime, runs, groups in kernels
    ]
    metrics = evaluate_program(priced, top_k, "program")
    return {group: {key[0]: values for key, values in by.items()} for group, by in metrics.items()}


def test_two_kernels_by_hand() -> None:
    kernels = [_measured([30, 10, 20], runs=2), _measured([5, 10])]
    found = _evaluate(kernels, top_k=(1, 2))["all"]
    assert found["truth"] == {
        "kendall_tau": 1.0,
        "kernel_top_1": 0.0,
        "kernel_top_5": 0.0,
        "kernel_top_10": 0.0,
        "opa": 1.0,
        "ordered_pair_accuracy": 1.0,
        "slowdown_at_1": 0.0,
        "slowdown_at_2": 0.0,
        "tile_size_ape": 0.0,
        "top_1_score": 1.0,
        "top_2_score": 1.0,
    }
    # Backwards picks 30 and 10: 2 * 20 + 5 too slow over 2 * 10 + 5; best of two: 20 and 5.
    backwards = found["backwards"]
    assert backwards["tile_size_ape"] == pytest.approx(100 * 45 / 25)
    assert backwards["kendall_tau"] == -1.0
    assert backwards["ordered_pair_accuracy"] == 0.0
    assert backwards["slowdown_at_1"] == pytest.approx((2 + 1) / 2)
    assert backwards["slowdown_at_2"] == pytest.approx((1 + 0) / 2)
    assert backwards["top_2_score"] == pytest.approx(25 / (2 * 20 + 5))
    assert backwards["kernel_top_1"] == pytest.approx(100 * (2 + 1) / 2)
    assert backwards["kernel_top_5"] == 0.0
    # A constant prediction takes the first tile of each kernel and ranks nothing.
    constant = found["constant"]
    assert constant["tile_size_ape"] == pytest.approx(100 * 40 / 25)
    assert constant["kendall_tau"] == 0.0


def test_groups_of_kernels_by_hand() -> None:
    kernels = [
        _measured([30, 10, 20], runs=2, groups=("dot", "unseen")),
        _measured([5, 10], groups=("dot",)),
        _measured([4, 4], groups=("copy", "unseen")),
    ]
    found = _evaluate(kernels)
    assert sorted(found) == ["all", "copy", "dot", "unseen"]
    assert found["dot"]["backwards"]["tile_size_ape"] == pytest.approx(100 * 45 / 25)
    assert found["unseen"]["backwards"]["tile_size_ape"] == pytest.approx(100 * 40 / 24)
    assert found["all"]["backwards"]["tile_size_ape"] == pytest.approx(100 * 45 / 29)
    assert found["copy"]["backwards"]["tile_size_ape"] == 0.0
    # Equal runtimes rank nothing, whatever group they are in.
    assert "kendall_tau" not in found["copy"]["backwards"]
    assert found["unseen"]["truth"]["kendall_tau"] == pytest.approx(1.0)
    assert found["unseen"]["best"] == {"kernels": 2.0, "runtime_ns": 2 * 10 + 4}
    assert found["all"]["best"] == {"kernels": 3.0, "runtime_ns": 2 * 10 + 5 + 4}


def test_kernels_with_equal_runtimes_do_not_count_for_tau() -> None:
    found = _evaluate([_measured([7, 7]), _measured([1, 2])])["all"]
    assert found["truth"]["kendall_tau"] == 1.0
    only = _evaluate([_measured([7, 7])])["all"]
    assert "kendall_tau" not in only["truth"]
    assert only["truth"]["tile_size_ape"] == 0.0


def test_opa_is_pooled_over_the_pairs_of_all_kernels_and_top_k_weighs_kernels_alike() -> None:
    # Three pairs of the first kernel are right, one of two of the second (its last two runtimes are equal).
    def partly(runtime: F64) -> F64:
        return np.array([1.0, 3.0, 2.0]) if runtime[0] == 10 else np.array([2.0, 1.0, 3.0])

    kernels = [_measured([10, 30, 20], runs=9), _measured([4, 8, 8])]
    found = _evaluate(kernels, {"partly": partly})["all"]["partly"]
    assert found["opa"] == pytest.approx(4 / 5)
    assert found["ordered_pair_accuracy"] == pytest.approx((1 + 1 / 2) / 2)
    assert found["kernel_top_1"] == pytest.approx(100 * (0 + 1) / 2)
    assert "slowdown_at_5" not in found


@pytest.mark.parametrize("wrong", [np.array([1.0]), np.array([1.0, math.nan]), np.array([1.0, math.inf])])
def test_broken_predictions_are_errors(wrong: F64) -> None:
    with pytest.raises(DataError, match="program, kernel 0, model broken"):
        _evaluate([_measured([1, 2])], {"broken": lambda runtime: wrong})


@pytest.mark.parametrize("runtime", [[0, 1], [-3, 1], []])
def test_broken_runtimes_are_errors(runtime: list[int]) -> None:
    with pytest.raises(DataError, match="kernel 0"):
        _evaluate([_measured(runtime)])


def test_a_program_without_kernels_is_an_error() -> None:
    with pytest.raises(DataError, match="no kernels"):
        _evaluate([])
