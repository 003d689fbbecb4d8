"""A roofline of four constants: found again where runtimes are one, kept beside models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.features.roofline import (
    ROOFLINE_FILE,
    Roofline,
    even_weights,
    fit_roofline,
    read_roofline,
    write_roofline,
)

TRUE = Roofline(launch_ns=3000.0, ns_per_flop=0.05, ns_per_byte=0.2, ns_per_transcendental=2.0)


def kernels(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Work that differs by orders of magnitude, half of the kernels without special functions."""
    draw = np.random.default_rng(0)
    static = np.exp(draw.uniform(np.log(1e3), np.log(1e8), (count, 4)))
    static[::2, 3] = 0.0
    return static


def test_a_kernel_takes_the_longer_of_arithmetic_and_traffic() -> None:
    """3,000 + max(0.05 x 1e5 + 2 x 500, 0.2 x 3e4), and 3,000 + max(0.05 x 1e5, 0.2 x 2e5)."""
    static = np.array([[1e5, 1e4, 2e4, 500.0], [1e5, 1e5, 1e5, 0.0]])
    assert TRUE.estimate(static).tolist() == pytest.approx([3000.0 + 6000.0, 3000.0 + 40_000.0])


def test_constants_are_found_again() -> None:
    static = kernels(400)
    fitted = fit_roofline(static, TRUE.estimate(static), np.ones(400))
    assert fitted.estimate(static) == pytest.approx(TRUE.estimate(static), rel=0.02)
    assert fitted == fit_roofline(static, TRUE.estimate(static), np.ones(400))


def test_a_kernel_that_no_roofline_explains_moves_no_constant() -> None:
    """Three of ten kernels take a thousandth of the time; predicting hardly any is off by 100% at most."""
    static = kernels(400)
    runtime_ns = TRUE.estimate(static)
    for first in range(3):
        runtime_ns[first::10] /= 1000.0
    fitted = fit_roofline(static, runtime_ns, np.ones(400)).estimate(static)
    assert np.median(np.abs(fitted / TRUE.estimate(static) - 1.0)) < 0.02


def test_applications_count_the_same() -> None:
    assert even_weights(["a", "b", "a", "a"]).tolist() == pytest.approx([1 / 3, 1.0, 1 / 3, 1 / 3])


def test_no_kernels_are_no_roofline() -> None:
    with pytest.raises(DataError, match="no kernels to fit a roofline to"):
        fit_roofline(np.zeros((0, 4)), np.zeros(0), np.zeros(0))


def test_it_is_kept_beside_a_model(tmp_path: Path) -> None:
    assert read_roofline(tmp_path) is None
    write_roofline(tmp_path, TRUE)
    assert read_roofline(tmp_path) == TRUE
    (tmp_path / ROOFLINE_FILE).write_text('{"launch_ns": "fast"}')
    with pytest.raises(DataError, match=ROOFLINE_FILE):
        read_roofline(tmp_path)
