"""Each update rule against one step worked out by hand."""

from __future__ import annotations

import math

import pytest

from corpus.lowering import OPTIMIZERS, clip_by_global_norm

pytestmark = pytest.mark.corpus
pytest.importorskip("jax", reason="needs the corpus extra: jax")
import jax.numpy as jnp  # noqa: E402

RATE = 1e-3


def one_step(name: str, weight: float, gradient: float, *slots: float) -> tuple[float, list[float]]:
    given = [jnp.float32(slot) for slot in slots]
    assert len(given) == OPTIMIZERS[name].slots
    new, new_slots = OPTIMIZERS[name].update(jnp.float32(gradient), jnp.float32(weight), given, jnp.int32(0))
    return float(new), [float(slot) for slot in new_slots]


def test_sgd() -> None:
    weight, slots = one_step("sgd", 1.0, 0.5)
    assert weight == pytest.approx(1.0 - 0.1 * 0.5)
    assert slots == []


def test_momentum_adds_decay_to_the_gradient() -> None:
    weight, slots = one_step("momentum", 2.0, 0.5, 1.0)
    assert slots == pytest.approx([0.9 * 1.0 + 0.5 + 1e-4 * 2.0])
    assert weight == pytest.approx(2.0 - 0.1 * 1.4002)


def test_lars_moves_in_proportion_to_the_weight() -> None:
    # Trust 1e-3 * 2 / (5 + 1e-4 * 2); the gradient with decay is 5 + 2e-4, so the move is 10 * 1e-3 * 2.
    weight, slots = one_step("lars", 2.0, 5.0, 0.0)
    assert slots == pytest.approx([0.02])
    assert weight == pytest.approx(1.98)
    # A zero weight has no norm to be proportional to: trust 1.
    assert one_step("lars", 0.0, 5.0, 1.0)[0] == pytest.approx(-(0.9 + 10.0 * 5.0))


def test_rmsprop_divides_by_the_root_of_the_mean_square() -> None:
    weight, slots = one_step("rmsprop", 1.0, 2.0, 0.0, 0.0)
    move = 0.045 * 2.0 / math.sqrt(0.4 + 1e-3)
    assert slots == pytest.approx([0.4, move])
    assert weight == pytest.approx(1.0 - move)


def test_the_first_step_of_adam_has_the_length_of_the_rate() -> None:
    weight, slots = one_step("adam", 1.0, -3.0, 0.0, 0.0)
    assert weight == pytest.approx(1.0 + RATE, abs=1e-6)
    assert slots == pytest.approx([-0.3, 0.009], rel=1e-5)


def test_lamb_moves_in_proportion_to_the_weight() -> None:
    # Direction 1 + 0.01 * 2; trust 2 / 1.02, so the move is rate * 2 whatever the gradient's size.
    assert one_step("lamb", 2.0, 5.0, 0.0, 0.0)[0] == pytest.approx(2.0 - RATE * 2.0, abs=1e-6)
    # A zero weight has no norm to be proportional to: trust 1.
    assert one_step("lamb", 0.0, 5.0, 0.0, 0.0)[0] == pytest.approx(-RATE, abs=1e-6)


def test_clipping_scales_all_gradients_together_and_only_down() -> None:
    gradients = [jnp.array([3.0]), jnp.array([0.0, 4.0])]  # norm 5
    clipped = clip_by_global_norm(gradients, 1.0)
    assert [one.tolist() for one in clipped] == [pytest.approx([0.6]), pytest.approx([0.0, 0.8])]
    assert [one.tolist() for one in clip_by_global_norm(gradients, 10.0)] == [[3.0], [0.0, 4.0]]
