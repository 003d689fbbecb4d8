"""Attention and the Transformer's blocks, before and after normalisation.

Projections are kept as [features, heads, size] tensors, so attention is dots with batch dimensions
(batch, head) in the form XLA gets from production models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.layers import dense, dropout, layer_norm

if TYPE_CHECKING:
    from jax import Array


def heads_of(c: Ctx, x: Array, heads: int, size: int) -> Array:
    """[b, t, f] -> [b, heads, t, size], with bias."""
    import jax.numpy as jnp

    y = jnp.einsum("btf,fhd->bhtd", x, c.weight(x.shape[-1], heads, size))
    return y + c.weight(heads, 1, size)


def attend(c: Ctx, query: Array, key: Array, value: Array, mask: Array | None) -> Array:
    """softmax(q k^T / sqrt(d) + mask) v over [b, h, t, d]; `mask` is true where attention may go."""
    import jax
    import jax.numpy as jnp

    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key).astype("float32") * query.shape[-1] ** -0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    weights = dropout(c, jax.nn.softmax(scores).astype(c.dtype), 0.1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, value)


def merge_heads(c: Ctx, x: Array, features: int) -> Array:
    """[b, h, t, d] -> [b, t, features], with bias."""
    import jax.numpy as jnp

    y = jnp.einsum("bhtd,hdf->btf", x, c.weight(x.shape[1], x.shape[3], features))
    return y + c.weight(features)


def multi_head(c: Ctx, x: Array, memory: Array, heads: int, mask: Array | None = None) -> Array:
    """Multi-head attention of `x` to `memory`; self-attention when they are the same."""
    features = x.shape[-1]
    size = features // heads
    query = heads_of(c, x, heads, size)
    key, value = heads_of(c, memory, heads, size), heads_of(c, memory, heads, size)
    return merge_heads(c, attend(c, query, key, value, mask), features)


def feed_forward(c: Ctx, x: Array, width: int, gelu: bool = True) -> Array:
    """Two dense layers with GELU or ReLU between."""
    import jax

    hidden = dense(c, x, width)
    hidden = jax.nn.gelu(hidden, approximate=False) if gelu else jax.nn.relu(hidden)
    return dense(c, hidden, x.shape[-1])


def post_norm_block(c: Ctx, x: Array, heads: int, width: int, mask: Array | None) -> Array:
    """norm(x + sublayer(x)) twice, as in the original Transformer and BERT."""
    x = layer_norm(c, x + dropout(c, multi_head(c, x, x, heads, mask), 0.1))
    return layer_norm(c, x + dropout(c, feed_forward(c, x, width), 0.1))


def pre_norm_block(c: Ctx, x: Array, heads: int, width: int, mask: Array | None = None) -> Array:
    """x + sublayer(norm(x)) twice, as in GPT-2 and ViT."""
    y = layer_norm(c, x)
    x = x + dropout(c, multi_head(c, y, y, heads, mask), 0.1)
    return x + dropout(c, feed_forward(c, layer_norm(c, x), width), 0.1)


def causal_mask(steps: int) -> Array:
    """[t, t], true on and below the diagonal."""
    import jax.numpy as jnp

    positions = jnp.arange(steps)
    return positions[:, None] >= positions[None, :]
