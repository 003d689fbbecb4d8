"""Layers shared by the hand-written models: each asks the context for its weights where it runs.

Images are channels-last (NHWC, kernels HWIO), sequences are [batch, time, features]; one function
serves one, two and three spatial dimensions. Weights are float32 and cast on use; norms, softmax and
losses are computed in float32, as mixed-precision training does.

Attention: projections are kept as [features, heads, size] tensors, so attention is dots with batch dimensions
(batch, head) in the form XLA gets from production models.

Recurrent cells and the scans that run them: weights are asked for outside the scan, because a scan's body may
be traced more than once. Sequences enter and leave as [batch, time, features]; the scan itself runs over
time-major slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from corpus.context import Ctx

if TYPE_CHECKING:
    from jax import Array

_LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}
Extent = int | tuple[int, ...]
# (carried state, input at one step) -> (new state, output at that step)
Cell = Callable[[Any, "Array"], tuple[Any, "Array"]]


def _spread(extent: Extent, rank: int) -> tuple[int, ...]:
    return (extent,) * rank if isinstance(extent, int) else extent


def conv(c: Ctx, x: Array, features: int, kernel: Extent, stride: Extent = 1, padding: str = "SAME") -> Array:
    """Convolution without bias: [b, *space, i] -> [b, *space', features]."""
    from jax import lax

    rank = x.ndim - 2
    weight = c.weight(*_spread(kernel, rank), x.shape[-1], features)
    return lax.conv_general_dilated(
        x, weight, _spread(stride, rank), padding, dimension_numbers=_LAYOUTS[rank]
    )


def dilated_conv(c: Ctx, x: Array, features: int, kernel: int, dilation: int, causal: bool = False) -> Array:
    """Convolution whose taps lie `dilation` apart; `causal` sees only the past (one dimension)."""
    from jax import lax

    rank = x.ndim - 2
    weight = c.weight(*_spread(kernel, rank), x.shape[-1], features)
    padding: str | list[tuple[int, int]] = [((kernel - 1) * dilation, 0)] if causal else "SAME"
    return lax.conv_general_dilated(
        x, weight, (1,) * rank, padding, rhs_dilation=(dilation,) * rank, dimension_numbers=_LAYOUTS[rank]
    )


def grouped_conv(c: Ctx, x: Array, features: int, kernel: Extent, stride: Extent, groups: int) -> Array:
    """Convolution in `groups` independent parts of the channels; depthwise when groups = channels."""
    from jax import lax

    rank = x.ndim - 2
    weight = c.weight(*_spread(kernel, rank), x.shape[-1] // groups, features)
    return lax.conv_general_dilated(
        x, weight, _spread(stride, rank), "SAME",
        dimension_numbers=_LAYOUTS[rank], feature_group_count=groups,
    )  # fmt: skip


def conv_transpose(
    c: Ctx, x: Array, features: int, kernel: Extent, stride: Extent, padding: str = "SAME"
) -> Array:
    """Transposed convolution (input dilated by `stride`, kernel not mirrored): space grows by `stride`."""
    from jax import lax

    rank = x.ndim - 2
    weight = c.weight(*_spread(kernel, rank), x.shape[-1], features)
    return lax.conv_transpose(x, weight, _spread(stride, rank), padding, dimension_numbers=_LAYOUTS[rank])


def bias(c: Ctx, x: Array) -> Array:
    """x + b over the last dimension."""
    return x + c.weight(x.shape[-1])


def dense(c: Ctx, x: Array, features: int, use_bias: bool = True) -> Array:
    """x W + b over the last dimension."""
    y = x @ c.weight(x.shape[-1], features)
    return bias(c, y) if use_bias else y


def embedding(c: Ctx, tokens: Array, vocabulary: int, features: int) -> Array:
    """Rows of a [vocabulary, features] table: a gather; its gradient is a scatter."""
    return c.weight(vocabulary, features)[tokens]


def batch_norm(c: Ctx, x: Array, momentum: float = 0.9) -> Array:
    """(x - mean) / sqrt(var + eps) * scale + offset; batch statistics in training, moving ones after."""
    import jax.numpy as jnp
    from jax import lax

    channels = x.shape[-1]
    scale, offset = c.weight32(channels), c.weight32(channels)
    old_mean, old_variance = c.state(channels), c.state(channels)
    if c.train:
        wide = x.astype("float32")
        axes = tuple(range(x.ndim - 1))
        mean = jnp.mean(wide, axes)
        variance = jnp.mean(jnp.square(wide), axes) - jnp.square(mean)
        for old, new in ((old_mean, mean), (old_variance, variance)):
            c.new_states.append(momentum * old + (1 - momentum) * new)
    else:
        mean, variance = old_mean, old_variance
    factor = scale * lax.rsqrt(variance + 1e-5)
    return (x.astype("float32") * factor + (offset - mean * factor)).astype(c.dtype)


def layer_norm(c: Ctx, x: Array) -> Array:
    """Normalisation over the last dimension, in float32."""
    import jax.numpy as jnp
    from jax import lax

    wide = x.astype("float32")
    mean = jnp.mean(wide, -1, keepdims=True)
    variance = jnp.mean(jnp.square(wide - mean), -1, keepdims=True)
    normal = (wide - mean) * lax.rsqrt(variance + 1e-6)
    return (normal * c.weight32(x.shape[-1]) + c.weight32(x.shape[-1])).astype(c.dtype)


def group_norm(c: Ctx, x: Array, groups: int = 32) -> Array:
    """Normalisation over space and each group's channels, in float32; groups = channels: instance norm."""
    import jax.numpy as jnp
    from jax import lax

    channels = x.shape[-1]
    wide = x.astype("float32").reshape(*x.shape[:-1], groups, channels // groups)
    axes = (*range(1, x.ndim - 1), x.ndim)
    mean = jnp.mean(wide, axes, keepdims=True)
    variance = jnp.mean(jnp.square(wide - mean), axes, keepdims=True)
    normal = ((wide - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return (normal * c.weight32(channels) + c.weight32(channels)).astype(c.dtype)


def dropout(c: Ctx, x: Array, rate: float) -> Array:
    """Inverted dropout from one RngBitGenerator; the identity at inference."""
    import jax.numpy as jnp

    if not c.train:
        return x
    keep = c.random_bits(*x.shape) < jnp.uint32(round((1.0 - rate) * 2**32))
    return jnp.where(keep, x / (1.0 - rate), jnp.zeros((), x.dtype))


def max_pool(x: Array, window: Extent, stride: Extent, padding: str = "SAME") -> Array:
    """Maximum over windows of the spatial dimensions."""
    import numpy as np
    from jax import lax

    rank = x.ndim - 2
    # A concrete -inf: with a traced one the gradient of reduce_window is not recognised as max.
    lowest = np.array(-np.inf, x.dtype)
    pooled: Array = lax.reduce_window(
        x, lowest, lax.max, (1, *_spread(window, rank), 1), (1, *_spread(stride, rank), 1), padding
    )
    return pooled


def global_mean(x: Array) -> Array:
    """Mean over space: [b, *space, f] -> [b, f]."""
    import jax.numpy as jnp

    return jnp.mean(x, tuple(range(1, x.ndim - 1)))


def upsample(x: Array, factor: int = 2) -> Array:
    """Nearest-neighbour growth of height and width: [b, h, w, f] -> [b, h factor, w factor, f]."""
    import jax.numpy as jnp

    b, h, w, f = x.shape
    grown = jnp.broadcast_to(x[:, :, None, :, None, :], (b, h, factor, w, factor, f))
    return grown.reshape(b, h * factor, w * factor, f)


def mlp(c: Ctx, x: Array, widths: Sequence[int]) -> Array:
    """Dense layers with ReLU after each."""
    import jax

    for width in widths:
        x = jax.nn.relu(dense(c, x, width))
    return x


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Mean of -log softmax(logits)[label] in float32; labels are integers shaped like logits[..., 0]."""
    import jax
    import jax.numpy as jnp

    log_probs = jax.nn.log_softmax(logits.astype("float32"))
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[..., None], -1))


def one_hot_cross_entropy(logits: Array, labels: Array, smoothing: float = 0.0) -> Array:
    """The same through a one-hot target, optionally smoothed: a product instead of a gather."""
    import jax
    import jax.numpy as jnp

    classes = logits.shape[-1]
    target = jax.nn.one_hot(labels, classes) * (1.0 - smoothing) + smoothing / classes
    return -jnp.mean(jnp.sum(target * jax.nn.log_softmax(logits.astype("float32")), -1))


def binary_cross_entropy(logits: Array, targets: Array | float) -> Array:
    """-t log s(x) - (1 - t) log(1 - s(x)), elementwise."""
    import jax

    return jax.nn.softplus(logits) - targets * logits


def classify(c: Ctx, features: Array, classes: int) -> Array:
    """Classification head: the loss on fed labels in training, class probabilities at inference."""
    import jax

    logits = dense(c, features, classes)
    if c.train:
        return one_hot_cross_entropy(logits, c.tokens(c.batch))
    return jax.nn.softmax(logits.astype("float32"))


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


def lstm(c: Ctx, inputs: int, hidden: int, projection: int = 0) -> Cell:
    """i, f, g, o = [x, h] W + b; c' = s(f) c + s(i) tanh(g); h' = s(o) tanh(c'), projected if asked."""
    import jax
    import jax.numpy as jnp

    kernel = c.weight(inputs + (projection or hidden), 4 * hidden)
    offset = c.weight(4 * hidden)
    project = c.weight(hidden, projection) if projection else None

    def step(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        cell, output = state
        gates = jnp.concatenate([x, output], -1) @ kernel + offset
        i, f, g, o = jnp.split(gates, 4, -1)
        cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        output = jax.nn.sigmoid(o) * jnp.tanh(cell)
        output = output if project is None else output @ project
        return (cell, output), output

    return step


def gru(c: Ctx, inputs: int, hidden: int) -> Cell:
    """r, z = s(x W + h U); h~ = tanh(x W + r (h U)); h' = z h + (1 - z) h~"""
    import jax
    import jax.numpy as jnp

    from_input, from_state = c.weight(inputs, 3 * hidden), c.weight(hidden, 3 * hidden)
    offset = c.weight(3 * hidden)

    def step(state: Array, x: Array) -> tuple[Array, Array]:
        xr, xz, xh = jnp.split(x @ from_input + offset, 3, -1)
        hr, hz, hh = jnp.split(state @ from_state, 3, -1)
        update = jax.nn.sigmoid(xz + hz)
        candidate = jnp.tanh(xh + jax.nn.sigmoid(xr + hr) * hh)
        state = update * state + (1.0 - update) * candidate
        return state, state

    return step


def zeros(c: Ctx, *shape: int) -> Array:
    """An initial state in the compute dtype."""
    import jax.numpy as jnp

    return jnp.zeros(shape, c.dtype)


def lstm_state(c: Ctx, batch: int, hidden: int, projection: int = 0) -> tuple[Array, Array]:
    """(cell, output) at the start."""
    return zeros(c, batch, hidden), zeros(c, batch, projection or hidden)


def scan_time(cell: Cell, state: Any, x: Array, reverse: bool = False) -> tuple[Any, Array]:
    """Runs `cell` along time: x [b, t, f] -> (last state, outputs [b, t, f'])."""
    import jax.numpy as jnp
    from jax import lax

    state, outputs = lax.scan(cell, state, jnp.swapaxes(x, 0, 1), reverse=reverse)
    return state, jnp.swapaxes(outputs, 0, 1)


def run_lstm(c: Ctx, x: Array, hidden: int, reverse: bool = False) -> Array:
    """One LSTM layer from a zero state: [b, t, f] -> [b, t, hidden]."""
    cell = lstm(c, x.shape[-1], hidden)
    return scan_time(cell, lstm_state(c, x.shape[0], hidden), x, reverse)[1]


def run_gru(c: Ctx, x: Array, hidden: int, reverse: bool = False) -> Array:
    """One GRU layer from a zero state: [b, t, f] -> [b, t, hidden]."""
    cell = gru(c, x.shape[-1], hidden)
    return scan_time(cell, zeros(c, x.shape[0], hidden), x, reverse)[1]


def bidirectional(c: Ctx, x: Array, hidden: int) -> Array:
    """LSTM layers in both directions, side by side: [b, t, f] -> [b, t, 2 hidden]."""
    import jax.numpy as jnp

    return jnp.concatenate([run_lstm(c, x, hidden), run_lstm(c, x, hidden, reverse=True)], -1)
