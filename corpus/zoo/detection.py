"""One-stage detectors of objects: SSD, and RetinaNet on a feature pyramid.

Single-shot detection: SSD on a ResNet-34 backbone, as in the MLPerf benchmark.

300 x 300 images, the backbone's third stage without its stride (38 x 38 x 256), five extra levels,
8732 anchors, 81 classes. Anchors are matched to boxes by the input pipeline; hard negatives are
mined in the step (three per positive, by rank of the loss). Inference decodes boxes, keeps the 200
best scores and suppresses overlaps greedily.

Pyramid: 256 features per level, coarser levels added to finer ones. RetinaNet on 640 x 640 images: levels
3 to 7, nine anchors per place (76725 in all), two heads of four 3x3 convolutions that all levels share,
80 classes, focal loss. Anchors are matched to boxes by the input pipeline.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.convnets import RESNET_BLOCKS, residual_block_v1, resnet_stages
from corpus.zoo.layers import batch_norm, bias, binary_cross_entropy, conv, max_pool, upsample

if TYPE_CHECKING:
    from jax import Array

_SSD_CLASSES = 81
_SSD_CANDIDATES = 200
_OVERLAP = 0.5
_FEATURES = 256
_ANCHORS = 9
_RETINANET_CLASSES = 80
_PER_LEVEL, _CANDIDATES, _SHOWN = 1000, 1000, 100


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
        logits.append(bias(c, conv(c, x, _SSD_CLASSES * count, 3)).reshape(c.batch, -1, _SSD_CLASSES))
    return jnp.concatenate(boxes, 1).astype("float32"), jnp.concatenate(logits, 1).astype("float32")


def _multibox_loss(c: Ctx, boxes: Array, logits: Array) -> Array:
    """Smooth L1 on positives, cross entropy on positives and the three times as many worst negatives."""
    import jax
    import jax.numpy as jnp

    labels = c.tokens(c.batch, boxes.shape[1])
    offset = jnp.abs(boxes - c.input(*boxes.shape, dtype="float32"))
    smooth = jnp.sum(jnp.where(offset < 1.0, 0.5 * jnp.square(offset), offset - 0.5), -1)
    positive = labels > 0
    num_positive = jnp.sum(positive, 1, keepdims=True)
    entropy = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]
    mined = jax.lax.stop_gradient(jnp.where(positive, 0.0, entropy))
    rank = jnp.argsort(jnp.argsort(-mined, 1), 1)
    chosen = positive | (rank < 3 * num_positive)
    per_image = jnp.sum(jnp.where(positive, smooth, 0.0) + jnp.where(chosen, entropy, 0.0), 1)
    return jnp.mean(per_image / jnp.maximum(num_positive[:, 0], 1))


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

    def body(index: Array, remaining: Array) -> Array:
        row = lax.dynamic_slice_in_dim(overlap, index, 1)[0]
        alive = lax.dynamic_slice_in_dim(remaining, index, 1)[0] > 0
        return jnp.where(alive & (row > limit) & (later > index), 0.0, remaining)

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
    scores, indices = lax.top_k(best, _SSD_CANDIDATES)
    corners = jnp.take_along_axis(corners, indices[..., None], 1)
    return corners, jax.vmap(suppress_overlaps)(corners, scores), jnp.take_along_axis(classes, indices, 1)


def resnet50_stages(c: Ctx, size: int) -> list[Array]:
    """Images [b, size, size, 3] through ResNet-50: features at strides 4, 8, 16, 32."""
    import jax

    x = jax.nn.relu(batch_norm(c, conv(c, c.input(c.batch, size, size, 3), 64, 7, 2)))
    return resnet_stages(c, max_pool(x, 3, 2), depth=50, version=1)


def feature_pyramid(c: Ctx, stages: list[Array]) -> list[Array]:
    """One level per stage: 1x1 convolution plus the grown coarser level, then a 3x3 convolution."""
    merged: list[Array] = []
    for x in reversed(stages):
        lateral = bias(c, conv(c, x, _FEATURES, 1))
        merged.append(lateral + upsample(merged[-1]) if merged else lateral)
    return [bias(c, conv(c, x, _FEATURES, 3)) for x in reversed(merged)]


def smooth_l1(offset: Array, turn: float) -> Array:
    """offset^2 / (2 turn) up to |offset| = turn, from there on |offset| - turn / 2."""
    import jax.numpy as jnp

    size = jnp.abs(offset)
    return jnp.where(size < turn, 0.5 / turn * jnp.square(offset), size - 0.5 * turn)


def _head(c: Ctx, levels: list[Array], outputs: int) -> Array:
    """`outputs` numbers per anchor, [b, anchors, outputs] over all levels, in float32."""
    import jax
    import jax.numpy as jnp

    weights: list[Array] = []
    made = []
    for level in levels:
        x = level
        with c.tied(weights):
            for _ in range(4):
                x = jax.nn.relu(bias(c, conv(c, x, _FEATURES, 3)))
            x = bias(c, conv(c, x, _ANCHORS * outputs, 3))
        made.append(x.reshape(c.batch, -1, outputs).astype("float32"))
    return jnp.concatenate(made, 1)


def _focal_loss(c: Ctx, logits: Array, offsets: Array) -> Array:
    """a (1 - p)^2 cross entropy per class, smooth L1 on matched anchors; -1: of no class, -2: ignored."""
    import jax
    import jax.numpy as jnp

    labels = c.tokens(*logits.shape[:2])
    wanted = jax.nn.one_hot(labels, _RETINANET_CLASSES)
    entropy = binary_cross_entropy(logits, wanted)
    missed = jnp.square(1.0 - jnp.exp(-entropy))
    focal = jnp.where(wanted > 0, 0.25, 0.75) * missed * entropy
    focal = jnp.where((labels > -2)[..., None], focal, 0.0)
    distance = jnp.sum(smooth_l1(offsets - c.input(*offsets.shape, dtype="float32"), 0.1), -1)
    positive = labels >= 0
    return (jnp.sum(focal) + jnp.sum(jnp.where(positive, distance, 0.0))) / jnp.maximum(jnp.sum(positive), 1)


def best_boxes(corners: Array, scores: Array, count: int) -> tuple[Array, Array, Array]:
    """The best of [b, n] scores with their boxes [b, n, 4]: boxes, scores, indices, best first."""
    import jax.numpy as jnp
    from jax import lax

    best, indices = lax.top_k(scores, count)
    return jnp.take_along_axis(corners, indices[..., None], 1), best, indices


def suppress_by_class(corners: Array, scores: Array, classes: Array) -> Array:
    """Scores [b, n], best first, after suppression among boxes of one class only."""
    import jax

    # Classes are moved apart by more than an image, so boxes of different ones never overlap.
    apart = corners + classes.astype("float32")[..., None] * 1e4
    return jax.vmap(suppress_overlaps)(apart, scores)


def _detections(c: Ctx, logits: Array, offsets: Array, level_sizes: list[int]) -> tuple[Array, Array, Array]:
    """Boxes, scores, classes of the best detections; candidates are the 1000 best of each level."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    anchors = c.input(offsets.shape[1], 4, dtype="float32")
    corners = decode_boxes(offsets, anchors, scales=(1.0, 1.0))
    probabilities = jax.nn.sigmoid(logits)
    boxes, scores, classes, start = [], [], [], 0
    for size in level_sizes:
        best, indices = lax.top_k(probabilities[:, start : start + size].reshape(c.batch, -1), _PER_LEVEL)
        anchor = start + indices // _RETINANET_CLASSES
        boxes.append(jnp.take_along_axis(corners, anchor[..., None], 1))
        scores.append(best)
        classes.append(indices % _RETINANET_CLASSES)
        start += size
    merged, best, chosen = best_boxes(jnp.concatenate(boxes, 1), jnp.concatenate(scores, 1), _CANDIDATES)
    classes_of = jnp.take_along_axis(jnp.concatenate(classes, 1), chosen, 1)
    shown, left, chosen = best_boxes(merged, suppress_by_class(merged, best, classes_of), _SHOWN)
    return shown, left, jnp.take_along_axis(classes_of, chosen, 1)


def retinanet(c: Ctx, size: int = 640) -> Array | tuple[Array, Array, Array]:
    """RetinaNet on ResNet-50: focal loss, or the 100 best boxes with scores and classes per image."""
    import jax

    stages = resnet50_stages(c, size)
    sixth = bias(c, conv(c, stages[-1], _FEATURES, 3, 2))
    seventh = bias(c, conv(c, jax.nn.relu(sixth), _FEATURES, 3, 2))
    levels = [*feature_pyramid(c, stages[1:]), sixth, seventh]
    logits, offsets = _head(c, levels, _RETINANET_CLASSES), _head(c, levels, 4)
    if c.train:
        return _focal_loss(c, logits, offsets)
    return _detections(c, logits, offsets, [_ANCHORS * math.prod(one.shape[1:3]) for one in levels])
