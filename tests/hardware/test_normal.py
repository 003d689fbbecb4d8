from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from costbench.hardware.normal import normal_quantile


def test_it_agrees_with_scipy() -> None:
    # Around the middle, in both tails, and where the approximations change: exp(-2) and exp(-32).
    edges = [np.exp(-2), 1 - np.exp(-2), np.exp(-32)]
    near = [edge * (1 + sign * 1e-9) for edge in edges for sign in (-1, 0, 1)]
    tails = [10.0**-k for k in range(1, 300, 7)]
    for probability in [*np.linspace(0.001, 0.999, 997), *near, *tails, 1 - 1e-12]:
        assert normal_quantile(float(probability)) == pytest.approx(ndtri(probability), rel=1e-13, abs=1e-15)


def test_the_median_is_zero_and_tails_mirror_each_other() -> None:
    assert normal_quantile(0.5) == 0.0
    for probability in (0.25, 0.125, 2.0**-30):
        assert normal_quantile(1.0 - probability) == -normal_quantile(probability)
