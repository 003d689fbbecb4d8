from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.errors import UnsupportedKernelError
from costbench.hlo.cost_analysis import (
    APPLICATIONS,
    ELEMENTWISE,
    FLOPS,
    RANDOM,
    TRANSCENDENTAL,
    UNPRICED,
    Cost,
    CostAnalysis,
    convolution_multiply_adds,
    module_cost,
    valid_positions,
)
from costbench.hlo.instruction import GatherDimensions, ScatterDimensions, WindowDimension
from costbench.hlo.opcode import Opcode
from tests.hlo.builder import ComputationBuilder, ModuleBuilder, window

X = "f32[8,16]{1,0}"
X_BYTES = 8 * 16 * 4


def last(b: ModuleBuilder) -> Cost:
    module = b.build()
    return CostAnalysis(module).instruction(module.entry, module.entry_computation.root)


def test_elementwise_counts_elements_and_transcendentals_apart() -> None:
    b = ModuleBuilder()
    x = b.parameter(X)
    b.op("add", x, x)
    assert last(b) == Cost(128, 2 * X_BYTES, X_BYTES, 0)
    b.op("exponential", x)
    assert last(b) == Cost(0, X_BYTES, X_BYTES, 128)
    b.op("compare", x, x)
    assert last(b) == Cost(128, 2 * X_BYTES, 128, 0)
    b.convert(x, "bf16")
    assert last(b) == Cost(128, X_BYTES, X_BYTES / 2, 0)


def test_bookkeeping_is_free_and_copies_are_not() -> None:
    b = ModuleBuilder()
    x = b.parameter(X)
    assert last(b) == Cost()
    pair = b.make_tuple(x, x)
    assert last(b) == Cost(bytes_written=16)
    b.get(pair, 0)
    assert last(b) == Cost()
    b.op("bitcast", x, shape="f32[128]")
    assert last(b) == Cost()
    b.reshape(x, "f32[128]")
    assert last(b) == Cost(0, X_BYTES, X_BYTES, 0)
    b.transpose(x, (1, 0))
    assert last(b) == Cost(0, X_BYTES, X_BYTES, 0)
    b.op("transpose", x, shape="f32[16,8]{0,1}", dimensions=(1, 0))  # the same bytes under another name
    assert last(b) == Cost()


def test_dots_and_batches() -> None:
    b = ModuleBuilder()
    b.dot(b.parameter("bf16[3,8,16]"), b.parameter("bf16[3,16,5]"), (2, 1), batch=[(0, 0)])
    assert last(b) == Cost(2 * 3 * 8 * 5 * 16, 2 * (3 * 8 * 16 + 3 * 16 * 5), 2 * 3 * 8 * 5, 0)


def test_reductions_apply_their_function() -> None:
    b = ModuleBuilder()
    x = b.parameter(X)
    b.reduce(x, (0,))
    assert last(b) == Cost(128 - 16, X_BYTES + 4, 64, 0)
    b.reduce(x, (0, 1), "power")
    assert last(b) == Cost(0, X_BYTES + 4, 4, 127)
    b.reduce_window(x, window((2, 3), (2, 1), ((0, 0), (1, 1))))
    assert last(b).flops == 4 * 16 * (6 - 1)
    # Every window covers the whole axis: 7 additions, and the 15 others repeat them.
    b.reduce_window(x, window((15, 1), padding=((7, 7), (0, 0))))
    assert last(b).flops == 128 / 8 + 7


def test_scattering() -> None:
    b = ModuleBuilder()
    x, i, u = b.parameter(X), b.parameter("s32[5]"), b.parameter("f32[5,16]")
    b.select_and_scatter(x, b.parameter("f32[4,4]"), window((2, 4), (2, 4)))
    assert last(b) == Cost(16 * 7 + 16, X_BYTES + 64 + 4, X_BYTES, 0)
    called = (b.function("add", b.shape(x)),)
    b.op("scatter", x, i, u, shape=X, called=called, scatter=ScatterDimensions((1,), (0,), (0,), 1))
    assert last(b) == Cost(80, 2 * 320 + 20, 320, 0)
    b.op("gather", x, i, shape="f32[5,16]", gather=GatherDimensions((1,), (0,), (0,), 1, (1, 16)))
    assert last(b) == Cost(0, 320 + 20, 320, 0)


