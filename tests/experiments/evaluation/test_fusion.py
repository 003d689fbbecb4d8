"""Absolute runtimes of fused kernels: coefficients and metrics, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.fusion_generation import FusionParams, FusionTask
from costbench.datasets.measured_kernels import CompiledPrograms, MeasuredKernels, fusion_parts
from costbench.datasets.recorded_kernels import WholeProgram
from costbench.experiments.evaluation.fusion import (
    compare_programs,
    fusion_metrics,
    predict_from_kernels,
    scale_estimates,
)
from costbench.experiments.evaluation.program import EvaluateParams, ProgramTask
from costbench.hlo.conversion import module_to_bytes
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.selection import mape
from costbench.target import load_target
from tests.experiments.small_programs import small_step


def test_estimates_are_scaled_to_the_total_of_their_kind() -> None:
    """Dots: measured 2 x 100 + 1 x 300 = 500 over estimated 2 x 10 + 1 x 30 = 50, a coefficient of 10."""
    estimated = np.array([10.0, 30.0, 7.0, 5.0, 2.0])
    measured = np.array([100.0, 300.0, 999.0, 20.0, 8.0])
    runs = np.array([2, 1, 0, 3, 0])
    kinds = ["contraction", "contraction", "contraction", "reduction", "elementwise"]
    scaled = scale_estimates(estimated, measured, runs, kinds)
    assert scaled[:4].tolist() == pytest.approx([100.0, 300.0, 70.0, 20.0])
    # No elementwise kernel runs under the default config.
    assert np.isnan(scaled[4])


def test_short_kernels_are_apart() -> None:
    """Errors 10%, 50% above 5 us, 100% below; the two long ones are ordered rightly."""
    predicted = np.array([11_000.0, 3_000.0, 2_000.0])
    measured = np.array([10_000.0, 6_000.0, 1_000.0])
    found = fusion_metrics(predicted, measured)
    assert found["mape"] == pytest.approx((10 + 50 + 100) / 3)
    assert found["mape_ge5us"] == pytest.approx(30.0)
    assert found["mape_lt5us"] == pytest.approx(100.0)
    assert found["kendall_tau"] == pytest.approx(1.0)
    assert found["kendall_tau_ge5us"] == pytest.approx(1.0)
    # One kernel ranks nothing.
    assert "kendall_tau_lt5us" not in found


def test_five_microseconds_are_not_short() -> None:
    found = fusion_metrics(np.array([5_000.0]), np.array([5_000.0]))
    assert found == {"mape": 0.0, "mape_ge5us": 0.0}


def test_ceilings_know_the_machine(tmp_path: Path) -> None:
    target = load_target("tpu_v3")
    program = module_to_bytes(small_step())
    FusionTask("small", "tests", program, (target,), FusionParams(max_configs=4), tmp_path).make()
    models = ("measured_again", "regular_machine", "trees")
    task = ProgramTask(
        data=tmp_path,
        features=tmp_path,
        chip="tpu_v3",
        program="small",
        checkpoints=(),
        models=models,
        params=EvaluateParams(models=models, top_k=(1,), random_seeds=(0, 5)),
        seen=frozenset(),
    )
    predicted = predict_from_kernels(task)
    again, other, regular = (
        predicted[name, "main", seed]
        for name, seed in (("measured_again", 0), ("measured_again", 5), ("regular_machine", 0))
    )
    assert len(predicted) == 3
    parts = fusion_parts(tmp_path, "tpu_v3", "small")
    kernels = MeasuredKernels(parts, CompiledPrograms(tmp_path, 1), target.architecture)
    measured = np.array([float(kernels.kernel(index).runtime_ns[0]) for index in range(len(kernels))])
    # Noise of its own, and nothing else.
    assert not np.array_equal(again, measured)
    assert not np.array_equal(again, other)
    assert mape(again, measured) < 5.0
    assert kendall_tau(again, measured) > 0.9
    # Without the factor of irregular code it is further away.
    assert mape(regular, measured) > mape(again, measured)


def test_sums_of_kernels_are_held_against_runs_of_the_program() -> None:
    """Kernels of 10 and 20 ns, and twice the second; first runs of 40 and 55, second ones of 32 and 44."""
    programs = (WholeProgram("xla", (0, 1), (1, 1), 40, 32), WholeProgram("random", (1,), (2,), 55, 44))
    predicted = {
        ("learned", "main", 0): np.array([20.0, 25.0]),
        ("analytical", "main", 0): np.array([20.0, np.nan]),
        ("measured_again", "main", 0): np.array([10.0, 21.0]),
    }
    rows = compare_programs(programs, predicted, np.array([10.0, 20.0]))
    # 45 and 50 for 40 and 55: 12.5% and 9.09%, in order.
    assert rows["learned", "main", 0]["mape"] == pytest.approx((12.5 + 100 / 11) / 2)
    assert rows["learned", "main", 0]["kendall_tau"] == pytest.approx(1.0)
    # 30 and 40 for the second runs, 32 and 44.
    of_kernels = rows["sum_of_kernels", "main", 0]
    assert of_kernels["mape"] == pytest.approx(100 * (2 / 32 + 4 / 44) / 2)
    assert of_kernels["sum_to_measured"] == pytest.approx(((30 / 32) * (40 / 44)) ** 0.5)
    assert rows["measured_again", "main", 0]["mape"] == pytest.approx(20.0)
    assert rows["best", "main", 0] == {"configs": 2.0}
    # A kind of kernel that the default does not have leaves the scaled estimate without a sum.
    assert ("analytical", "main", 0) not in rows
