"""Transformers that read and write text, the vision Transformer, and the MLP-Mixer.

Sizes: base 6 + 6 layers of 512 with 8 heads and 2048 hidden, big 1024/16/4096, the IWSLT form with 4
heads and 1024 hidden; GPT-2 small 12 layers of 768; ViT-S/16 and B/16; Mixer-S/32 and B/16. Translation
decodes with beam search over cached keys and values until every beam has ended, so its trip count depends
on the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.layers import (
    attend,
    bias,
    causal_mask,
    classify,
    conv,
    cross_entropy,
    dropout,
    feed_forward,
    heads_of,
    layer_norm,
    multi_head,
    one_hot_cross_entropy,
    pre_norm_block,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array


@dataclass(frozen=True)
class Sizes:
    """Layers on each side, features, heads, hidden features, words."""

    layers: int
    features: int
    heads: int
    hidden: int
    vocabulary: int


BASE = Sizes(6, 512, 8, 2048, 37000)
BIG = Sizes(6, 1024, 16, 4096, 37000)
IWSLT = Sizes(6, 512, 4, 1024, 10000)
_END = 1


def _positions(steps: int, features: int) -> Array:
    """Sinusoidal position encoding [t, f]."""
    import jax.numpy as jnp

    rates = jnp.exp(jnp.arange(features // 2) * (-9.21 / (features // 2 - 1)))
    angles = jnp.arange(steps)[:, None] * rates
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def _embed(c: Ctx, table: Array, tokens: Array) -> Array:
    x = table[tokens] * table.shape[1] ** 0.5
    return dropout(c, x + _positions(tokens.shape[1], table.shape[1]).astype(c.dtype), 0.1)


def _encode(c: Ctx, sizes: Sizes, table: Array, steps: int) -> tuple[Array, Array]:
    """Encoded source [b, t, f] and its mask [b, 1, 1, t] (word 0 is padding)."""
    tokens = c.tokens(c.batch, steps)
    mask = (tokens > 0)[:, None, None, :]
    x = _embed(c, table, tokens)
    for _ in range(sizes.layers):
        x = layer_norm(c, x + dropout(c, multi_head(c, x, x, sizes.heads, mask), 0.1))
        x = layer_norm(c, x + dropout(c, feed_forward(c, x, sizes.hidden, gelu=False), 0.1))
    return x, mask


def transformer(c: Ctx, sizes: Sizes = BASE, steps: int = 64) -> Array:
    """Encoder-decoder training step: teacher-forced, label smoothing 0.1, shared word table."""
    table = c.weight(sizes.vocabulary, sizes.features)
    memory, mask = _encode(c, sizes, table, steps)
    x = _embed(c, table, c.tokens(c.batch, steps))
    for _ in range(sizes.layers):
        x = layer_norm(c, x + dropout(c, multi_head(c, x, x, sizes.heads, causal_mask(steps)), 0.1))
        x = layer_norm(c, x + dropout(c, multi_head(c, x, memory, sizes.heads, mask), 0.1))
        x = layer_norm(c, x + dropout(c, feed_forward(c, x, sizes.hidden, gelu=False), 0.1))
    return one_hot_cross_entropy(x @ table.T, c.tokens(c.batch, steps), smoothing=0.1)


def transformer_lm(c: Ctx, layers: int, features: int, vocabulary: int, steps: int) -> Array:
    """Decoder-only language model, pre-norm, heads of 64 (GPT-2's form)."""
    import jax

    table = c.weight(vocabulary, features)
    x = dropout(c, table[c.tokens(c.batch, steps)] + c.weight(steps, features), 0.1)
    for _ in range(layers):
        x = pre_norm_block(c, x, features // 64, 4 * features, causal_mask(steps))
    logits = layer_norm(c, x) @ table.T
    if c.train:
        return cross_entropy(logits, c.tokens(c.batch, steps))
    return jax.nn.log_softmax(logits[:, -1].astype("float32"))


def vision_transformer(c: Ctx, layers: int, features: int) -> Array:
    """ViT on 16 x 16 patches of 224 x 224 images, classified by a class token."""
    import jax.numpy as jnp

    x = bias(c, conv(c, c.input(c.batch, 224, 224, 3), features, 16, 16, "VALID"))
    x = x.reshape(c.batch, -1, features)
    token = jnp.broadcast_to(c.weight(1, 1, features), (c.batch, 1, features))
    x = jnp.concatenate([token, x], 1)
    x = dropout(c, x + c.weight(x.shape[1], features), 0.1)
    for _ in range(layers):
        x = pre_norm_block(c, x, features // 64, 4 * features)
    return classify(c, layer_norm(c, x)[:, 0], 1000)


def mlp_mixer(c: Ctx, layers: int, features: int, patch: int) -> Array:
    """Dense layers across patches, half as wide as the features, then across channels, four times as wide."""
    import jax.numpy as jnp

    x = bias(c, conv(c, c.input(c.batch, 224, 224, 3), features, patch, patch, "VALID"))
    x = x.reshape(c.batch, -1, features)
    for _ in range(layers):
        across = feed_forward(c, jnp.swapaxes(layer_norm(c, x), 1, 2), features // 2)
        x = x + jnp.swapaxes(across, 1, 2)
        x = x + feed_forward(c, layer_norm(c, x), 4 * features)
    return classify(c, jnp.mean(layer_norm(c, x), 1), 1000)


class _DecoderLayer:
    """One decoder layer's weights for step-by-step decoding, asked for before the loop."""

    def __init__(self, c: Ctx, sizes: Sizes, memory: Array) -> None:
        f, h = sizes.features, sizes.heads
        d = f // h
        self.c, self.sizes = c, sizes
        self.projection, self.out = c.weight(f, 3, h, d), c.weight(h, d, f)
        self.query, self.cross_out = c.weight(f, h, d), c.weight(h, d, f)
        self.keys, self.values = heads_of(c, memory, h, d), heads_of(c, memory, h, d)
        self.up, self.up_bias = c.weight(f, sizes.hidden), c.weight(sizes.hidden)
        self.down, self.down_bias = c.weight(sizes.hidden, f), c.weight(f)
        self.norms = [(c.weight32(f), c.weight32(f)) for _ in range(3)]

    def _norm(self, x: Array, which: int) -> Array:
        import jax.numpy as jnp
        from jax import lax

        wide = x.astype("float32")
        wide = wide - jnp.mean(wide, -1, keepdims=True)
        scale, offset = self.norms[which]
        wide = wide * lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + 1e-6)
        return (wide * scale + offset).astype(self.c.dtype)

    def step(
        self, x: Array, cache: Array, position: Array, visible: Array, mask: Array
    ) -> tuple[Array, Array]:
        """x [rows, f], cache [2, rows, t, h, d] -> the layer's output and the cache with this step in it."""
        import jax
        import jax.numpy as jnp
        from jax import lax

        query, key, value = jnp.moveaxis(jnp.einsum("rf,fkhd->rkhd", x, self.projection), 1, 0)
        fresh = jnp.stack([key, value])[:, :, None]
        cache = lax.dynamic_update_slice(cache, fresh, (0, 0, position, 0, 0))
        seen = jnp.moveaxis(cache, 3, 2)
        mixed = attend(self.c, query[:, :, None], seen[0], seen[1], visible)
        x = self._norm(x + jnp.einsum("rhd,hdf->rf", mixed[:, :, 0], self.out), 0)
        mixed = self._cross(jnp.einsum("rf,fhd->rhd", x, self.query), mask)
        x = self._norm(x + jnp.einsum("rhd,hdf->rf", mixed, self.cross_out), 1)
        hidden = jax.nn.relu(x @ self.up + self.up_bias)
        return self._norm(x + hidden @ self.down + self.down_bias, 2), cache

    def _cross(self, query: Array, mask: Array) -> Array:
        """Attention to the source: the beams of one sentence are the queries of one batch entry."""
        batch, heads, _, size = self.keys.shape
        beams = query.reshape(batch, -1, heads, size).swapaxes(1, 2)
        mixed = attend(self.c, beams, self.keys, self.values, mask)
        return mixed.swapaxes(1, 2).reshape(-1, heads, size)


def beam_search(
    step: Callable[[Array, Any, Array], tuple[Array, Any]], cache: Any, batch: int, beams: int, limit: int
) -> tuple[Array, Array]:
    """Beam search with a data-dependent end.

    Args:
        step: (last words [batch beams], cache, position) -> log probabilities [batch beams, words], cache.
        cache: tree of arrays with a dimension of batch x beams, second in each.
        batch: number of sentences.
        beams: number of hypotheses that are followed for each.
        limit: most words per sentence.

    Returns:
        words [batch, beams, limit] and scores [batch, beams].
    """
    import jax
    import jax.numpy as jnp
    from jax import lax

    rows = jnp.arange(batch)[:, None]

    def running(loop: Any) -> Array:
        position: Array = loop[0]
        return (position < limit) & ~jnp.all(loop[3])

    def body(loop: Any) -> Any:
        position, words, scores, ended, cache = loop
        last = lax.dynamic_slice_in_dim(words, jnp.maximum(position - 1, 0), 1, 2)[..., 0]
        log_probs, cache = step(last.reshape(-1), cache, position)
        vocabulary = log_probs.shape[-1]
        only_end = jnp.where(jnp.arange(vocabulary) == _END, 0.0, -1e9)
        log_probs = jnp.where(ended[..., None], only_end, log_probs.reshape(batch, beams, vocabulary))
        total = (scores[..., None] + log_probs).reshape(batch, -1)
        scores, choice = lax.top_k(total, beams)
        origin, word = choice // vocabulary, choice % vocabulary
        words = lax.dynamic_update_slice(words[rows, origin], word[..., None], (0, 0, position))
        flat = (rows * beams + origin).reshape(-1)
        cache = jax.tree.map(lambda one: jnp.take(one, flat, axis=1), cache)
        return position + 1, words, scores, ended[rows, origin] | (word == _END), cache

    scores = jnp.where(jnp.arange(beams) == 0, 0.0, jnp.full((batch, beams), -1e9))
    words, ended = jnp.zeros((batch, beams, limit), "int32"), jnp.zeros((batch, beams), bool)
    loop = (jnp.int32(0), words, scores, ended, cache)
    _, words, scores, _, _ = lax.while_loop(running, body, loop)
    return words, scores


def translate(c: Ctx, sizes: Sizes = BASE, beams: int = 4, steps: int = 64) -> tuple[Array, Array]:
    """Encoder, then beam search of the decoder with cached keys and values."""
    import jax
    import jax.numpy as jnp

    table = c.weight(sizes.vocabulary, sizes.features)
    memory, mask = _encode(c, sizes, table, steps)
    layers = [_DecoderLayer(c, sizes, memory) for _ in range(sizes.layers)]
    positions = _positions(steps, sizes.features).astype(c.dtype)

    def step(last: Array, caches: Any, position: Array) -> tuple[Array, Any]:
        x = table[last] * sizes.features**0.5 + jnp.take(positions, position, axis=0)
        visible = (jnp.arange(steps) <= position)[None, None, None, :]
        fresh = []
        for layer, cache in zip(layers, caches, strict=True):
            x, updated = layer.step(x, cache, position, visible, mask)
            fresh.append(updated)
        return jax.nn.log_softmax((x @ table.T).astype("float32")), fresh

    rows, size = c.batch * beams, sizes.features // sizes.heads
    caches = [jnp.zeros((2, rows, steps, sizes.heads, size), c.dtype) for _ in layers]
    return beam_search(step, caches, c.batch, beams, steps)
