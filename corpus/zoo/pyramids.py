"""Feature pyramids over a ResNet-50, and the one-stage detector on them: RetinaNet.

Pyramid: 256 features per level, coarser levels added to finer ones. RetinaNet on 640 x 640 images: levels
3 to 7, nine anchors per place (76725 in all), two heads of four 3x3 convolutions that all levels share,
80 classes, focal loss. Anchors are matched to boxes by the input pipeline.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.convnets import resnet_stages
from corpus.zoo.detection import decode_boxes, suppress_overlaps
from corpus.zoo.layers import batch_norm, bias, binary_cross_entropy, conv, max_pool, upsample

if TYPE_CHECKING:
    from jax import Array

_FEATURES = 256
_ANCHORS = 9
_CLASSES = 80
_PER_LEVEL, _KEPT, _SHOWN = 1000, 1000, 100


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
    wanted = jax.nn.one_hot(labels, _CLASSES)
    entropy = binary_cross_entropy(logits, wanted)
    missed = jnp.square(1.0 - jnp.exp(-entropy))
    focal = jnp.where(wanted > 0, 0.25, 0.75) * missed * entropy
    focal = jnp.where((labels > -2)[..., None], focal, 0.0)
    distance = jnp.sum(smooth_l1(offsets - c.input(*offsets.shape, dtype="float32"), 0.1), -1)
    positive = labels >= 0
    return (jnp.sum(focal) + jnp.sum(jnp.where(positive, distance, 0.0))) / jnp.maximum(jnp.sum(positive), 1)


def best_boxes(corners: Array, scores: Array, kept: int) -> tuple[Array, Array, Array]:
    """The best of [b, n] scores with their boxes [b, n, 4]: boxes, scores, places, best first."""
    import jax.numpy as jnp
    from jax import lax

    best, places = lax.top_k(scores, kept)
    return jnp.take_along_axis(corners, places[..., None], 1), best, places


def suppress_by_class(corners: Array, scores: Array, classes: Array) -> Array:
    """Scores [b, n], best first, after suppression among boxes of one class only."""
    import jax

    # Classes are moved apart by more than an image, so boxes of different ones never overlap.
    apart = corners + classes.astype("float32")[..., None] * 1e4
    return jax.vmap(suppress_overlaps)(apart, scores)


def _detections(c: Ctx, logits: Array, offsets: Array, places: list[int]) -> tuple[Array, Array, Array]:
    """Boxes, scores, classes of the best detections; candidates are the 1000 best of each level."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    anchors = c.input(offsets.shape[1], 4, dtype="float32")
    corners = decode_boxes(offsets, anchors, scales=(1.0, 1.0))
    probabilities = jax.nn.sigmoid(logits)
    boxes, scores, classes, start = [], [], [], 0
    for count in places:
        best, found = lax.top_k(probabilities[:, start : start + count].reshape(c.batch, -1), _PER_LEVEL)
        anchor = start + found // _CLASSES
        boxes.append(jnp.take_along_axis(corners, anchor[..., None], 1))
        scores.append(best)
        classes.append(found % _CLASSES)
        start += count
    merged, best, chosen = best_boxes(jnp.concatenate(boxes, 1), jnp.concatenate(scores, 1), _KEPT)
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
    logits, offsets = _head(c, levels, _CLASSES), _head(c, levels, 4)
    if c.train:
        return _focal_loss(c, logits, offsets)
    return _detections(c, logits, offsets, [_ANCHORS * math.prod(one.shape[1:3]) for one in levels])
