from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from costbench.hlo.cost_analysis.convolution import convolution_multiply_adds, valid_positions
from costbench.hlo.instruction import WindowDimension
from tests.hlo.builder import ModuleBuilder, window


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