def test_slices_touch_what_they_return_or_update() -> None:
    b = ModuleBuilder()
    x, i, u = b.parameter(X), b.parameter("s32[]"), b.parameter("f32[4,16]")
    b.slice_of(x, (0, 0), (4, 16))
    assert last(b) == Cost(0, 256, 256, 0)
    b.op("dynamic-slice", x, i, i, shape="f32[4,16]", dynamic_slice_sizes=(4, 16))
    assert last(b) == Cost(0, 256 + 4, 256, 0)
    b.op("dynamic-update-slice", x, u, i, i, shape=X)
    assert last(b) == Cost(0, 256 + 4, 256, 0)


@pytest.mark.parametrize(("size", "flops"), [(100, 700), (128, 896), (129, 129 * 8), (1, 0)])
def test_sorting(size: int, flops: int) -> None:
    b = ModuleBuilder()
    x = b.parameter(f"f32[{size}]")
    b.op("sort", x, dimensions=(0,), called=(b.function("compare", b.shape(x)),))
    assert last(b).flops == flops


def test_transforms_and_solvers() -> None:
    b = ModuleBuilder()
    b.op("fft", b.parameter("c64[3,8,16]"), fft_length=(8, 16))
    assert last(b).flops == 8 * 3 * 4 * (3 * 8 * 16)
    a = b.parameter("f32[8,8]")
    b.op("triangular-solve", a, b.parameter(X), shape=X)
    assert last(b) == Cost(2 * 8 * 128, 128 + X_BYTES, X_BYTES, 0)
    b.op("cholesky", b.parameter("f32[5,8,8]"))
    assert last(b) == Cost(853, 640, 640, 0)


def test_random_numbers_count_as_transcendental() -> None:
    b = ModuleBuilder()
    b.op("rng-bit-generator", b.parameter("u64[2]"), shape="(u64[2], u32[8,16])")
    assert last(b) == Cost(0, 16, 16 + X_BYTES, 130)


def test_a_loop_counts_one_iteration_and_a_conditional_its_dearest_branch() -> None:
    b = ModuleBuilder()
    state = b.make_tuple(b.constant("s32[]"), b.parameter(X))
    shape = b.shape(state)

    def condition(c: ComputationBuilder) -> int:
        return c.op("compare", c.get(c.parameter(shape), 0), c.constant("s32[]"))

    def body(c: ComputationBuilder) -> int:
        p = c.parameter(shape)
        return c.make_tuple(c.get(p, 0), c.op("tanh", c.get(p, 1)))

    b.while_(condition, body, state, trip_count=1000)
    assert last(b) == Cost(1, X_BYTES + 8, X_BYTES + 16 + 1, 128)
    cheap = b.computation("cheap", lambda c: c.op("copy", c.parameter(X)))
    dear = b.computation("dear", lambda c: c.op("add", *(2 * [c.parameter(X)])))
    x = b.parameter(X)
    b.op("conditional", b.constant("pred[]"), x, x, shape=X, called=(cheap, dear))
    assert last(b) == Cost(128, 2 * X_BYTES, X_BYTES, 0)


def test_a_custom_call_moves_its_operands() -> None:
    b = ModuleBuilder()
    b.op("custom-call", b.parameter(X), shape=X, custom_call_target="x")
    assert last(b) == Cost(0, X_BYTES, X_BYTES, 0)


def test_what_has_no_rule_is_an_error() -> None:
    b = ModuleBuilder("odd")
    x = b.parameter(X)
    y = b.op("unknown", x, x, shape=X)
    with pytest.raises(UnsupportedKernelError, match=r"odd: unknown.*no cost rule for unknown"):
        CostAnalysis(b.build()).instruction(0, y)


