from __future__ import annotations

import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import array_shape
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.lowering.packed import AFTER_CONTRACTION, PackedNest, bound_bytes, unpacked
from tests.compiler import small_kernels as small
from tests.compiler.laid_out import box_axes, maps_of, transfer_axes
from tests.compiler.small_kernels import KERNELS, finish
from tests.hlo.builder import ModuleBuilder


def packed_nest(kernel: Kernel) -> PackedNest:
    return unpacked(loop_nest(kernel).words)


def test_a_dot_in_numbers() -> None:
    # 64 x 512 by 512 x 384: 8 x 3 native tiles of results, 4 of depth.
    nest = packed_nest(small.dot())
    assert nest.num_output_loops == 2
    assert nest.result_box == nest.transfers["box"][2]
    assert nest.loops.tolist() == [(8, 8, 64), (3, 128, 384), (4, 128, 512)]
    # Columns of the right-hand side outermost, sums innermost.
    assert nest.order.tolist() == [1, 0, 2]
    assert nest.boxes["mask"][nest.transfers["box"]].tolist() == [0b101, 0b110, 0b011]
    assert nest.transfers["is_output"].tolist() == [0, 0, 1]
    assert nest.transfers["native_bytes"].tolist() == [4096] * 3
    assert transfer_axes(nest, 1)["size"].tolist() == [512, 384]
    assert transfer_axes(nest, 1)["limit"].tolist() == [64, 3]
    # Everything whole, twice, and the sums once: (8 x 4, 64 x 3, 8 x 3, 8 x 3 native tiles) of 4 KiB.
    assert bound_bytes(loop_nest(small.dot()).words) == (2 * (32 + 192 + 24) + 24) * 4096


@pytest.mark.parametrize("name", KERNELS)
def test_every_value_of_every_kernel_is_there(name: str) -> None:
    kernel = KERNELS[name]()
    nest = packed_nest(kernel)
    assert nest.nodes["position"].tolist() == list(kernel.nodes)
    for node in nest.nodes:
        shape = array_shape(kernel.instruction(int(node["position"])).shape)
        axes = box_axes(nest, node["box"])
        if not nest.boxes[node["box"]]["is_unmapped"]:
            assert axes["size"].tolist() == list(shape.physical_dimensions)
        loops = {loop for axis in maps_of(axes) for loop in axis.loops}
        assert nest.boxes[node["box"]]["mask"] == sum(1 << loop for loop in loops)


@pytest.mark.parametrize(("type_name", "num_bytes"), [("f32", 4096), ("bf16", 2048), ("pred", 1024)])
def test_a_native_tile_has_1024_elements(type_name: str, num_bytes: int) -> None:
    for sizes in ("64,256", "5000"):
        copied = packed_nest(small.unary(f"{type_name}[{sizes}]")).transfers[0]
        assert (copied["native_bytes"], copied["element_bytes"]) == (num_bytes, num_bytes / 1024)
    assert packed_nest(small.unary(f"{type_name}[]")).transfers[0]["native_bytes"] == num_bytes / 1024


def test_values_that_are_cut_alike_share_a_box() -> None:
    # Two inputs, five instructions and the output: one box.
    b = ModuleBuilder()
    value = b.op("add", b.parameter("f32[256,512]"), b.parameter("f32[256,512]"))
    for _ in range(4):
        value = b.op("negate", value)
    nest = packed_nest(finish(b, value))
    assert len(nest.nodes) == 7
    assert set(nest.nodes["box"].tolist()) == {0}
    assert len(nest.boxes) == 1 + 1


def test_the_epilogue_of_a_contraction_is_marked() -> None:
    b = ModuleBuilder()
    product = b.dot(b.op("negate", b.parameter("f32[64,512]")), b.parameter("f32[512,384]"))
    nest = packed_nest(finish(b, b.op("negate", product)))
    assert (nest.nodes["kind"] == AFTER_CONTRACTION).sum() == 1


def test_a_kernel_without_loops_works_on_vectors() -> None:
    # c64[64,256] without loops to cut it: its box is whole, or one vector of as many elements.
    nest = packed_nest(small.fft())
    assert len(nest.loops) == len(nest.order) == 0
    assert not nest.boxes["mask"].any()
    assert set(nest.boxes["is_unmapped"].tolist()) <= {0, 1}
