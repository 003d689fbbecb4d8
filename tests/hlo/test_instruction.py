from __future__ import annotations

import pytest

from costbench.hlo.instruction import WindowDimension


@pytest.mark.parametrize(
    ("window", "extent", "output"),
    [
        (WindowDimension(size=3), 10, 8),
        (WindowDimension(size=3, stride=2, padding_low=1, padding_high=1), 9, 5),
        (WindowDimension(size=3, window_dilation=2), 9, 5),
        (WindowDimension(size=3, base_dilation=2, padding_low=1, padding_high=1), 5, 9),
        (WindowDimension(size=3, padding_low=-2), 10, 6),
        (WindowDimension(size=11), 10, 0),
        (WindowDimension(size=1), 0, 0),
        (WindowDimension(size=2, padding_low=1, padding_high=1), 0, 1),
    ],
)
def test_window_positions(window: WindowDimension, extent: int, output: int) -> None:
    assert window.output_extent(extent) == output