def test_whole_computations_add_up() -> None:
    b = ModuleBuilder()
    x = b.parameter(X)
    b.op("add", b.op("tanh", x), x)
    module = b.build()
    assert module_cost(module) == Cost(128, 3 * X_BYTES, 2 * X_BYTES, 128)
    assert module_cost(module).bytes_accessed == 5 * X_BYTES


def fused(c: ComputationBuilder, a: int, v: int) -> tuple[int, ...]:
    table = c.constant("f32[16]")
    c.constant("f32[]")
    sums = c.broadcast(c.op("add", v, table), X, (1,))
    return (
        c.op("multiply", c.op("exponential", a), sums),
        c.slice_of(a, (0, 0), (4, 16)),
        c.reshape(a, "f32[128]"),
        c.op("negate", a),
    )


def test_fusions_touch_memory_at_their_boundary() -> None:
    b = ModuleBuilder()

    def body(c: ComputationBuilder) -> int:
        return c.make_tuple(*fused(c, c.parameter(X), c.parameter("f32[16]")))

    b.fusion(body, b.parameter(X), b.parameter("f32[16]"))
    # Read: a by exp and negate together, by the slice, by the reshape; v; the table of constants.
    assert last(b) == Cost(16 + 128 + 128, (512 + 256 + 512) + 64 + 64, 512 + 256 + 512 + 512, 128)


def test_kernels_are_priced_like_fusions_but_read_no_input_twice() -> None:
    b = ModuleBuilder()
    a, v = b.parameter(X), b.parameter("f32[16]")
    outputs = fused(b, a, v)
    module = b.build(*outputs)
    instructions = range(2, max(outputs) + 1)
    cost = CostAnalysis(module).kernel(module.entry, instructions, (a, v), outputs)
    assert cost == Cost(272, 512 + 64 + 64, 512 + 256 + 512 + 512, 128)


def test_a_kernel_that_only_slices_reads_the_slice_and_updates_in_place() -> None:
    b = ModuleBuilder()
    big, i = b.parameter("f32[1000,16]"), b.parameter("s32[]")
    zero = b.constant("s32[]")
    row = b.op("dynamic-slice", big, i, zero, shape="f32[1,16]", dynamic_slice_sizes=(1, 16))
    out = b.op("dynamic-update-slice", big, b.op("tanh", row), i, zero, shape="f32[1000,16]")
    module = b.build(out)
    cost = CostAnalysis(module).kernel(0, (zero, row, row + 1, out), (big, i), (out,))
    assert cost == Cost(0, 64 + 4, 64, 16)


def test_every_reader_of_a_value_is_priced_once() -> None:
    """A walk along the readers of values that are read twice would take 2^3000 steps."""
    b = ModuleBuilder()
    x = b.parameter(X)
    for _ in range(3000):
        x = b.op("add", x, x)
    assert CostAnalysis(b.build()).computation(0).flops == 3000 * 8 * 16


def counted(labels: str, lhs: str, rhs: str, windows: tuple[WindowDimension, ...], **groups: int) -> int:
    b = ModuleBuilder()
    x, w = b.parameter(lhs), b.parameter(rhs)
    inst = b.build(b.convolution(x, w, labels, windows, groups)).entry_computation.root_instruction
    return convolution_multiply_adds(inst, b.shape(x), b.shape(w))


