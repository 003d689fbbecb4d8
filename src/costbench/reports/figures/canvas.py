"""What all figures share: our style, colours, and files that are the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from costbench.arrays import F64, AnyArray
from costbench.artifacts import atomic_path, read_bytes, write_bytes

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
"""Okabe and Ito's colours, which people with any colour vision can tell apart."""


@contextmanager
def drawing(
    size: tuple[float, float], rows: int = 1, columns: int = 1, **options: Any
) -> Iterator[tuple[Figure, AnyArray]]:
    """Opens a figure of panels in our style, whatever the user's matplotlibrc says; save it before the end.

    Args:
        size: width and height in inches.
        rows: number of panels in a column.
        columns: number of panels in a row.
        options: further arguments of matplotlib's `Figure.subplots`.

    Yields:
        the figure and its panels, [rows, columns].
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        # The salt makes element names, and with them the file, a function of the contents.
        mpl.rc("svg", hashsalt="costbench", fonttype="none")
        mpl.rc("font", family="sans-serif", size=9.0)
        mpl.rc("axes", axisbelow=True, grid=True)
        mpl.rc("axes.grid", axis="y")
        mpl.rc("axes.spines", top=False, right=False)
        mpl.rc("grid", color="#dddddd")
        mpl.rc("hatch", linewidth=0.6)
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)


@dataclass(frozen=True)
class BarSeries:
    """Bars of one colour, one in each group.

    Attributes:
        label: entry of the legend.
        colour: colour of the bars.
        heights: height of each bar, [num_groups].
        hatched: whether they are a paper's, which are hatched in place of filled.
    """

    label: str
    colour: str
    heights: F64
    hatched: bool = False


def draw_grouped_bars(axes: Axes, positions: F64, series: Sequence[BarSeries], width: float) -> None:
    """Draws the bars of each group side by side.

    Args:
        axes: panel to draw on.
        positions: middle of each group, [num_groups].
        series: bars from left to right.
        width: distance of two bars.
    """
    for index, bars in enumerate(series):
        axes.bar(
            positions + (index - (len(series) - 1) / 2.0) * width,
            bars.heights,
            0.92 * width,
            label=bars.label,
            color="white" if bars.hatched else bars.colour,
            edgecolor=bars.colour,
            hatch="////" if bars.hatched else None,
            linewidth=0.9,
        )


def write_beside_edge(axes: Axes, x: float, height: float, text: str, **style: Any) -> None:
    """Writes small text into a panel.

    Args:
        axes: panel to write on.
        x: position on the axis of the panel.
        height: share of the panel's height: 0 is its lower edge, 1 its upper one.
        text: what to write.
        style: further properties of the text, as matplotlib calls them.
    """
    properties: dict[str, Any] = {"ha": "center", "fontsize": 7.5, **style}
    axes.text(x, height, text, transform=axes.get_xaxis_transform(), **properties)


def legend_above(figure: Figure, axes: Axes, max_columns: int) -> None:
    """Puts the legend of a panel above all panels of a figure, in at most so many columns."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(max_columns, len(labels))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)


def label_panels(grid: AnyArray, shown: int, across: str, up: str) -> None:
    """Hides the panels after the first `shown` of a grid, and names the axes of its left and lower edge."""
    for axes in grid.ravel()[shown:]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel(across)
    for line in grid:
        line[0].set_ylabel(up)


def save(figure: Figure, stem: Path) -> tuple[Path, ...]:
    """Writes `<stem>.svg` and `<stem>.png`; returns the paths. Raises: DataError if one cannot be written."""
    svg, png = stem.with_name(stem.name + ".svg"), stem.with_name(stem.name + ".png")
    # Once for both files: each would look for it again, and draw everything a second time to find it.
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
        figure.set_layout_engine(None)
    # Dates and program versions in the files would make equal figures differ.
    with atomic_path(svg) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
    with atomic_path(png) as temporary:
        figure.savefig(temporary, format="png", dpi=130, metadata={"Software": None})
    return svg, png


def keep_smaller(svg: Path) -> Path:
    """Keeps a figure of a report, which git will hold, as SVG or as PNG, whichever is smaller.

    Args:
        svg: path of the SVG, with the PNG beside it (see `save`); one of the two is deleted.

    Returns:
        the path of the other, a PNG of at most 128 colours.

    Raises:
        DataError: if a file is missing or cannot be written.
    """
    png, reduced = svg.with_suffix(".png"), BytesIO()
    image = Image.open(BytesIO(read_bytes(png))).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(reduced, "PNG", optimize=True)
    if svg.stat().st_size <= len(reduced.getvalue()):
        png.unlink()
        return svg
    write_bytes(png, reduced.getvalue())
    svg.unlink()
    return png
