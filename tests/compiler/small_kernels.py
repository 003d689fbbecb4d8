"""Small kernels of every kind, whose tiles and times can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.kernel_arrays import KernelArrays, kernel_arrays
from costbench.hlo.instruction import (
    DotDimensions,
    GatherDimensions,
    ScatterDimensions,
    SliceDimension,
    WindowDimension,
)
from tests.hlo.builder import ComputationBuilder, ModuleBuilder, window


def finish(b: ModuleBuilder, *roots: int) -> Kernel:
    """The kernel that computes `roots`."""
    return kernel_from_module(b.build(*roots))


def as_arrays(kernels: Sequence[Kernel]) -> KernelArrays:
    """The positions of the kernels of one computation, one kernel after the other."""
    return kernel_arrays(kernel.positions for kernel in kernels)


def elementwise(shape: str = "f32[256,512]", opcode: str = "add") -> Kernel:
    """Two arrays combined."""
    b = ModuleBuilder("elementwise")
    return finish(b, b.op(opcode, b.parameter(shape), b.parameter(shape)))


def unary(shape: str = "f32[256,512]", opcode: str = "negate", times: int = 1) -> Kernel:
    """An operation applied a number of times."""
    b = ModuleBuilder("unary")
    value = b.parameter(shape)
    for _ in range(times):
        value = b.op(opcode, value)
    return finish(b, value)


def copy(source: str = "f32[32,64,256]{2,1,0}", target: str = "f32[32,64,256]{2,0,1}") -> Kernel:
    """A change of memory order."""
    b = ModuleBuilder("copy")
    return finish(b, b.op("copy", b.parameter(source), shape=target))


def reduction(shape: str = "f32[64,32,256]", dimensions: tuple[int, ...] = (0,)) -> Kernel:
    """A sum over some axes."""
    b = ModuleBuilder("reduction")
    return finish(b, b.reduce(b.parameter(shape), dimensions))


def two_results(shape: str = "f32[64,32,256]") -> Kernel:
    """A value and its sum over the first axis."""
    b = ModuleBuilder("two_results")
    value = b.op("negate", b.parameter(shape))
    return finish(b, value, b.reduce(value, (0,)))


def dot(
    lhs: str = "f32[64,512]",
    rhs: str = "f32[512,384]",
    numbers: DotDimensions | None = None,
    result: str | None = None,
) -> Kernel:
    """A matrix product; `result` says its shape where the builder's is not wanted."""
    b = ModuleBuilder("dot")
    left, right = b.parameter(lhs), b.parameter(rhs)
    if numbers is None:
        return finish(b, b.dot(left, right))
    return finish(b, b.op("dot", left, right, shape=result, dot=numbers))


def convolution(
    lhs: str = "f32[8,16,16,128]",
    rhs: str = "f32[3,3,128,256]",
    windows: tuple[WindowDimension, ...] = window((3, 3), padding=((1, 1), (1, 1))),
    labels: str = "b01f_01io->b01f",
    groups: dict[str, int] | None = None,
) -> Kernel:
    """A convolution."""
    b = ModuleBuilder("convolution")
    return finish(b, b.convolution(b.parameter(lhs), b.parameter(rhs), labels, windows, groups))


def transposed_convolution() -> Kernel:
    """The gradient of a convolution of stride 2: its base is dilated."""
    return convolution(
        lhs="f32[8,8,8,128]",
        windows=window((3, 3), padding=((1, 2), (1, 2)), base_dilation=(2, 2)),
    )


def filter_gradient(lhs: str = "f32[2,14,18,128]", rhs: str = "f32[2,12,16,256]") -> Kernel:
    """The gradient of a filter of 3 x 3: the window is the image, the depth is the batch."""
    return convolution(lhs, rhs, window((12, 16)), "f01b_i01o->01bf")


def depthwise() -> Kernel:
    """One filter per feature."""
    return convolution(rhs="f32[3,3,1,128]", groups={"feature_group_count": 128})


def pooling() -> Kernel:
    """Largest of windows of 3 x 3, two apart."""
    b = ModuleBuilder("pooling")
    windows = window((1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (0, 1), (0, 1), (0, 0)))
    return finish(b, b.reduce_window(b.parameter("f32[8,16,16,128]"), windows, "maximum"))


def pooling_gradient() -> Kernel:
    """Where the largest of windows of 2 x 2 were."""
    b = ModuleBuilder("pooling_gradient")
    windows = window((1, 2, 2, 1), (1, 2, 2, 1))
    value, source = b.parameter("f32[8,16,16,128]"), b.parameter("f32[8,8,8,128]")
    return finish(b, b.select_and_scatter(value, source, windows))


def gather() -> Kernel:
    """Rows of a table."""
    b = ModuleBuilder("gather")
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, 256))
    table, indices = b.parameter("f32[10000,256]"), b.parameter("s32[512,1]")
    return finish(b, b.op("gather", table, indices, shape="f32[512,256]", gather=numbers))