@given(
    st.builds(
        WindowDimension,
        size=st.integers(1, 6),
        stride=st.integers(1, 4),
        padding_low=st.integers(-3, 6),
        padding_high=st.integers(-3, 6),
        window_dilation=st.integers(1, 3),
        base_dilation=st.integers(1, 3),
    ),
    st.integers(0, 9),
)
def test_positions_are_those_that_meet_an_element(w: WindowDimension, extent: int) -> None:
    # The dilated and padded base, written out: True where a real element lies.
    base = [i % w.base_dilation == 0 for i in range(w.dilated_base(extent))]
    low, high = w.padding_low, w.padding_high
    base = base[-low:] if low < 0 else [False] * low + base
    base = base[: len(base) + high] if high < 0 else base + [False] * high
    if len(base) < 0 or (low < 0 and -low > w.dilated_base(extent)):
        return
    output = max(0, (len(base) - w.dilated_size) // w.stride + 1)
    expected = sum(
        base[o * w.stride + k * w.window_dilation] for o, k in itertools.product(range(output), range(w.size))
    )
    assert valid_positions(w, extent, w.size, output) == expected


def test_long_windows_are_counted_in_pieces() -> None:
    # A window as long as the padded base slides over 2,000 places; tap k meets input element o + k - 1999.
    w = WindowDimension(size=2000, padding_low=1999, padding_high=1999)
    assert valid_positions(w, 2000, 2000, 3999) == 2000 * 2000


def test_padding_costs_nothing() -> None:
    same = window((3, 3), padding=((1, 1), (1, 1)))
    # Along an axis of 4: the middle tap meets 4 places, the outer ones 3 each.
    assert counted("b01f_01io->b01f", "f32[2,4,4,6]", "f32[3,3,6,5]", same) == 2 * 6 * 5 * 10 * 10


def test_groups_divide_the_work() -> None:
    plain = counted("b01f_01io->b01f", "f32[6,9,9,6]", "f32[3,3,6,12]", window((3, 3)))
    grouped = counted(
        "b01f_01io->b01f", "f32[6,9,9,6]", "f32[3,3,2,12]", window((3, 3)), feature_group_count=3
    )
    batched = counted("b01f_01io->b01f", "f32[6,9,9,6]", "f32[3,3,6,12]", window((3, 3)), batch_group_count=3)
    assert (grouped, batched) == (plain // 3, plain // 3)


def test_transposed_convolutions_skip_the_holes() -> None:
    forward = counted("b01f_01io->b01f", "f32[2,9,9,6]", "f32[3,3,6,4]", window((3, 3), (2, 2)))
    backward = counted(
        "b01f_01oi->b01f", "f32[2,4,4,4]", "f32[3,3,6,4]", window((3, 3), (1, 1), ((2, 2),) * 2, (), (2, 2))
    )
    assert forward == backward == 2 * 6 * 4 * (4 * 3) ** 2


def test_without_spatial_dimensions_it_is_a_dot() -> None:
    assert counted("bf_io->bf", "f32[2,6]", "f32[6,4]", ()) == 2 * 6 * 4


# Everything else moves data or passes it on, and is known to cost no arithmetic.
NO_ARITHMETIC = {
    "add-dependency",
    "after-all",
    "all-gather",
    "all-gather-done",
    "all-gather-start",
    "all-reduce-done",
    "all-to-all",
    "async-done",
    "async-start",
    "async-update",
    "batch-norm-grad",
    "batch-norm-inference",
    "batch-norm-training",
    "bitcast",
    "broadcast",
    "call",
    "collective-broadcast",
    "collective-permute",
    "collective-permute-done",
    "collective-permute-start",
    "concatenate",
    "conditional",
    "constant",
    "copy",
    "copy-done",
    "copy-start",
    "custom-call",
    "domain",
    "dynamic-reshape",
    "dynamic-slice",
    "dynamic-update-slice",
    "gather",
    "get-dimension-size",
    "get-tuple-element",
    "infeed",
    "iota",
    "opt-barrier",
    "outfeed",
    "pad",
    "parameter",
    "partition-id",
    "ragged-all-to-all",
    "recv",
    "recv-done",
    "reduce-scatter",
    "replica-id",
    "reshape",
    "reverse",
    "rng-get-and-update-state",
    "send",
    "send-done",
    "set-dimension-size",
    "slice",
    "topk",
    "transpose",
    "tuple",
    "while",
}


def test_every_opcode_has_exactly_one_rule() -> None:
    rules = [
        ELEMENTWISE,
        TRANSCENDENTAL,
        RANDOM,
        UNPRICED,
        set(APPLICATIONS),
        set(FLOPS),
        {Opcode.from_name(name) for name in NO_ARITHMETIC},
    ]
    counts = {opcode.xla_name: sum(opcode in rule for rule in rules) for opcode in Opcode}
    assert {name: count for name, count in counts.items() if count != 1} == {}
