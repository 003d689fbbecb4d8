from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given

from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays, kernel_arrays
from costbench.compiler.lowering.kernel_batches import BatchLowering, KernelBatch
from costbench.compiler.lowering.loop_nest import Lowering, loop_nest
from costbench.compiler.lowering.packed import pack
from costbench.compiler.tiling.space import tile_space
from costbench.target import load_target
from tests.compiler import small_kernels as small
from tests.compiler.random_kernels import kernels
from tests.compiler.small_kernels import KERNELS

V3 = load_target("tpu_v3").architecture
# Of what these read part of their first operand, or need an axis whole.
ALONE = {"gather", "scatter", "dynamic_slice", "dynamic_update_slice", "strided_slice", "sort", "top_k"}


def as_arrays(found: Sequence[Kernel]) -> KernelArrays:
    return kernel_arrays((kernel.instructions, kernel.inputs, kernel.outputs) for kernel in found)


def lowered(*found: Kernel) -> KernelBatch:
    """A batch of kernels of one computation."""
    first = found[0]
    return BatchLowering(Lowering(first.module), first.computation).lower(as_arrays(found))


def assert_packed_alike(batch: KernelBatch, number: int, kernel: Kernel) -> None:
    nests, packed = batch.nests, pack(loop_nest(kernel))
    ints = nests.ints[nests.ints_ends[number] : nests.ints_ends[number + 1]]
    floats = nests.floats[nests.floats_ends[number] : nests.floats_ends[number + 1]]
    assert ints.tolist() == packed.ints.tolist()
    assert floats.tolist() == packed.floats.tolist()


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_a_batch_is_packed_as_it_is_alone(name: str) -> None:
    kernel = KERNELS[name]()
    batch = lowered(kernel)
    assert batch.left_out.tolist() == [name in ALONE]
    if name not in ALONE:
        assert_packed_alike(batch, 0, kernel)


@given(kernels())
def test_any_kernel_is_packed_as_it_is_alone_or_left_out(kernel: Kernel) -> None:
    batch = lowered(kernel, kernel)
    assert len(batch) == 2
    assert batch.left_out[0] == batch.left_out[1]
    for number in np.flatnonzero(~batch.left_out).tolist():
        assert_packed_alike(batch, number, kernel)


def test_of_a_batch_each_kernel_can_be_had_alone() -> None:
    kernel = small.two_results()
    batch = lowered(kernel, kernel)
    again = batch.source.kernel(batch.kernels, 1)
    assert (again.instructions, again.inputs, again.outputs) == (
        kernel.instructions,
        kernel.inputs,
        kernel.outputs,
    )
    assert batch.everything.instructions == kernel.instructions


def test_tiles_are_numbered_as_in_their_space() -> None:
    kernel = small.convolution()
    space, batch = tile_space(kernel, V3), lowered(kernel, kernel, kernel)
    ids = np.array([0, space.size // 2, space.size - 1])
    extents = space.extents(ids)
    assert batch.most_loops == extents.shape[1]
    numbers, sizes = batch.numbered(np.arange(3), extents)
    assert numbers.tolist() == ids.tolist()
    assert sizes.tolist() == [space.size] * 3


def test_the_smallest_tile_fits_or_not() -> None:
    kernel = small.elementwise("f32[256,512]")
    batch = lowered(kernel)
    # Three arrays of one native tile each, double-buffered.
    needed = 3 * 2 * 8 * 128 * 4
    assert batch.smallest_fits(needed).tolist() == [True]
    assert batch.smallest_fits(needed - 1).tolist() == [False]


def test_what_is_left_out_never_fits() -> None:
    assert lowered(small.sort()).smallest_fits(1e12).tolist() == [False]


def test_contractions_are_described_once_for_each_walk() -> None:
    kernel = small.dot()
    batch = lowered(kernel, kernel)
    asked = []

    def describe(nest: object) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        asked.append(nest)
        return np.array([1.0, 2.0])

    for _ in range(2):
        found = batch.source.of_contractions("test", describe)
    walk = batch.nests.walks[1]
    assert found.values[found.ends[walk] : found.ends[walk + 1]].tolist() == [1.0, 2.0]
    assert found.ends[walk] == 0
    assert len(asked) == 1
