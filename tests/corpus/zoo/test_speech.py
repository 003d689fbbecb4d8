"""Relative attention looks at the right distances."""

from __future__ import annotations

import math

import numpy as np
import pytest

from corpus.context import Ctx
from costbench.rng import stream

pytestmark = pytest.mark.corpus
jax = pytest.importorskip("jax", reason="needs the corpus extra: jax")
import jax.numpy as jnp  # noqa: E402

from corpus.zoo import speech  # noqa: E402


def test_relative_attention_against_the_sum_over_distances() -> None:
    steps, features = 5, 4
    random = stream(0, "relative")
    x = random.normal(size=(1, steps, features)).astype(np.float32)
    c = Ctx(1, train=False, dtype="f32")
    jax.eval_shape(lambda: speech._relative_attention(c, jnp.asarray(x), heads=1))
    shapes = [one.shape for one in c.recorded().params]
    given = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    attend = jax.jit(lambda *params: speech._relative_attention(c.replay(params, [], [], None), x, heads=1))
    out = attend(*(jnp.asarray(one) for one in given))

    (wq, bq, wk, bk, wv, bv, distances, content_offset, place_offset, merge, merge_bias) = given
    query, key, value = (
        (x[0] @ weight[:, 0] + offset[0]) for weight, offset in ((wq, bq), (wk, bk), (wv, bv))
    )
    rates = np.exp(np.arange(2) * -9.21)
    scores = np.zeros((steps, steps))
    for q in range(steps):
        for k in range(steps):
            wave = np.concatenate([np.sin((q - k) * rates), np.cos((q - k) * rates)])
            scores[q, k] = (query[q] + content_offset[0, 0]) @ key[k]
            scores[q, k] += (query[q] + place_offset[0, 0]) @ (wave @ distances[:, 0])
    scores = np.exp(scores / math.sqrt(features))
    mixed = scores / scores.sum(1, keepdims=True) @ value
    np.testing.assert_allclose(out[0], mixed @ merge[0] + merge_bias, rtol=2e-4, atol=2e-4)
