"""Mask R-CNN on a ResNet-50 pyramid, 1024 x 1024 images, 81 classes.

Proposals from three anchors per place of levels 2 to 6, the 1000 best after suppression; 512 regions per
image to learn from, a quarter of them on objects; a box head of two dense layers of 1024 on 7 x 7 cells,
a mask head of four 3x3 convolutions on 14 x 14. Anchors are matched, and true masks cut out, by the input
pipeline.

Regions of a two-stage detector: proposals, which of them to learn from, and what lies under them.
Boxes are corners (top, left, bottom, right) in pixels of the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.detection import (
    best_boxes,
    decode_boxes,
    feature_pyramid,
    overlaps,
    resnet50_stages,
    smooth_l1,
    suppress_by_class,
    suppress_overlaps,
)
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

if TYPE_CHECKING:
    from jax import Array

_CLASSES = 81
_ANCHORS = 3
_PROPOSALS = 1000
_ON_OBJECTS, _ON_NONE = 128, 384
_OBJECTS = 100
_BOX_SCALES = (0.1, 0.2)
_PER_LEVEL = 1000
_SUPPRESS_ABOVE = 0.7
_MATCH_ABOVE = 0.5
_FINEST = 2  # pyramid level with stride 4


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
    on_object = positive[:, on_objects]
    mask_loss = jnp.sum(jnp.where(on_object, entropy, 0.0)) / jnp.maximum(jnp.sum(on_object), 1)
    return cross_entropy(logits, sample.labels) + boxes + mask_loss


def _detections(c: Ctx, levels: list[Array], boxes: Array) -> tuple[Array, Array, Array, Array]:
    """The 100 best boxes with scores, classes and masks."""
    import jax
    import jax.numpy as jnp

    logits, offsets = _box_head(c, levels, boxes)
    probabilities = jax.nn.softmax(logits)[..., 1:]
    scores, classes = jnp.max(probabilities, -1), jnp.argmax(probabilities, -1) + 1
    corners = decode_boxes(_of_class(offsets, classes), centre_and_size(boxes), _BOX_SCALES)
    corners, scores, indices = best_boxes(corners, scores, _PROPOSALS)
    classes = jnp.take_along_axis(classes, indices, 1)
    left = suppress_by_class(corners, scores, classes)
    corners, left, indices = best_boxes(corners, left, _OBJECTS)
    classes = jnp.take_along_axis(classes, indices, 1)
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
    level_sizes = [_ANCHORS * math.prod(level.shape[1:3]) for level in levels]
    boxes, _ = jax.lax.stop_gradient(propose(corners, jax.nn.sigmoid(scores), level_sizes, _PROPOSALS))
    if not c.train:
        return _detections(c, pyramid, boxes)
    truth, classes = c.input(c.batch, _OBJECTS, 4, dtype="float32"), c.tokens(c.batch, _OBJECTS)
    sample = sample_regions(c, boxes, truth, classes, (_ON_OBJECTS, _ON_NONE))
    return _proposal_loss(c, scores, offsets) + _region_loss(c, pyramid, sample)


def centre_and_size(corners: Array) -> Array:
    """Corners as centre and size, the form of anchors."""
    import jax.numpy as jnp

    size = corners[..., 2:] - corners[..., :2]
    return jnp.concatenate([corners[..., :2] + 0.5 * size, size], -1)


def encode_boxes(corners: Array, anchors: Array, scales: tuple[float, float]) -> Array:
    """Offsets from anchors (centre and size) that `decode_boxes` turns into these corners."""
    import jax.numpy as jnp

    boxes = centre_and_size(corners)
    move = (boxes[..., :2] - anchors[..., :2]) / (anchors[..., 2:] * scales[0])
    growth = jnp.log(jnp.maximum(boxes[..., 2:], 1.0) / anchors[..., 2:]) / scales[1]
    return jnp.concatenate([move, growth], -1)


def propose(corners: Array, scores: Array, level_sizes: list[int], num_boxes: int) -> tuple[Array, Array]:
    """The `num_boxes` best boxes [b, num_boxes, 4] with scores, none of which overlap much.

    Args:
        corners: of all anchors, [b, anchors, 4].
        scores: [b, anchors]; suppressed boxes end up with score 0, last.
        level_sizes: anchors of each level, in order; each level gives its 1000 best.
        num_boxes: number of boxes that come back.
    """
    import jax
    import jax.numpy as jnp

    boxes, best, start = [], [], 0
    for size in level_sizes:
        level = slice(start, start + size)
        level_boxes, score, _ = best_boxes(corners[:, level], scores[:, level], min(_PER_LEVEL, size))
        boxes.append(level_boxes)
        best.append(score)
        start += size
    merged, score, _ = best_boxes(jnp.concatenate(boxes, 1), jnp.concatenate(best, 1), num_boxes)
    left = jax.vmap(lambda box, one: suppress_overlaps(box, one, _SUPPRESS_ABOVE))(merged, score)
    ordered, score, _ = best_boxes(merged, left, num_boxes)
    return ordered, score


@dataclass(frozen=True)
class Sample:
    """Regions to learn from: first those on an object, then those on none.

    Attributes:
        boxes: [b, n, 4].
        truth: the box of the object, [b, n, 4].
        labels: class of the object, 0 for none, [b, n].
    """

    boxes: Array
    truth: Array
    labels: Array


def sample_regions(c: Ctx, boxes: Array, truth: Array, classes: Array, counts: tuple[int, int]) -> Sample:
    """Draws regions on objects and regions on none, `counts` of each.

    Where there are too few of a kind, regions of the other fill the places, with their own labels.

    Args:
        c: the context, for random numbers.
        boxes: proposals [b, n, 4]; true boxes are added to them, as is usual.
        truth: true boxes [b, objects, 4].
        classes: of the true boxes [b, objects], 1 and up.
        counts: on objects, on none.
    """
    import jax
    import jax.numpy as jnp
    from jax import lax

    boxes = jnp.concatenate([boxes, truth], 1)
    overlap = jax.vmap(overlaps)(boxes, truth)
    matched, nearest = jnp.max(overlap, -1), jnp.argmax(overlap, -1)
    positive = matched >= _MATCH_ABOVE
    chance = jax.random.uniform(c.rng(), positive.shape)
    _, first = lax.top_k(jnp.where(positive, chance, chance - 1.0), counts[0])
    _, second = lax.top_k(jnp.where(positive, chance - 1.0, chance), counts[1])
    chosen = jnp.concatenate([first, second], 1)
    nearest = jnp.take_along_axis(nearest, chosen, 1)
    labels = jnp.take_along_axis(classes, nearest, 1)
    labels = jnp.where(jnp.take_along_axis(positive, chosen, 1), labels, 0)
    picked = jnp.take_along_axis(boxes, chosen[..., None], 1)
    return Sample(picked, jnp.take_along_axis(truth, nearest[..., None], 1), labels)


def align_regions(levels: list[Array], boxes: Array, side: int) -> Array:
    """What lies under each box, bilinearly sampled: [b, n, side, side, features].

    Each of side x side cells is the mean of 2 x 2 samples from the pyramid level that suits the box's
    size: level 4 for 224 pixels, one level less for half of it.

    Args:
        levels: from stride 4 on, each half as large as the one before.
        boxes: [b, n, 4].
        side: cells along each dimension.
    """
    import jax.numpy as jnp
    import numpy as np

    extents = np.array([level.shape[1] for level in levels])
    starts = np.concatenate([[0], np.cumsum(extents**2)[:-1]])
    b, features = boxes.shape[0], levels[0].shape[-1]
    flat = jnp.concatenate([level.reshape(b, -1, features) for level in levels], 1)
    image = flat.shape[1] * jnp.arange(b)[:, None]
    flat = flat.reshape(-1, features)
    size = jnp.maximum(boxes[..., 2:] - boxes[..., :2], 1.0)
    level = jnp.floor(4.0 + jnp.log2(jnp.sqrt(jnp.prod(size, -1)) / 224.0))
    which = jnp.clip(level, _FINEST, _FINEST + len(levels) - 1).astype("int32") - _FINEST
    extent = jnp.asarray(extents, "int32")[which][..., None]
    stride = jnp.exp2(which.astype("float32") + _FINEST)[..., None]
    steps = (jnp.arange(2 * side) + 0.5) / (2 * side)
    corners, weights = [], []
    for axis in range(2):
        at = (boxes[..., axis, None] + steps * size[..., axis, None]) / stride - 0.5
        low = jnp.floor(at)
        corners.append([jnp.clip(low.astype("int32") + one, 0, extent - 1) for one in (0, 1)])
        weights.append([1.0 - (at - low), at - low])
    start = (image + jnp.asarray(starts, "int32")[which])[..., None, None]
    total = jnp.zeros((), flat.dtype)
    for row, down in zip(corners[0], weights[0], strict=True):
        for column, across in zip(corners[1], weights[1], strict=True):
            index = start + row[..., :, None] * extent[..., None] + column[..., None, :]
            # One gather of rows of all images, whose places are within them by construction.
            values = flat.at[index.reshape(-1)].get(mode="promise_in_bounds")
            weight = (down[..., :, None] * across[..., None, :]).astype(flat.dtype)
            total = total + values * weight.reshape(-1, 1)
    return jnp.mean(total.reshape(b, -1, side, 2, side, 2, features), (3, 5))
