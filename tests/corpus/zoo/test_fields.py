"""Volume rendering and resampling of rays, against closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from corpus.context import Ctx

pytestmark = pytest.mark.corpus
jax = pytest.importorskip("jax", reason="needs the corpus extra: jax")
import jax.numpy as jnp  # noqa: E402

from corpus.zoo import fields  # noqa: E402


def test_a_uniform_fog_lets_through_what_the_exponential_says() -> None:
    depths = jnp.linspace(2.0, 6.0, 41)[None]
    colour = jnp.broadcast_to(jnp.array([1.0, 0.5, 0.0]), (1, 41, 3))
    seen, weights = fields._rendered(jnp.full((1, 41), 0.7), colour, depths)
    # The last sample stands for all that lies behind, so nothing passes.
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(weights[0, :20].sum()) == pytest.approx(1.0 - math.exp(-0.7 * 2.0), abs=1e-4)
    assert seen[0].tolist() == pytest.approx([1.0, 0.5, 0.0], abs=1e-5)


def test_frequencies_double() -> None:
    encoded = fields._frequencies(jnp.array([[0.3]]), 2)[0].tolist()
    assert encoded == pytest.approx([0.3, math.sin(0.3), math.sin(0.6), math.cos(0.3), math.cos(0.6)])


def test_finer_samples_lie_where_the_weight_is() -> None:
    depths = jnp.broadcast_to(jnp.arange(64.0), (3, 64))
    weights = jnp.zeros((3, 64)).at[0, 10].set(1.0).at[1, 40].set(1.0).at[2, 20].set(0.5).at[2, 50].set(0.5)

    @jax.jit
    def finer(key: Any) -> Any:
        c = Ctx(3, train=True, dtype="f32").replay([], [], [], key)
        return fields._finer_depths(c, depths, weights)

    samples = np.asarray(finer(jnp.arange(4, dtype="uint32")))
    assert samples.shape == (3, 128)
    # Sample k stands for depths from k - 1/2 to k + 1/2.
    assert np.mean(np.abs(samples[0] - 10.0) <= 0.5) > 0.95
    assert np.mean(np.abs(samples[1] - 40.0) <= 0.5) > 0.95
    halves = [np.mean(np.abs(samples[2] - middle) <= 0.5) for middle in (20.0, 50.0)]
    assert halves == pytest.approx([0.5, 0.5], abs=0.15)
    assert np.std(samples[0]) > 0.2
