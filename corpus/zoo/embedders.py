"""ImageEmbed: an image tower trained so that two views of one thing end up close.

The application's inside is not public. Built as such systems are described: a residual tower of
grouped bottlenecks with squeeze-and-excitation, a 64-number unit vector, and a softmax over the
similarities of all pairs in the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.layers import (
    batch_norm,
    conv,
    cross_entropy,
    dense,
    global_mean,
    grouped_conv,
    max_pool,
)

if TYPE_CHECKING:
    from jax import Array


def _squeeze_excite(c: Ctx, x: Array, ratio: int = 16) -> Array:
    """Channels scaled by s(W2 relu(W1 mean))."""
    import jax

    scale = jax.nn.sigmoid(dense(c, jax.nn.relu(dense(c, global_mean(x), x.shape[-1] // ratio)), x.shape[-1]))
    return x * scale[:, None, None]


def _block(c: Ctx, x: Array, features: int, stride: int) -> Array:
    import jax

    relu = jax.nn.relu
    y = relu(batch_norm(c, conv(c, x, features // 2, 1)))
    y = relu(batch_norm(c, grouped_conv(c, y, features // 2, 3, stride, 32)))
    y = _squeeze_excite(c, batch_norm(c, conv(c, y, features, 1)))
    if stride > 1 or x.shape[-1] != features:
        x = batch_norm(c, conv(c, x, features, 1, stride))
    return relu(x + y)


def _tower(c: Ctx, x: Array) -> Array:
    """Images to unit vectors [b, 64]."""
    import jax
    import jax.numpy as jnp

    x = max_pool(jax.nn.relu(batch_norm(c, conv(c, x, 64, 7, 2))), 3, 2)
    for stage, blocks in enumerate((2, 2, 3, 2)):
        for index in range(blocks):
            x = _block(c, x, 256 * 2**stage, 2 if stage > 0 and index == 0 else 1)
    vector = dense(c, global_mean(x), 64).astype("float32")
    return vector / jnp.sqrt(jnp.sum(jnp.square(vector), -1, keepdims=True) + 1e-6)


def image_embed(c: Ctx) -> Array:
    """Contrastive loss over a batch of which the two halves show the same things; vectors at inference."""
    import jax.numpy as jnp

    vectors = _tower(c, c.input(c.batch, 224, 224, 3))
    if not c.train:
        return vectors
    similar = vectors @ vectors.T * 20.0
    itself = jnp.eye(c.batch, dtype=bool)
    return cross_entropy(jnp.where(itself, -1e9, similar), (jnp.arange(c.batch) + c.batch // 2) % c.batch)