def scatter() -> Kernel:
    """Rows added to a table."""
    b = ModuleBuilder("scatter")
    numbers = ScatterDimensions((1,), (0,), (0,), 1)
    table, indices = b.parameter("f32[10000,256]"), b.parameter("s32[512,1]")
    updates = b.parameter("f32[512,256]")
    called = (b.function("add", b.shape(table)),)
    return finish(
        b, b.op("scatter", table, indices, updates, shape="f32[10000,256]", scatter=numbers, called=called)
    )


def dynamic_slice() -> Kernel:
    """Some rows, from an index on."""
    b = ModuleBuilder("dynamic_slice")
    value, zero = b.parameter("f32[4096,256]"), b.parameter("s32[]")
    made = b.op(
        "dynamic-slice",
        value,
        zero,
        zero,
        shape="f32[64,256]",
        dynamic_slice_sizes=(64, 256),
    )
    return finish(b, made)


def dynamic_update_slice() -> Kernel:
    """Some rows replaced in place."""
    b = ModuleBuilder("dynamic_update_slice")
    value, update, zero = b.parameter("f32[4096,256]"), b.parameter("f32[64,256]"), b.parameter("s32[]")
    return finish(b, b.op("dynamic-update-slice", value, update, zero, zero, shape="f32[4096,256]"))


def strided_slice() -> Kernel:
    """Every second row."""
    b = ModuleBuilder("strided_slice")
    ranges = (SliceDimension(0, 256, 2), SliceDimension(0, 512, 1))
    return finish(b, b.op("slice", b.parameter("f32[256,512]"), shape="f32[128,512]", slices=ranges))


def concatenation() -> Kernel:
    """Two arrays one after the other, the second not at a multiple of eight rows."""
    b = ModuleBuilder("concatenation")
    return finish(b, b.concatenate([b.parameter("f32[100,512]"), b.parameter("f32[156,512]")], 0))


def padding() -> Kernel:
    """Zeros around an array."""
    b = ModuleBuilder("padding")
    return finish(b, b.pad(b.parameter("f32[250,512]"), b.constant("f32[]"), ((3, 3, 0), (0, 0, 0))))


def sort() -> Kernel:
    """Keys and values, by key, along the last axis."""
    b = ModuleBuilder("sort")
    keys, values = b.parameter("f32[64,1024]"), b.parameter("s32[64,1024]")

    def by_key(c: ComputationBuilder) -> int:
        first, second, _, _ = (c.parameter(shape) for shape in ("f32[]", "f32[]", "s32[]", "s32[]"))
        return c.op("compare", first, second, comparison_direction="GE")

    called = (b.computation("by_key", by_key),)
    made = b.op("sort", keys, values, shape="(f32[64,1024], s32[64,1024])", dimensions=(1,), called=called)
    return finish(b, b.get(made, 0), b.get(made, 1))


def top_k() -> Kernel:
    """The five largest of each row, with their places."""
    b = ModuleBuilder("top_k")
    made = b.op("topk", b.parameter("f32[64,1024]"), shape="(f32[64,5], s32[64,5])", called=())
    return finish(b, b.get(made, 0), b.get(made, 1))


def fft() -> Kernel:
    """Fourier transforms of rows: one routine without tiles."""
    b = ModuleBuilder("fft")
    made = b.op("fft", b.parameter("c64[64,256]"), shape="c64[64,256]", fft_length=(256,), fft_type=0)
    return finish(b, made)


def random_bits() -> Kernel:
    """Uniform random numbers."""
    b = ModuleBuilder("random_bits")
    low, high = b.constant("f32[]"), b.constant("f32[]")
    return finish(b, b.op("rng", low, high, shape="f32[256,512]"))


def lone_reshape() -> Kernel:
    """A reshape that moves data: one routine without tiles."""
    b = ModuleBuilder("lone_reshape")
    return finish(b, b.reshape(b.parameter("f32[32,6400]"), "f32[32,5,5,256]"))


def scalar() -> Kernel:
    """Two numbers added."""
    return elementwise("f32[]")


def vector() -> Kernel:
    """One-dimensional arrays, of which a native tile holds 1,024 elements."""
    return elementwise("f32[10000]")


KERNELS: dict[str, Callable[[], Kernel]] = {
    "concatenation": concatenation,
    "convolution": convolution,
    "copy": copy,
    "depthwise": depthwise,
    "dot": dot,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "elementwise": elementwise,
    "fft": fft,
    "gather": gather,
    "lone_reshape": lone_reshape,
    "padding": padding,
    "pooling": pooling,
    "pooling_gradient": pooling_gradient,
    "random_bits": random_bits,
    "reduction": reduction,
    "scalar": scalar,
    "scatter": scatter,
    "sort": sort,
    "strided_slice": strided_slice,
    "top_k": top_k,
    "transposed_convolution": transposed_convolution,
    "two_results": two_results,
    "vector": vector,
}
