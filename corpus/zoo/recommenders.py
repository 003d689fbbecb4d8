"""Recommendation, ranking and text completion: embedding tables, small dense nets, attention over history.

DLRM: the Criteo Kaggle shape (13 dense features, 26 tables of 16 features, bottom 512-256-64-16, top
512-256-1), identifiers hashed to at most a million. SmartCompose: the published production shape, an
LSTM language model of 1024 x 2 over the typed prefix with averaged embeddings of subject and previous
mail, beam search at inference. The insides of Ranking are not public: a listwise ranker with
attention over the user's history and a mixture of experts, as such systems are described.

Small models that are mostly tables: NCF: the NeuMF form of MLPerf on MovieLens-20M, 64 features for the
product branch, dense layers 256, 256, 128, 64. Word2vec: skip-gram with five negatives, 300 features, 692000
words. MLP: digits with two hidden layers of 800 and dropout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.layers import (
    binary_cross_entropy,
    cross_entropy,
    dense,
    dropout,
    embedding,
    layer_norm,
    lstm,
    lstm_state,
    mlp,
    scan_time,
)
from corpus.zoo.transformers import beam_search

if TYPE_CHECKING:
    from jax import Array

_CRITEO_ROWS = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992,
    5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
_HASHED_ROWS = 1_000_000
_MAIL_VOCABULARY = 50000
_USERS, _ITEMS = 138_493, 26_744
_WORDS = 692_000
_NEGATIVES = 5


def dlrm(c: Ctx, features: int = 16) -> Array:
    """Bottom net, table look-ups, pairwise dot interactions, top net; logistic loss on clicks."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    vectors = [mlp(c, c.input(c.batch, 13), (512, 256, 64, features))]
    for rows in _CRITEO_ROWS:
        vectors.append(embedding(c, c.tokens(c.batch), min(rows, _HASHED_ROWS), features))
    stacked = jnp.stack(vectors, 1)
    products = jnp.einsum("bif,bjf->bij", stacked, stacked)
    first, second = np.tril_indices(len(vectors), -1)
    x = jnp.concatenate([vectors[0], products[:, first, second]], -1)
    logits = dense(c, mlp(c, x, (512, 256)), 1)[:, 0].astype("float32")
    if not c.train:
        return jax.nn.sigmoid(logits)
    return jnp.mean(jax.nn.softplus(logits) - c.input(c.batch, dtype="float32") * logits)


def _history_attention(c: Ctx, items: Array, history: Array) -> Array:
    """For each item, history rows weighted by a small net of (row, item, difference, product)."""
    import jax
    import jax.numpy as jnp

    b, n, f = items.shape
    t = history.shape[1]
    rows = jnp.broadcast_to(history[:, None], (b, n, t, f))
    wide = jnp.broadcast_to(items[:, :, None], (b, n, t, f))
    seen = jnp.concatenate([rows, wide, rows - wide, rows * wide], -1)
    weights = jax.nn.softmax(dense(c, mlp(c, seen, (80, 40)), 1)[..., 0])
    return jnp.einsum("bnt,btf->bnf", weights, history)


def ranking(c: Ctx, items: int = 50, history: int = 30, features: int = 64) -> Array | tuple[Array, Array]:
    """Scores of `items` candidates per query: listwise softmax loss, or the ten best."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    table = c.weight(500_000, features)
    candidates, past = table[c.tokens(c.batch, items)], table[c.tokens(c.batch, history)]
    query = jnp.concatenate(
        [embedding(c, c.tokens(c.batch), rows, 32) for rows in (50000, 1000, 200, 24)], -1
    )
    query = jnp.broadcast_to(mlp(c, query, (128,))[:, None], (c.batch, items, 128))
    dense_features = c.input(c.batch, items, 40)
    x = jnp.concatenate([candidates, _history_attention(c, candidates, past), query, dense_features], -1)
    experts = jnp.stack([mlp(c, x, (256, 128)) for _ in range(4)], -1)
    gate = jax.nn.softmax(dense(c, x, 4))
    x = dropout(c, layer_norm(c, jnp.einsum("bnfe,bne->bnf", experts, gate)), 0.2)
    scores = dense(c, mlp(c, x, (64,)), 1)[..., 0].astype("float32")
    if not c.train:
        return lax.top_k(scores, 10)
    relevance = jax.nn.softmax(c.input(c.batch, items, dtype="float32"))
    return -jnp.mean(jnp.sum(relevance * jax.nn.log_softmax(scores), -1))


def _mail_context(c: Ctx, table: Array) -> Array:
    """Mean embedding of the subject and of the previous mail, side by side: [b, 2 f]."""
    import jax.numpy as jnp

    return jnp.concatenate([jnp.mean(table[c.tokens(c.batch, words)], 1) for words in (16, 64)], -1)


def smartcompose(c: Ctx, hidden: int = 1024, prefix: int = 32) -> Array | tuple[Array, Array]:
    """Language model of mails: loss over the prefix, or the completions that beam search finds."""
    import jax
    import jax.numpy as jnp

    table = c.weight(_MAIL_VOCABULARY, 512)
    context = _mail_context(c, table)
    cells = [lstm(c, 512 + context.shape[-1], hidden), lstm(c, hidden, hidden)]
    kernel, offset = c.weight(hidden, _MAIL_VOCABULARY), c.weight(_MAIL_VOCABULARY)
    tokens = c.tokens(c.batch, prefix)
    spread = jnp.broadcast_to(context[:, None], (c.batch, prefix, context.shape[-1]))
    x, states = jnp.concatenate([table[tokens], spread], -1), []
    for cell in cells:
        state, x = scan_time(cell, lstm_state(c, c.batch, hidden), dropout(c, x, 0.2))
        states.append(state)
    if c.train:
        return cross_entropy(x @ kernel + offset, c.tokens(c.batch, prefix))
    beams = 4
    repeated = jnp.repeat(context, beams, axis=0)

    def step(last: Array, cache: Any, position: Array) -> tuple[Array, Any]:
        del position
        y, fresh = jnp.concatenate([table[last], repeated], -1), []
        for cell, state in zip(cells, cache, strict=True):
            updated, y = cell((state[0, :], state[1, :]), y)
            fresh.append(jnp.stack(updated))
        return jax.nn.log_softmax((y @ kernel + offset).astype("float32")), fresh

    cache = [jnp.repeat(jnp.stack(state), beams, axis=1) for state in states]
    return beam_search(step, cache, c.batch, beams, limit=15)


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
