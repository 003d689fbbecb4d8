"""Single-shot detection: SSD on a ResNet-34 backbone, as in the MLPerf benchmark.

300 x 300 images, the backbone's third stage without its stride (38 x 38 x 256), five extra levels,
8732 anchors, 81 classes. Anchors are matched to boxes by the input pipeline; hard negatives are
mined in the step (three per positive, by rank of the loss). Inference decodes boxes, keeps the 200
best scores and suppresses overlaps greedily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.convnets import RESNET_BLOCKS, residual_block_v1
from corpus.zoo.layers import batch_norm, bias, conv, max_pool

if TYPE_CHECKING:
    from jax import Array

_CLASSES = 81
_KEPT = 200
_OVERLAP = 0.5


def _feature_maps(c: Ctx, size: int, extra: tuple[tuple[int, int, str], ...]) -> list[Array]:
    """Stage three of ResNet-34 and the extra levels, each a 1x1 and a 3x3 convolution."""
    import jax

    x = jax.nn.relu(batch_norm(c, conv(c, c.input(c.batch, size, size, 3), 64, 7, 2)))
    x = max_pool(x, 3, 2)
    for stage, blocks in enumerate(RESNET_BLOCKS[34][:3]):
        for index in range(blocks):
            x = residual_block_v1(c, x, 64 * 2**stage, 2 if stage == 1 and index == 0 else 1, False)
    maps = [x]
    for features, stride, padding in extra:
        x = jax.nn.relu(bias(c, conv(c, x, features // 2, 1)))
        x = jax.nn.relu(bias(c, conv(c, x, features, 3, stride, padding)))
        maps.append(x)
    return maps


def _predictions(c: Ctx, maps: list[Array], anchors: tuple[int, ...]) -> tuple[Array, Array]:
    """Box offsets [b, anchors, 4] and class logits [b, anchors, 81] over all levels, in float32."""
    import jax.numpy as jnp

    boxes, logits = [], []
    for x, count in zip(maps, anchors, strict=True):
        boxes.append(bias(c, conv(c, x, 4 * count, 3)).reshape(c.batch, -1, 4))
        logits.append(bias(c, conv(c, x, _CLASSES * count, 3)).reshape(c.batch, -1, _CLASSES))
    return jnp.concatenate(boxes, 1).astype("float32"), jnp.concatenate(logits, 1).astype("float32")


def _multibox_loss(c: Ctx, boxes: Array, logits: Array) -> Array:
    """Smooth L1 on positives, cross entropy on positives and the three times as many worst negatives."""
    import jax
    import jax.numpy as jnp

    labels = c.tokens(c.batch, boxes.shape[1])
    offset = jnp.abs(boxes - c.input(*boxes.shape, dtype="float32"))
    smooth = jnp.sum(jnp.where(offset < 1.0, 0.5 * jnp.square(offset), offset - 0.5), -1)
    positive = labels > 0
    found = jnp.sum(positive, 1, keepdims=True)
    entropy = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]
    mined = jax.lax.stop_gradient(jnp.where(positive, 0.0, entropy))
    rank = jnp.argsort(jnp.argsort(-mined, 1), 1)
    chosen = positive | (rank < 3 * found)
    per_image = jnp.sum(jnp.where(positive, smooth, 0.0) + jnp.where(chosen, entropy, 0.0), 1)
    return jnp.mean(per_image / jnp.maximum(found[:, 0], 1))


def decode_boxes(offsets: Array, anchors: Array, scales: tuple[float, float] = (0.1, 0.2)) -> Array:
    """Corners (top, left, bottom, right) from offsets and anchors given as centre and size.

    centre = scale_0 offset size + anchor centre; size = exp(scale_1 offset) anchor size.
    """
    import jax.numpy as jnp

    centre = offsets[..., :2] * scales[0] * anchors[..., 2:] + anchors[..., :2]
    extent = jnp.exp(offsets[..., 2:] * scales[1]) * anchors[..., 2:]
    return jnp.concatenate([centre - extent / 2, centre + extent / 2], -1)


def overlaps(boxes: Array, others: Array) -> Array:
    """Intersection over union of every box [n, 4] with every other [m, 4], given as corners."""
    import jax.numpy as jnp

    area, other_area = (jnp.prod(one[:, 2:] - one[:, :2], -1) for one in (boxes, others))
    low = jnp.maximum(boxes[:, None, :2], others[None, :, :2])
    high = jnp.minimum(boxes[:, None, 2:], others[None, :, 2:])
    shared = jnp.prod(jnp.maximum(high - low, 0.0), -1)
    return shared / (area[:, None] + other_area[None] - shared)


def suppress_overlaps(boxes: Array, scores: Array, limit: float = _OVERLAP) -> Array:
    """Greedy non-maximum suppression of one image: scores of suppressed boxes become 0.

    Args:
        boxes: corners [n, 4], best score first.
        scores: [n], descending.
        limit: overlap up to which both boxes stay.
    """
    import jax.numpy as jnp
    from jax import lax

    overlap = overlaps(boxes, boxes)
    later = jnp.arange(scores.shape[0])

    def body(index: Array, kept: Array) -> Array:
        row = lax.dynamic_slice_in_dim(overlap, index, 1)[0]
        alive = lax.dynamic_slice_in_dim(kept, index, 1)[0] > 0
        return jnp.where(alive & (row > limit) & (later > index), 0.0, kept)

    survivors: Array = lax.fori_loop(0, scores.shape[0], body, scores)
    return survivors


def ssd(c: Ctx, size: int = 300) -> Array | tuple[Array, Array, Array]:
    """SSD-300 (MLPerf) or SSD-512 with one level more; loss, or boxes, scores and classes per image."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    extra = [(512, 2, "SAME"), (512, 2, "SAME"), (256, 2, "SAME")]
    extra += [(256, 1, "VALID"), (256, 1, "VALID")] if size == 300 else [(256, 2, "SAME")] * 3
    anchors = (4, 6, 6, 6, 4, 4) if size == 300 else (4, 6, 6, 6, 6, 4, 4)
    boxes, logits = _predictions(c, _feature_maps(c, size, tuple(extra)), anchors)
    if c.train:
        return _multibox_loss(c, boxes, logits)
    anchor_boxes = c.input(boxes.shape[1], 4, dtype="float32")
    corners, probabilities = decode_boxes(boxes, anchor_boxes), jax.nn.softmax(logits)[..., 1:]
    best, classes = jnp.max(probabilities, -1), jnp.argmax(probabilities, -1)
    scores, places = lax.top_k(best, _KEPT)
    corners = jnp.take_along_axis(corners, places[..., None], 1)
    return corners, jax.vmap(suppress_overlaps)(corners, scores), jnp.take_along_axis(classes, places, 1)
