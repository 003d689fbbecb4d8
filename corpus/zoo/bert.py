"""BERT encoders with the sizes of the published models, and relatives: ALBERT, ELECTRA, talking heads.

Depth and width are free (the small BERTs are the grid of 2..12 layers and 128..768 features), heads
are 64 wide, feed-forward layers four times the width, vocabulary 30522, as published.

ALBERT: word vectors of 128 projected up, one layer's weights used by all layers; base 12 x 768, xlarge 24 x
2048. ELECTRA small: generator of 12 layers of 64, discriminator of 12 layers of 256, word vectors of 128
shared by both. Talking heads: logits and weights are mixed across heads; the gated layer is two thirds as
wide as a plain one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.layers import (
    binary_cross_entropy,
    classify,
    cross_entropy,
    dense,
    dropout,
    heads_of,
    layer_norm,
    merge_heads,
    post_norm_block,
)

if TYPE_CHECKING:
    from jax import Array

VOCABULARY = 30522
MASKED_SHARE = 0.15
_WORD_FEATURES = 128
_DISCRIMINATOR_WEIGHT = 50.0


def embed_tokens(c: Ctx, features: int, steps: int) -> tuple[Array, Array, Array]:
    """Tokens with segments and positions [b, t, features], what may be attended to, and the word table."""
    tokens, segments, valid = (c.tokens(c.batch, steps) for _ in range(3))
    table = c.weight(VOCABULARY, features)
    x = embed_with(c, table, tokens, segments)
    return x, (valid > 0)[:, None, None, :], table


def embed_with(c: Ctx, table: Array, tokens: Array, segments: Array) -> Array:
    """The sum of word, segment and position embeddings, normalised: [b, t, features]."""
    features, steps = table.shape[1], tokens.shape[1]
    x = table[tokens] + c.weight(2, features)[segments] + c.weight(512, features)[:steps]
    return dropout(c, layer_norm(c, x), 0.1)


def _encode(c: Ctx, layers: int, features: int, steps: int) -> tuple[Array, Array]:
    """Encoded tokens [b, t, features] and the word table."""
    x, mask, table = embed_tokens(c, features, steps)
    for _ in range(layers):
        x = post_norm_block(c, x, max(features // 64, 1), 4 * features, mask)
    return x, table


def pooled(c: Ctx, x: Array) -> Array:
    """A dense layer on the first token: [b, features]."""
    import jax.numpy as jnp

    return jnp.tanh(dense(c, x[:, 0], x.shape[-1]))


def bert_classifier(c: Ctx, layers: int, features: int, steps: int = 128) -> Array:
    """Sentence-pair classification (two classes) on the pooled first token."""
    x, _ = _encode(c, layers, features, steps)
    return classify(c, dropout(c, pooled(c, x), 0.1), 2)


def bert_pretraining(c: Ctx, layers: int, features: int, steps: int = 128) -> Array:
    """Masked words and next-sentence prediction."""
    x, table = _encode(c, layers, features, steps)
    masked = c.tokens(c.batch, round(steps * MASKED_SHARE))
    words = masked_words(c, x, masked, table)
    sentence = dense(c, pooled(c, x), 2)
    return cross_entropy(words, c.tokens(*masked.shape)) + cross_entropy(sentence, c.tokens(c.batch))


def masked_words(c: Ctx, x: Array, masked: Array, table: Array) -> Array:
    """Logits of the words at the masked positions, 15% of all: [b, masked, vocabulary]."""
    import jax
    import jax.numpy as jnp

    states = jnp.take_along_axis(x, masked[..., None], 1)
    states = layer_norm(c, jax.nn.gelu(dense(c, states, table.shape[1]), approximate=False))
    return states @ table.T + c.weight(VOCABULARY)


def albert(c: Ctx, layers: int, features: int, heads: int, steps: int = 128) -> Array:
    """ALBERT as a classifier of sentence pairs: every layer has the first one's weights."""
    x, mask, _ = embed_tokens(c, _WORD_FEATURES, steps)
    x = dense(c, x, features)
    weights: list[Array] = []
    for _ in range(layers):
        with c.tied(weights):
            x = post_norm_block(c, x, heads, 4 * features, mask)
    return classify(c, dropout(c, pooled(c, x), 0.1), 2)


