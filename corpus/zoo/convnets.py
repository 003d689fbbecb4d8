"""Image classifiers written by hand: AlexNet, residual networks of both versions; and an image embedder.

Sources of the sizes: AlexNet (2012, single tower), ResNet v1 (2015, table 1) and v2 (2016).

ImageEmbed: an image tower trained so that two views of one thing end up close.
The application's inside is not public. Built as such systems are described: a residual tower of
grouped bottlenecks with squeeze-and-excitation, a 64-number unit vector, and a softmax over the
similarities of all pairs in the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.layers import (
    batch_norm,
    bias,
    classify,
    conv,
    cross_entropy,
    dense,
    dropout,
    global_mean,
    grouped_conv,
    max_pool,
)

if TYPE_CHECKING:
    from jax import Array

# depth -> blocks per stage; 18 and 34 use two 3x3 convolutions, the others 1x1, 3x3, 1x1.
RESNET_BLOCKS = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3),
    101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3),
}  # fmt: skip


def alexnet(c: Ctx) -> Array:
    """AlexNet: five convolutions (two of them grouped), three dense layers with dropout."""
    import jax

    relu = jax.nn.relu
    x = c.input(c.batch, 227, 227, 3)
    x = max_pool(relu(bias(c, conv(c, x, 96, 11, 4, "VALID"))), 3, 2, "VALID")
    x = max_pool(relu(bias(c, grouped_conv(c, x, 256, 5, 1, 2))), 3, 2, "VALID")
    x = relu(bias(c, conv(c, x, 384, 3)))
    x = relu(bias(c, grouped_conv(c, x, 384, 3, 1, 2)))
    x = max_pool(relu(bias(c, grouped_conv(c, x, 256, 3, 1, 2))), 3, 2, "VALID")
    x = x.reshape(c.batch, -1)
    x = dropout(c, relu(dense(c, x, 4096)), 0.5)
    x = dropout(c, relu(dense(c, x, 4096)), 0.5)
    return classify(c, x, 1000)


def residual_block_v1(c: Ctx, x: Array, features: int, stride: int, bottleneck: bool) -> Array:
    """relu(F(x) + shortcut(x)); the shortcut is a strided 1x1 convolution where the shape changes."""
    import jax

    relu = jax.nn.relu
    width = features // 4 if bottleneck else features
    if bottleneck:
        y = relu(batch_norm(c, conv(c, x, width, 1)))
        y = relu(batch_norm(c, conv(c, y, width, 3, stride)))
        y = batch_norm(c, conv(c, y, features, 1))
    else:
        y = relu(batch_norm(c, conv(c, x, width, 3, stride)))
        y = batch_norm(c, conv(c, y, width, 3))
    if stride > 1 or x.shape[-1] != features:
        x = batch_norm(c, conv(c, x, features, 1, stride))
    return relu(x + y)


def residual_block_v2(c: Ctx, x: Array, features: int, stride: int, bottleneck: bool) -> Array:
    """x + F(norm(x)), activations before convolutions; the shortcut branches off after the first norm."""
    import jax

    relu = jax.nn.relu
    width = features // 4 if bottleneck else features
    active = relu(batch_norm(c, x))
    shortcut = conv(c, active, features, 1, stride) if stride > 1 or x.shape[-1] != features else x
    if bottleneck:
        y = conv(c, active, width, 1)
        y = conv(c, relu(batch_norm(c, y)), width, 3, stride)
        y = conv(c, relu(batch_norm(c, y)), features, 1)
    else:
        y = conv(c, active, width, 3, stride)
        y = conv(c, relu(batch_norm(c, y)), width, 3)
    return shortcut + y


def resnet_stages(c: Ctx, x: Array, depth: int, version: int, width: int = 1) -> list[Array]:
    """The four stages of a residual network; features after each, strides 1, 2, 2, 2."""
    block = residual_block_v1 if version == 1 else residual_block_v2
    bottleneck = depth >= 50
    outputs = []
    for stage, blocks in enumerate(RESNET_BLOCKS[depth]):
        features = width * 64 * 2**stage * (4 if bottleneck else 1)
        for index in range(blocks):
            stride = 2 if stage > 0 and index == 0 else 1
            x = block(c, x, features, stride, bottleneck)
        outputs.append(x)
    return outputs


def resnet(c: Ctx, depth: int, version: int, width: int = 1) -> Array:
    """ResNet v1 or v2 on 224 x 224 images, 1000 classes."""
    import jax

    x = conv(c, c.input(c.batch, 224, 224, 3), 64 * width, 7, 2)
    if version == 1:
        x = jax.nn.relu(batch_norm(c, x))
    x = resnet_stages(c, max_pool(x, 3, 2), depth, version, width)[-1]
    if version == 2:
        x = jax.nn.relu(batch_norm(c, x))
    return classify(c, global_mean(x), 1000)


def resnet_cifar(c: Ctx, blocks: int) -> Array:
    """The CIFAR-10 form of ResNet v1: 6 blocks + 2 layers of 16, 32 and 64 channels on 32 x 32 images."""
    import jax

    x = jax.nn.relu(batch_norm(c, conv(c, c.input(c.batch, 32, 32, 3), 16, 3)))
    for stage in range(3):
        for index in range(blocks):
            stride = 2 if stage > 0 and index == 0 else 1
            x = residual_block_v1(c, x, 16 * 2**stage, stride, bottleneck=False)
    return classify(c, global_mean(x), 10)


def _squeeze_excite(c: Ctx, x: Array, ratio: int = 16) -> Array:
    """Channels scaled by s(W2 relu(W1 mean))."""
    import jax

    scale = jax.nn.sigmoid(dense(c, jax.nn.relu(dense(c, global_mean(x), x.shape[-1] // ratio)), x.shape[-1]))
    return x * scale[:, None, None]


def _block(c: Ctx, x: Array, features: int, stride: int) -> Array:
    import jax

    relu = jax.nn.relu
    y = relu(batch_norm(c, conv(c, x, features // 2, 1)))
    y = relu(batch_norm(c, grouped_conv(c, y, features // 2, 3, stride, 32)))
    y = _squeeze_excite(c, batch_norm(c, conv(c, y, features, 1)))
    if stride > 1 or x.shape[-1] != features:
        x = batch_norm(c, conv(c, x, features, 1, stride))
    return relu(x + y)


def _tower(c: Ctx, x: Array) -> Array:
    """Images to unit vectors [b, 64]."""
    import jax
    import jax.numpy as jnp

    x = max_pool(jax.nn.relu(batch_norm(c, conv(c, x, 64, 7, 2))), 3, 2)
    for stage, blocks in enumerate((2, 2, 3, 2)):
        for index in range(blocks):
            x = _block(c, x, 256 * 2**stage, 2 if stage > 0 and index == 0 else 1)
    vector = dense(c, global_mean(x), 64).astype("float32")
    return vector / jnp.sqrt(jnp.sum(jnp.square(vector), -1, keepdims=True) + 1e-6)


def image_embed(c: Ctx) -> Array:
    """Contrastive loss over a batch of which the two halves show the same things; vectors at inference."""
    import jax.numpy as jnp

    vectors = _tower(c, c.input(c.batch, 224, 224, 3))
    if not c.train:
        return vectors
    similar = vectors @ vectors.T * 20.0
    itself = jnp.eye(c.batch, dtype=bool)
    return cross_entropy(jnp.where(itself, -1e9, similar), (jnp.arange(c.batch) + c.batch // 2) % c.batch)
