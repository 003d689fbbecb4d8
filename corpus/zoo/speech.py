"""Speech recognition trained with CTC: Deep Speech 2 and the Conformer.

Deep Speech 2: two convolutions of 32 filters over 161 frequencies, five bidirectional GRU layers of 800
with batch norm before each, 29 characters. Conformer: four times fewer frames by two strided convolutions,
16 blocks (S: 144 features, M: 256) of half-step feed-forward, self-attention with relative positions,
a convolution module of width 31, and half-step feed-forward; 80 mel bands, 1024 word pieces. The published
Conformer is trained as a transducer; CTC on the same encoder is the common alternative.

Connectionist temporal classification is the loss of a transcript without an alignment.
Graves et al. 2006: the transcript with a blank (class 0) before, between and after its labels; the forward
recursion over frames sums the probabilities of all ways to read it off, in logarithms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.layers import (
    batch_norm,
    bias,
    conv,
    dense,
    dropout,
    grouped_conv,
    heads_of,
    layer_norm,
    merge_heads,
    run_gru,
)

if TYPE_CHECKING:
    from jax import Array

_CHARACTERS, _PIECES = 29, 1024
_NEVER = -1e9


def _transcribed(c: Ctx, logits: Array, labels: int) -> Array:
    """The CTC loss of fed transcripts in training, log probabilities per frame at inference."""
    import jax

    log_probs = jax.nn.log_softmax(logits.astype("float32"))
    if not c.train:
        return log_probs
    return ctc_loss(log_probs, c.tokens(c.batch, labels), c.tokens(c.batch), c.tokens(c.batch))


def deepspeech2(c: Ctx, frames: int = 800) -> Array:
    """Spectrograms [b, frames, 161] to characters; sequences are half as long after the convolutions."""
    import jax.numpy as jnp

    def clipped(x: Array) -> Array:
        return jnp.clip(batch_norm(c, x), 0.0, 20.0)

    x = clipped(conv(c, c.input(c.batch, frames, 161, 1), 32, (11, 41), (2, 2)))
    x = clipped(conv(c, x, 32, (11, 21), (1, 2)))
    x = x.reshape(c.batch, x.shape[1], -1)
    for layer in range(5):
        x = batch_norm(c, x) if layer else x
        x = run_gru(c, x, 800) + run_gru(c, x, 800, reverse=True)
    return _transcribed(c, dense(c, batch_norm(c, x), _CHARACTERS), labels=120)


def _relative_attention(c: Ctx, x: Array, heads: int) -> Array:
    """Attention with logits q (k + r)^T / sqrt(d) plus two learnt offsets; r by distance (Transformer-XL)."""
    import jax
    import jax.numpy as jnp

    b, t, features = x.shape
    size = features // heads
    query, key, value = (heads_of(c, x, heads, size) for _ in range(3))
    rates = jnp.exp(jnp.arange(features // 2) * (-9.21 / (features // 2 - 1)))
    angles = jnp.arange(t - 1, -t, -1)[:, None] * rates
    encodings = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1).astype(c.dtype)
    encodings = jnp.einsum("tf,fhd->htd", encodings, c.weight(features, heads, size))
    content = jnp.einsum("bhqd,bhkd->bhqk", query + c.weight(heads, 1, size), key)
    by_distance = jnp.einsum("bhqd,hrd->bhqr", query + c.weight(heads, 1, size), encodings)
    # Row q wants distances q - k: pad by one, and read the rows as if they were one longer.
    padded = jnp.pad(by_distance, ((0, 0), (0, 0), (0, 0), (1, 0))).reshape(b, heads, 2 * t, t)
    shifted = padded[:, :, 1:].reshape(b, heads, t, 2 * t - 1)[..., :t]
    scores = (content + shifted).astype("float32") * size**-0.5
    weights = dropout(c, jax.nn.softmax(scores).astype(c.dtype), 0.1)
    return merge_heads(c, jnp.einsum("bhqk,bhkd->bhqd", weights, value), features)


def _half_feed_forward(c: Ctx, x: Array) -> Array:
    """x + feed_forward(norm(x)) / 2 with swish."""
    import jax

    y = dropout(c, jax.nn.silu(dense(c, layer_norm(c, x), 4 * x.shape[-1])), 0.1)
    return x + 0.5 * dropout(c, dense(c, y, x.shape[-1]), 0.1)


def _convolution_module(c: Ctx, x: Array, width: int) -> Array:
    """Gated pointwise, depthwise, batch norm, swish, pointwise."""
    import jax

    features = x.shape[-1]
    y = dense(c, layer_norm(c, x), 2 * features)
    y = y[..., :features] * jax.nn.sigmoid(y[..., features:])
    y = jax.nn.silu(batch_norm(c, bias(c, grouped_conv(c, y, features, width, 1, features))))
    return dropout(c, dense(c, y, features), 0.1)


def conformer(c: Ctx, features: int, layers: int = 16, heads: int = 4, frames: int = 1000) -> Array:
    """Mel frames [b, frames, 80] to word pieces."""
    import jax

    x = jax.nn.relu(bias(c, conv(c, c.input(c.batch, frames, 80, 1), features, 3, 2)))
    x = jax.nn.relu(bias(c, conv(c, x, features, 3, 2)))
    x = dropout(c, dense(c, x.reshape(c.batch, x.shape[1], -1), features), 0.1)
    for _ in range(layers):
        x = _half_feed_forward(c, x)
        x = x + dropout(c, _relative_attention(c, layer_norm(c, x), heads), 0.1)
        x = x + _convolution_module(c, x, 31)
        x = layer_norm(c, _half_feed_forward(c, x))
    return _transcribed(c, dense(c, x, _PIECES + 1), labels=60)


def ctc_loss(log_probs: Array, labels: Array, frames: Array, lengths: Array) -> Array:
    """Mean over the batch of -log p(labels).

    Args:
        log_probs: [b, t, classes], class 0 is the blank.
        labels: [b, n], padded.
        frames: how many frames count, [b].
        lengths: how many labels count, [b].
    """
    import jax.numpy as jnp
    from jax import lax

    batch, steps, _ = log_probs.shape
    states = 2 * labels.shape[1] + 1
    extended = jnp.zeros((batch, states), labels.dtype).at[:, 1::2].set(labels)
    emitted = jnp.take_along_axis(log_probs, extended[:, None], 2)
    # A blank may be left out between two different labels.
    earlier = jnp.pad(extended, ((0, 0), (2, 0)))[:, :-2]
    skips = (extended != 0) & (extended != earlier) & (jnp.arange(states) >= 2)

    def advance(forward: Array, one: tuple[Array, Array]) -> tuple[Array, None]:
        emission, number = one
        after_one = jnp.pad(forward, ((0, 0), (1, 0)), constant_values=_NEVER)[:, :-1]
        after_two = jnp.pad(forward, ((0, 0), (2, 0)), constant_values=_NEVER)[:, :-2]
        ways = jnp.stack([forward, after_one, jnp.where(skips, after_two, _NEVER)])
        highest = lax.stop_gradient(jnp.max(ways, 0))
        total = highest + jnp.log(jnp.sum(jnp.exp(ways - highest), 0)) + emission
        return jnp.where((number < frames)[:, None], total, forward), None

    start = jnp.where(jnp.arange(states) < 2, emitted[:, 0], _NEVER)
    rest = (jnp.swapaxes(emitted, 0, 1)[1:], jnp.arange(1, steps))
    forward, _ = lax.scan(advance, start, rest)
    last = 2 * lengths[:, None]
    ends = jnp.take_along_axis(forward, jnp.concatenate([last, jnp.maximum(last - 1, 0)], 1), 1)
    return -jnp.mean(jnp.logaddexp(ends[:, 0], ends[:, 1]))
