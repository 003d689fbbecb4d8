"""Layers shared by the hand-written models: each asks the context for its weights where it runs.

Images are channels-last (NHWC, kernels HWIO), sequences are [batch, time, features]; one function
serves one, two and three spatial dimensions. Weights are float32 and cast on use; norms, softmax and
losses are computed in float32, as mixed-precision training does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from corpus.context import Ctx

if TYPE_CHECKING:
    from jax import Array

_LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}
Extent = int | tuple[int, ...]


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
