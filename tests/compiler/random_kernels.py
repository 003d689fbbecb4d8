"""Random kernels: shapes, memory orders and kinds of every sort, small enough to price in no time."""

from __future__ import annotations

from hypothesis import strategies as st

from costbench.compiler.kernel import Kernel
from costbench.hlo.instruction import DotDimensions
from costbench.hlo.shape import ElementType, Shape
from tests.compiler.small_kernels import finish
from tests.hlo.builder import ModuleBuilder, window

SIZES = st.sampled_from([1, 2, 3, 5, 7, 8, 12, 16, 17, 26, 32, 100, 128, 130, 192, 256, 300, 384])
TYPES = st.sampled_from([ElementType.F32, ElementType.BF16, ElementType.PRED, ElementType.S32])
MAX_ELEMENTS = 1 << 21


@st.composite
def shapes(draw: st.DrawFn, ranks: tuple[int, int] = (0, 4)) -> Shape:
    """An array of at most two million elements in any memory order."""
    sizes: list[int] = []
    total = 1
    for _ in range(draw(st.integers(*ranks))):
        size = draw(SIZES)
        size = size if total * size <= MAX_ELEMENTS else 1
        total *= size
        sizes.append(size)
    order = tuple(draw(st.permutations(range(len(sizes)))))
    return Shape(draw(TYPES), tuple(sizes), order)


def _with_order(draw: st.DrawFn, kind: ElementType, sizes: tuple[int, ...]) -> Shape:
    return Shape(kind, sizes, tuple(draw(st.permutations(range(len(sizes))))))


@st.composite
def elementwise_kernels(draw: st.DrawFn) -> Kernel:
    """A chain with a broadcast, sometimes copied to another memory order or summed."""
    b = ModuleBuilder("elementwise")
    shape = draw(shapes())
    value = b.op(draw(st.sampled_from(["tanh", "negate", "copy"])), b.parameter(shape))
    if shape.rank and draw(st.booleans()):
        axis = draw(st.integers(0, shape.rank - 1))
        row = b.parameter(Shape(shape.element_type, (shape.dimensions[axis],), (0,)))
        value = b.op("add", value, b.broadcast(row, shape, (axis,)))
    ending = draw(st.sampled_from(["none", "copy", "reduce", "both"]))
    if shape.rank and ending == "copy":
        value = b.op("copy", value, shape=_with_order(draw, shape.element_type, shape.dimensions))
    if shape.rank and ending in ("reduce", "both"):
        summed = b.reduce(value, tuple(sorted(draw(st.sets(st.integers(0, shape.rank - 1), min_size=1)))))
        return finish(b, value, summed) if ending == "both" else finish(b, summed)
    return finish(b, value)


@st.composite
def dot_kernels(draw: st.DrawFn) -> Kernel:
    """A matrix product with or without a batch, sides and result in any memory order."""
    b = ModuleBuilder("dot")
    m, n, k = draw(SIZES), draw(SIZES), draw(SIZES)
    kind = draw(st.sampled_from([ElementType.F32, ElementType.BF16]))
    batch = (draw(st.sampled_from([1, 3, 8])),) if draw(st.booleans()) else ()
    axes = tuple(range(len(batch)))
    numbers = DotDimensions((len(batch) + 1,), (len(batch),), axes, axes)
    lhs = b.parameter(_with_order(draw, kind, (*batch, m, k)))
    rhs = b.parameter(_with_order(draw, kind, (*batch, k, n)))
    product = b.op("dot", lhs, rhs, shape=_with_order(draw, kind, (*batch, m, n)), dot=numbers)
    return finish(b, b.op("maximum", product, product) if draw(st.booleans()) else product)


@st.composite
def convolution_kernels(draw: st.DrawFn) -> Kernel:
    """A convolution, dense or depthwise, with strides, padding and dilation."""
    b = ModuleBuilder("convolution")
    features = draw(st.sampled_from([3, 8, 64, 130]))
    grouped = draw(st.booleans())
    out = features if grouped else draw(st.sampled_from([8, 96, 256]))
    size = draw(st.sampled_from([1, 2, 3, 5]))
    windows = window(
        (size, size),
        (draw(st.integers(1, 2)), 1),
        ((size // 2, size // 2), (0, size - 1)),
        (1, draw(st.integers(1, 2))),
        (draw(st.integers(1, 2)), 1),
    )
    lhs = b.parameter(
        _with_order(draw, ElementType.BF16, (draw(st.sampled_from([1, 8, 20])), 13, 14, features))
    )
    rhs = b.parameter(_with_order(draw, ElementType.F32, (size, size, 1 if grouped else features, out)))
    groups = {"feature_group_count": features} if grouped else None
    return finish(b, b.convolution(lhs, rhs, "b01f_01io->b01f", windows, groups))


def kernels() -> st.SearchStrategy[Kernel]:
    """Any of them."""
    return st.one_of(elementwise_kernels(), dot_kernels(), convolution_kernels())
