"""Small models that are mostly tables: neural collaborative filtering and word2vec; and a plain MLP.

NCF: the NeuMF form of MLPerf on MovieLens-20M, 64 features for the product branch, dense layers 256, 256,
128, 64. Word2vec: skip-gram with five negatives, 300 features, 692000 words. MLP: digits with two hidden
layers of 800 and dropout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.layers import (
    binary_cross_entropy,
    cross_entropy,
    dense,
    dropout,
    embedding,
    mlp,
)

if TYPE_CHECKING:
    from jax import Array

_USERS, _ITEMS = 138_493, 26_744
_WORDS = 692_000
_NEGATIVES = 5


def neural_collaborative_filtering(c: Ctx, features: int = 64) -> Array:
    """Logit from the product of two vectors beside a dense net on two others."""
    import jax
    import jax.numpy as jnp

    user, item = c.tokens(c.batch), c.tokens(c.batch)
    product = embedding(c, user, _USERS, features) * embedding(c, item, _ITEMS, features)
    x = jnp.concatenate([embedding(c, user, _USERS, 128), embedding(c, item, _ITEMS, 128)], -1)
    x = jnp.concatenate([product, mlp(c, x, (256, 128, 64))], -1)
    logits = dense(c, x, 1)[:, 0].astype("float32")
    if not c.train:
        return jax.nn.sigmoid(logits)
    return jnp.mean(binary_cross_entropy(logits, c.input(c.batch, dtype="float32")))


def word2vec(c: Ctx, features: int = 300) -> Array:
    """Skip-gram with negative sampling: -log s(v u) - sum over negatives log s(-v n)."""
    import jax.numpy as jnp

    centre = embedding(c, c.tokens(c.batch), _WORDS, features)
    context = embedding(c, c.tokens(c.batch, 1 + _NEGATIVES), _WORDS, features)
    logits = jnp.einsum("bf,bnf->bn", centre, context).astype("float32")
    target = (jnp.arange(1 + _NEGATIVES) == 0).astype("float32")
    return jnp.mean(jnp.sum(binary_cross_entropy(logits, target), -1))


def digits_mlp(c: Ctx, hidden: int = 800) -> Array:
    """Two hidden layers; a fifth of the inputs and half of the hidden units are dropped."""
    import jax

    x = dropout(c, c.input(c.batch, 784), 0.2)
    for _ in range(2):
        x = dropout(c, jax.nn.relu(dense(c, x, hidden)), 0.5)
    logits = dense(c, x, 10)
    return cross_entropy(logits, c.tokens(c.batch)) if c.train else jax.nn.softmax(logits)
