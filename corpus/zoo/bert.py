"""BERT encoders with the sizes of the published small, base and large models.

Depth and width are free (the small BERTs are the grid of 2..12 layers and 128..768 features), heads
are 64 wide, feed-forward layers four times the width, vocabulary 30522, as published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.attention import post_norm_block
from corpus.zoo.layers import classify, cross_entropy, dense, dropout, layer_norm

if TYPE_CHECKING:
    from jax import Array

VOCABULARY = 30522
MASKED_SHARE = 0.15


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

    picked = jnp.take_along_axis(x, masked[..., None], 1)
    picked = layer_norm(c, jax.nn.gelu(dense(c, picked, table.shape[1]), approximate=False))
    return picked @ table.T + c.weight(VOCABULARY)
