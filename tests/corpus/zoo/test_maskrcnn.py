"""Boxes, proposals and what lies under them, on images of a few pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corpus.context import Ctx

pytestmark = pytest.mark.corpus
jax = pytest.importorskip("jax", reason="needs the corpus extra: jax")
import jax.numpy as jnp  # noqa: E402

from corpus.zoo import detection, maskrcnn  # noqa: E402


def test_encoding_is_undone_by_decoding() -> None:
    anchors = jnp.array([[50.0, 60.0, 20.0, 40.0], [10.0, 10.0, 8.0, 8.0]])
    corners = jnp.array([[45.0, 41.0, 75.0, 63.0], [2.0, 4.0, 9.0, 30.0]])
    for scales in ((0.1, 0.2), (1.0, 1.0)):
        offsets = maskrcnn.encode_boxes(corners, anchors, scales)
        np.testing.assert_allclose(detection.decode_boxes(offsets, anchors, scales), corners, rtol=1e-5)
    assert maskrcnn.centre_and_size(corners).tolist() == [[60.0, 52.0, 30.0, 22.0], [5.5, 17.0, 7.0, 26.0]]


def test_overlap_is_intersection_over_union() -> None:
    boxes = jnp.array([[0.0, 0.0, 10.0, 10.0], [0.0, 5.0, 10.0, 15.0]])
    others = jnp.array([[0.0, 0.0, 10.0, 5.0], [20.0, 20.0, 30.0, 30.0], [0.0, 5.0, 10.0, 15.0]])
    np.testing.assert_allclose(detection.overlaps(boxes, others), [[0.5, 0, 50 / 150], [0, 0, 1]], rtol=1e-6)


def test_smooth_l1_and_its_turn() -> None:
    assert detection.smooth_l1(jnp.array([0.0, 0.25, -0.5, 2.0]), 0.5).tolist() == [0.0, 0.0625, 0.25, 1.75]


def test_boxes_of_different_classes_do_not_suppress_each_other() -> None:
    boxes = jnp.array([[[0.0, 0.0, 10.0, 10.0]] * 3])
    left = detection.suppress_by_class(boxes, jnp.array([[0.9, 0.8, 0.7]]), jnp.array([[1, 2, 1]]))
    assert left[0].tolist() == pytest.approx([0.9, 0.8, 0.0])


def test_proposals_are_the_best_that_do_not_overlap() -> None:
    one, near, far = [0.0, 0.0, 10.0, 10.0], [0.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]
    corners, scores = jnp.array([[near, far, one]]), jnp.array([[0.8, 0.3, 0.9]])
    boxes, left = jax.jit(lambda *given: maskrcnn.propose(*given, [2, 1], num_boxes=3))(corners, scores)
    assert boxes[0, :2].tolist() == [one, far]
    assert left[0].tolist() == pytest.approx([0.9, 0.3, 0.0])


def test_sampled_regions_on_objects_come_first_with_their_class() -> None:
    truth = jnp.array([[[0.0, 0.0, 10.0, 10.0], [40.0, 40.0, 60.0, 60.0]]])
    boxes = jnp.array([[[0.0, 1.0, 10.0, 10.0], [80.0, 80.0, 90.0, 90.0], [70.0, 0.0, 90.0, 9.0]]])

    @jax.jit
    def sampled(key: Any) -> Any:
        c = Ctx(1, train=True, dtype="f32").replay([], [], [], key)
        sample = maskrcnn.sample_regions(c, boxes, truth, jnp.array([[3, 7]]), (3, 2))
        return sample.labels, sample.truth

    labels, matches = sampled(jnp.arange(4, dtype="uint32"))
    # The two true boxes and the one near the first are on objects, the others on none.
    assert sorted(labels[0, :3].tolist()) == [3, 3, 7]
    assert labels[0, 3:].tolist() == [0, 0]
    matched = {7: [40.0, 40.0, 60.0, 60.0], 3: [0.0, 0.0, 10.0, 10.0]}
    for label, box in zip(labels[0, :3].tolist(), matches[0, :3].tolist(), strict=True):
        assert box == matched[label]


def plane(side: int, stride: int) -> np.ndarray:
    """A level whose value is 100 row + column, in pixels of the image."""
    centres = (np.arange(side) + 0.5) * stride
    return (100.0 * centres[:, None] + centres[None]).reshape(1, side, side, 1)


@pytest.mark.parametrize(("box", "level"), [((8.0, 8.0, 40.0, 72.0), 0), ((40.0, 20.0, 280.0, 250.0), 2)])
def test_aligned_cells_are_means_over_their_part_of_the_box(box: tuple[float, ...], level: int) -> None:
    # Only the level that suits the box's size shows the plane; the others would give -1.
    planes = [plane(80 >> one, 4 << one) for one in range(4)]
    levels = [
        jnp.asarray(one if index == level else np.full_like(one, -1.0)) for index, one in enumerate(planes)
    ]
    align = jax.jit(maskrcnn.align_regions, static_argnums=2)
    cells = align(levels, jnp.array([[box]]), 4)[0, 0, :, :, 0]
    # The mean of a linear function over a cell is its value at the cell's centre.
    steps = (np.arange(4) + 0.5) / 4
    rows, columns = (box[axis] + steps * (box[axis + 2] - box[axis]) for axis in range(2))
    np.testing.assert_allclose(cells, 100.0 * rows[:, None] + columns[None], rtol=1e-5)
