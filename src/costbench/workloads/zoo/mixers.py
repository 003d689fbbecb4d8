"""MLP-Mixer: dense layers across patches, then across channels. S/32 and B/16 on 224 x 224 images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costbench.workloads.context import Ctx
from costbench.workloads.zoo.attention import feed_forward
from costbench.workloads.zoo.layers import bias, classify, conv, layer_norm

if TYPE_CHECKING:
    from jax import Array


def mlp_mixer(c: Ctx, layers: int, features: int, patch: int) -> Array:
    """Hidden sizes are half the features across patches and four times across channels, as in table 1."""
    import jax.numpy as jnp

    x = bias(c, conv(c, c.input(c.batch, 224, 224, 3), features, patch, patch, "VALID"))
    x = x.reshape(c.batch, -1, features)
    for _ in range(layers):
        across = feed_forward(c, jnp.swapaxes(layer_norm(c, x), 1, 2), features // 2)
        x = x + jnp.swapaxes(across, 1, 2)
        x = x + feed_forward(c, layer_norm(c, x), 4 * features)
    return classify(c, jnp.mean(layer_norm(c, x), 1), 1000)