def _encode_embedded(c: Ctx, x: Array, features: int, heads: int, mask: Array) -> Array:
    x = dense(c, x, features)
    for _ in range(12):
        x = post_norm_block(c, x, heads, 4 * features, mask)
    return x


def electra(c: Ctx, steps: int = 128) -> Array:
    """Pre-training: a small generator fills masked words in, the discriminator finds which it changed."""
    import jax
    import jax.numpy as jnp

    corrupted, segments, valid = (c.tokens(c.batch, steps) for _ in range(3))
    mask = (valid > 0)[:, None, None, :]
    table, shared = c.weight(VOCABULARY, _WORD_FEATURES), list[jax.Array]()
    with c.tied(shared):
        x = embed_with(c, table, corrupted, segments)
    positions = c.tokens(c.batch, round(steps * MASKED_SHARE))
    logits = masked_words(c, _encode_embedded(c, x, 64, 1, mask), positions, table)
    truth = c.tokens(*positions.shape)
    noise = jax.random.gumbel(c.rng(), logits.shape)
    sampled = jnp.argmax(jax.lax.stop_gradient(logits).astype("float32") + noise, -1).astype("int32")
    rows = jnp.arange(c.batch)[:, None]
    with c.tied(shared):
        x = embed_with(c, table, corrupted.at[rows, positions].set(sampled), segments)
    x = _encode_embedded(c, x, 256, 4, mask)
    score = dense(c, jax.nn.gelu(dense(c, x, 256), approximate=False), 1)[..., 0].astype("float32")
    changed = jnp.zeros(score.shape).at[rows, positions].set((sampled != truth).astype("float32"))
    detection_loss = jnp.mean(binary_cross_entropy(score, changed))
    return cross_entropy(logits, truth) + _DISCRIMINATOR_WEIGHT * detection_loss


def _talking_heads(c: Ctx, x: Array, heads: int, mask: Array) -> Array:
    """Attention whose logits are mixed across heads before the softmax, and whose weights are after."""
    import jax
    import jax.numpy as jnp

    features = x.shape[-1]
    query, key, value = (heads_of(c, x, heads, features // heads) for _ in range(3))
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) * query.shape[-1] ** -0.5
    mixed = jnp.einsum("bhqk,hg->bgqk", scores, c.weight(heads, heads)).astype("float32")
    weights = jax.nn.softmax(jnp.where(mask, mixed, -1e9)).astype(c.dtype)
    weights = dropout(c, jnp.einsum("bhqk,hg->bgqk", weights, c.weight(heads, heads)), 0.1)
    return merge_heads(c, jnp.einsum("bhqk,bhkd->bhqd", weights, value), features)


def _gated_feed_forward(c: Ctx, x: Array) -> Array:
    """(gelu(x W) * x V) U"""
    import jax

    width = 4 * x.shape[-1] * 2 // 3
    gate = jax.nn.gelu(dense(c, x, width), approximate=False)
    return dense(c, gate * dense(c, x, width), x.shape[-1])


def talking_heads_bert(c: Ctx, layers: int, features: int, steps: int = 128) -> Array:
    """BERT as a classifier of sentence pairs, with talking heads and gated feed-forward layers."""
    x, mask, _ = embed_tokens(c, features, steps)
    for _ in range(layers):
        x = layer_norm(c, x + dropout(c, _talking_heads(c, x, features // 64, mask), 0.1))
        x = layer_norm(c, x + dropout(c, _gated_feed_forward(c, x), 0.1))
    return classify(c, dropout(c, pooled(c, x), 0.1), 2)
