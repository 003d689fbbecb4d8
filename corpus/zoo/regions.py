"""Regions of a two-stage detector: proposals, which of them to learn from, and what lies under them.

Boxes are corners (top, left, bottom, right) in pixels of the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.detection import overlaps, suppress_overlaps
from corpus.zoo.pyramids import best_boxes

if TYPE_CHECKING:
    from jax import Array

_PER_LEVEL = 1000
_SUPPRESS_ABOVE = 0.7
_MATCH_ABOVE = 0.5
_FINEST = 2  # pyramid level with stride 4


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


def propose(corners: Array, scores: Array, places: list[int], kept: int) -> tuple[Array, Array]:
    """The `kept` best boxes [b, kept, 4] with scores, none of which overlap much.

    Args:
        corners: of all anchors, [b, anchors, 4].
        scores: [b, anchors]; suppressed boxes end up with score 0, last.
        places: anchors of each level, in order; each level gives its 1000 best.
    """
    import jax
    import jax.numpy as jnp

    boxes, best, start = [], [], 0
    for count in places:
        level = slice(start, start + count)
        found, score, _ = best_boxes(corners[:, level], scores[:, level], min(_PER_LEVEL, count))
        boxes.append(found)
        best.append(score)
        start += count
    merged, score, _ = best_boxes(jnp.concatenate(boxes, 1), jnp.concatenate(best, 1), kept)
    left = jax.vmap(lambda box, one: suppress_overlaps(box, one, _SUPPRESS_ABOVE))(merged, score)
    ordered, score, _ = best_boxes(merged, left, kept)
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
            found = flat.at[index.reshape(-1)].get(mode="promise_in_bounds")
            weight = (down[..., :, None] * across[..., None, :]).astype(flat.dtype)
            total = total + found * weight.reshape(-1, 1)
    return jnp.mean(total.reshape(b, -1, side, 2, side, 2, features), (3, 5))
