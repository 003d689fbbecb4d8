from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import Lowering
from costbench.compiler.tiling.kernel_batch import KernelBatch
from costbench.compiler.tiling.space import tile_space
from costbench.target import load_target
from tests.compiler import small_kernels as small
from tests.compiler.kernel_lists import as_arrays
from tests.compiler.small_kernels import KERNELS

V3 = load_target("tpu_v3").architecture


def lowered(*kernels: Kernel) -> KernelBatch:
    """A batch of kernels of one computation."""
    return KernelBatch(Lowering(kernels[0].module).lower(kernels[0].computation, as_arrays(kernels)))


@pytest.mark.parametrize("name", KERNELS)
def test_tiles_are_numbered_as_in_their_space(name: str) -> None:
    kernel = KERNELS[name]()
    space, batch = tile_space(kernel, V3), lowered(kernel, kernel, kernel)
    assert len(batch) == 3
    ids = np.array([0, space.size // 2, space.size - 1])
    extents = space.extents(ids)
    assert batch.most_loops == extents.shape[1]
    numbers, sizes = batch.numbered(np.arange(3), extents)
    assert numbers.tolist() == ids.tolist()
    assert sizes.tolist() == [space.size] * 3


def test_the_smallest_tile_fits_or_not() -> None:
    batch = lowered(small.elementwise("f32[256,512]"))
    # Three arrays of one native tile each, double-buffered.
    needed = 3 * 2 * 8 * 128 * 4
    assert batch.smallest_fits(needed).tolist() == [True]
    assert batch.smallest_fits(needed - 1).tolist() == [False]


def test_a_space_with_too_many_tiles_to_number_is_left_out() -> None:
    # 2^33 native tiles along one loop.
    kernel = small.unary(f"pred[{2**43}]")
    batch = lowered(kernel, kernel)
    assert batch.candidates.is_numbered.tolist() == [False]
    assert batch.smallest_fits(1e30).tolist() == [False, False]
