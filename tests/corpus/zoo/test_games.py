"""V-trace against the sum that defines it."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.rng import stream

pytestmark = pytest.mark.corpus
jax = pytest.importorskip("jax", reason="needs the corpus extra: jax")
import jax.numpy as jnp  # noqa: E402

from corpus.zoo.games import vtrace  # noqa: E402


def test_targets_are_discounted_sums_of_clipped_errors() -> None:
    random = stream(0, "vtrace")
    ratios = random.uniform(0.2, 3.0, (2, 4))
    values, rewards = random.normal(size=(2, 5)), random.normal(size=(2, 4))
    discounts = np.full((2, 4), 0.9)
    discounts[0, 1] = 0.0  # an episode ends
    rho = np.minimum(ratios, 1.0)
    targets = values[:, :-1].copy()
    for start in range(4):
        carried = np.ones(2)
        for time in range(start, 4):
            error = rho[:, time] * (
                rewards[:, time] + discounts[:, time] * values[:, time + 1] - values[:, time]
            )
            targets[:, start] += carried * error
            carried = carried * discounts[:, time] * rho[:, time]
    following = np.concatenate([targets[:, 1:], values[:, -1:]], 1)
    advantages = rho * (rewards + discounts * following - values[:, :-1])
    results = jax.jit(vtrace)(*(jnp.asarray(one) for one in (ratios, values, rewards, discounts)))
    np.testing.assert_allclose(results[0], targets, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[1], advantages, rtol=1e-5, atol=1e-6)


def test_on_policy_without_discount_errors_are_sums_of_rewards() -> None:
    ones, rewards = jnp.ones((1, 3)), jnp.array([[1.0, 2.0, 4.0]])
    targets, _ = jax.jit(vtrace)(ones, jnp.zeros((1, 4)), rewards, ones)
    assert targets.ravel().tolist() == [7.0, 6.0, 4.0]
