"""Mask R-CNN on a ResNet-50 pyramid, 1024 x 1024 images, 81 classes.

Proposals from three anchors per place of levels 2 to 6, the 1000 best after suppression; 512 regions per
image to learn from, a quarter of them on objects; a box head of two dense layers of 1024 on 7 x 7 cells,
a mask head of four 3x3 convolutions on 14 x 14. Anchors are matched, and true masks cut out, by the input
pipeline.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.detection import decode_boxes
from corpus.zoo.layers import (
    bias,
    binary_cross_entropy,
    conv,
    conv_transpose,
    cross_entropy,
    dense,
    max_pool,
    mlp,
)
from corpus.zoo.pyramids import (
    best_boxes,
    feature_pyramid,
    resnet50_stages,
    smooth_l1,
    suppress_by_class,
)
from corpus.zoo.regions import (
    Sample,
    align_regions,
    centre_and_size,
    encode_boxes,
    propose,
    sample_regions,
)

if TYPE_CHECKING:
    from jax import Array

_CLASSES = 81
_ANCHORS = 3
_PROPOSALS = 1000
_ON_OBJECTS, _ON_NONE = 128, 384
_OBJECTS = 100
_BOX_SCALES = (0.1, 0.2)


def _proposal_head(c: Ctx, levels: list[Array]) -> tuple[Array, Array]:
    """Objectness [b, anchors] and offsets [b, anchors, 4], from weights that all levels share."""
    import jax
    import jax.numpy as jnp

    weights: list[Array] = []
    scores, offsets = [], []
    for level in levels:
        with c.tied(weights):
            x = jax.nn.relu(bias(c, conv(c, level, 256, 3)))
            scores.append(bias(c, conv(c, x, _ANCHORS, 1)).reshape(c.batch, -1))
            offsets.append(bias(c, conv(c, x, 4 * _ANCHORS, 1)).reshape(c.batch, -1, 4))
    return jnp.concatenate(scores, 1).astype("float32"), jnp.concatenate(offsets, 1).astype("float32")


def _proposal_loss(c: Ctx, scores: Array, offsets: Array) -> Array:
    """Objectness of sampled anchors (label 0 or 1), smooth L1 of those on an object."""
    import jax.numpy as jnp

    labels = c.tokens(*scores.shape)
    entropy = jnp.where(labels >= 0, binary_cross_entropy(scores, labels.astype("float32")), 0.0)
    distance = jnp.sum(smooth_l1(offsets - c.input(*offsets.shape, dtype="float32"), 1.0 / 9.0), -1)
    distance = jnp.where(labels > 0, distance, 0.0)
    return (jnp.sum(entropy) + jnp.sum(distance)) / jnp.maximum(jnp.sum(labels >= 0), 1)


def _box_head(c: Ctx, levels: list[Array], boxes: Array) -> tuple[Array, Array]:
    """Class logits [b, n, 81] and offsets per class [b, n, 81, 4]."""
    cells = align_regions(levels, boxes, 7)
    x = mlp(c, cells.reshape(*boxes.shape[:2], -1), (1024, 1024))
    logits, offsets = dense(c, x, _CLASSES), dense(c, x, 4 * _CLASSES)
    return logits.astype("float32"), offsets.astype("float32").reshape(*boxes.shape[:2], _CLASSES, 4)


def _mask_head(c: Ctx, levels: list[Array], boxes: Array, classes: Array) -> Array:
    """Mask logits [b, n, 28, 28] of one class per box."""
    import jax
    import jax.numpy as jnp

    b, n = boxes.shape[:2]
    x = align_regions(levels, boxes, 14).reshape(b * n, 14, 14, -1)
    for _ in range(4):
        x = jax.nn.relu(bias(c, conv(c, x, 256, 3)))
    x = jax.nn.relu(bias(c, conv_transpose(c, x, 256, 2, 2)))
    x = bias(c, conv(c, x, _CLASSES, 1)).astype("float32")
    chosen = jnp.take_along_axis(x, classes.reshape(b * n, 1, 1, 1), -1)
    return chosen.reshape(b, n, 28, 28)


def _of_class(offsets: Array, classes: Array) -> Array:
    """The offsets [b, n, 4] that belong to a class per box."""
    import jax.numpy as jnp

    return jnp.take_along_axis(offsets, classes[..., None, None], 2)[:, :, 0]


def _region_loss(c: Ctx, levels: list[Array], sample: Sample) -> Array:
    """Classes of all regions, boxes and masks of those on objects."""
    import jax.numpy as jnp

    logits, offsets = _box_head(c, levels, sample.boxes)
    positive = sample.labels > 0
    wanted = encode_boxes(sample.truth, centre_and_size(sample.boxes), _BOX_SCALES)
    distance = jnp.sum(smooth_l1(_of_class(offsets, sample.labels) - wanted, 1.0), -1)
    boxes = jnp.sum(jnp.where(positive, distance, 0.0)) / sample.labels.size
    on_objects = slice(0, _ON_OBJECTS)
    masks = _mask_head(c, levels, sample.boxes[:, on_objects], sample.labels[:, on_objects])
    entropy = jnp.mean(binary_cross_entropy(masks, c.input(*masks.shape, dtype="float32")), (2, 3))
    found = positive[:, on_objects]
    mask_loss = jnp.sum(jnp.where(found, entropy, 0.0)) / jnp.maximum(jnp.sum(found), 1)
    return cross_entropy(logits, sample.labels) + boxes + mask_loss


def _detections(c: Ctx, levels: list[Array], boxes: Array) -> tuple[Array, Array, Array, Array]:
    """The 100 best boxes with scores, classes and masks."""
    import jax
    import jax.numpy as jnp

    logits, offsets = _box_head(c, levels, boxes)
    probabilities = jax.nn.softmax(logits)[..., 1:]
    scores, classes = jnp.max(probabilities, -1), jnp.argmax(probabilities, -1) + 1
    corners = decode_boxes(_of_class(offsets, classes), centre_and_size(boxes), _BOX_SCALES)
    corners, scores, places = best_boxes(corners, scores, _PROPOSALS)
    classes = jnp.take_along_axis(classes, places, 1)
    left = suppress_by_class(corners, scores, classes)
    corners, left, places = best_boxes(corners, left, _OBJECTS)
    classes = jnp.take_along_axis(classes, places, 1)
    return corners, left, classes, jax.nn.sigmoid(_mask_head(c, levels, corners, classes))


def maskrcnn(c: Ctx, size: int = 1024) -> Array | tuple[Array, Array, Array, Array]:
    """Training: the losses of proposals, classes, boxes and masks. Inference: boxes with masks."""
    import jax
    import jax.numpy as jnp

    pyramid = feature_pyramid(c, resnet50_stages(c, size))
    levels = [*pyramid, max_pool(pyramid[-1], 1, 2)]
    scores, offsets = _proposal_head(c, levels)
    anchors = c.input(offsets.shape[1], 4, dtype="float32")
    corners = jnp.clip(decode_boxes(offsets, anchors, scales=(1.0, 1.0)), 0.0, float(size))
    places = [_ANCHORS * math.prod(one.shape[1:3]) for one in levels]
    boxes, _ = jax.lax.stop_gradient(propose(corners, jax.nn.sigmoid(scores), places, _PROPOSALS))
    if not c.train:
        return _detections(c, pyramid, boxes)
    truth, classes = c.input(c.batch, _OBJECTS, 4, dtype="float32"), c.tokens(c.batch, _OBJECTS)
    sample = sample_regions(c, boxes, truth, classes, (_ON_OBJECTS, _ON_NONE))
    return _proposal_loss(c, scores, offsets) + _region_loss(c, pyramid, sample)
