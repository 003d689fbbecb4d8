"""The part of the page about tpugraphs2023: its tables and figures, ours beside them, what is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from costbench.reports.claims.claim import TPUGRAPHS
from costbench.reports.declared_tables import declared_tables
from costbench.reports.figures.canvas import (
    PALETTE,
    BarSeries,
    draw_grouped_bars,
    drawing,
    legend_above,
    save,
)
from costbench.reports.frame import select
from costbench.reports.inputs import ReportData
from costbench.reports.losses import SKEWED, spread
from costbench.reports.overhead import overhead_table
from costbench.reports.page import Page, Pointer, Section, page_figure, paragraphs, pointer, sentence
from costbench.reports.papers.printed import FOLDER, printed_table
from costbench.reports.results import PRIMARY_CHIP, ChipSplit, Results
from costbench.reports.sections.claims import claims_of_papers
from costbench.reports.tables.hyperparameters import tried_table
from costbench.reports.tables.tpugraphs import (
    COLLECTIONS,
    LAYOUT,
    LAYOUT_BEST,
    LAYOUT_VARIANTS,
    LOSSES,
    NETWORKS,
    PAPER,
    TAU,
    TILE,
    TILE_BEST,
    TOP_K,
    best_table,
    collection_table,
    compared_splits,
    kernel_mean,
    layout_frame,
    layout_mean,
    layout_splits,
    sizes_table,
    tile_splits,
    without_large_k,
)
from costbench.tasks import LEARNED

ANCHOR = "tpugraphs"
DECLARED = FOLDER / f"{PAPER}.yaml"
"""File that declares its tables 6 to 9."""
_COMPARED_TILE_MODELS = (
    TILE_BEST,
    "late-sage-listmle",
    "early-gcn-listmle",
    "mlp-listmle",
    "early-sage-mse",
)


def tpugraphs_section(data: ReportData) -> Section | None:
    """Returns the section; None where neither a tile variant of the paper nor a layout model was tested.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the paper are broken.
    """
    results, collections = data.variants.results, data.inputs.collections
    of_tiles, of_layouts = tile_splits(results), layout_splits(results)
    if not of_tiles and not of_layouts:
        return None
    results = without_large_k(results, collections)
    compared = compared_splits(results)
    tables = [
        sizes_table(collections, data.cards, PRIMARY_CHIP),
        best_table(results, next(iter(of_tiles), None), next(iter(compared), None), collections),
        tried_table(data.inputs.variant_settings),
        *declared_tables(DECLARED, results.frame).get(ANCHOR, ()),
        *(collection_table(results, chip_split, collections) for chip_split in of_layouts),
        overhead_table(data.inputs.overheads, measured=False),
    ]
    shown_first = {
        f"{TPUGRAPHS}_table2",
        *(f"{TPUGRAPHS}_table8_{chip_split.name}" for chip_split in of_tiles),
    }
    return Section(
        anchor=ANCHOR,
        title="TpuGraphs: tile and layout models beside tpugraphs2023",
        label="TpuGraphs",
        page=Page(ANCHOR, "TpuGraphs"),
        paragraphs=_words(results, data),
        figures=tuple(
            page_figure(write(results, chip_split, data.figures)[0], ANCHOR, name, where=chip_split.title)
            for name, write, chip_splits in (
                ("tile", write_tile_figure, of_tiles),
                ("layout", write_layout_figure, compared),
            )
            for chip_split in chip_splits
        ),
        tables=tuple(tables),
        folded=tuple(table.name for table in tables if table.name not in shown_first),
    )


def _words(results: Results, data: ReportData) -> tuple[str, ...]:
    """Returns how the paper's claims were decided, what its best models reach here, and what is missing."""
    labels, findings = printed_table(PAPER, "tile_variants").labels, claims_of_papers(data.printed_findings)
    tiles = [
        {
            "title": chip_split.title,
            "said": _tile_errors(results, chip_split),
            "absent": [
                name for name in labels if results.cell(TILE, chip_split.split, chip_split.chip, name) is None
            ],
        }
        for chip_split in tile_splits(results)
    ]
    layouts = [
        {
            "title": chip_split.title,
            "said": _layout_taus(results, chip_split),
            "headroom": _headroom(results, chip_split),
            "best_of_ten": _best_of_ten(results, chip_split),
        }
        for chip_split in layout_splits(results)
    ]
    expected = [(variant, "xla:random") for variant in LAYOUT_VARIANTS.values()]
    expected += [(LAYOUT_BEST, name) for name in COLLECTIONS[1:]]
    compared = [
        {
            "title": chip_split.title,
            "absent": [
                f"{variant} on {name}"
                for variant, name in expected
                if layout_mean(results, chip_split, variant, name, TAU) is None
            ],
        }
        for chip_split in compared_splits(results)
    ]
    return paragraphs(
        ANCHOR,
        claims=Counter(finding.verdict for finding in findings if finding.claim.paper == TPUGRAPHS),
        tiles=tiles,
        layouts=layouts,
        compared=compared,
        model=LAYOUT_BEST,
        collections=data.inputs.collections,
        overheads=data.inputs.overheads,
    )


def _tile_errors(results: Results, chip_split: ChipSplit) -> str:
    """Returns the top-1 errors of the paper's best tile model and of what it is compared with; or nothing."""
    means = {
        label: kernel_mean(results, chip_split, label, TOP_K[TILE][0]) for label in _COMPARED_TILE_MODELS
    }
    errors = {label: mean for label, mean in means.items() if mean is not None}
    return sentence(ANCHOR, "tile_errors", errors=errors) if len(errors) > 1 else ""


def _layout_taus(results: Results, chip_split: ChipSplit) -> str:
    """Returns tau of the paper's layout model on each collection that it was tested on; or nothing."""
    means = {name: layout_mean(results, chip_split, LAYOUT_BEST, name, TAU) for name in COLLECTIONS}
    taus = {name: mean for name, mean in means.items() if mean is not None}
    return sentence(ANCHOR, "layout_taus", model=LAYOUT_BEST, taus=taus)


def _headroom(results: Results, chip_split: ChipSplit) -> dict[str, dict[str, float]]:
    """Returns what leaving the compiler's layouts alone costs on each collection, by kind of average."""
    (error, _), frame = LEARNED[LAYOUT].measures, layout_frame(results)
    frame = select(frame, **asdict(chip_split), model=SKEWED[LAYOUT].default, metric=error.metric)
    losses = {name: spread(error, select(frame, group=name)["value"].tolist()) for name in COLLECTIONS}
    return {name: averages for name, averages in losses.items() if averages}


def _best_of_ten(results: Results, chip_split: ChipSplit) -> dict[str, tuple[float, float]]:
    """Returns the mean loss of the best of ten configs by collection: the paper's model's, ten at random."""
    losses = {
        name: [
            layout_mean(results, chip_split, model, name, SKEWED[LAYOUT].best_of_ten)
            for model in (LAYOUT_BEST, SKEWED[LAYOUT].chance)
        ]
        for name in COLLECTIONS
    }
    return {
        name: (network, chance)
        for name, (network, chance) in losses.items()
        if network is not None and chance is not None
    }


def tpugraphs_pointer(results: Results) -> tuple[Pointer, ...]:
    """Returns the answer of the first screen; none without results."""
    answers = [
        *(("Tiles", _tile_errors(results, first), first.title) for first in tile_splits(results)[:1]),
        *(("Layouts", _layout_taus(results, first), first.title) for first in layout_splits(results)[:1]),
    ]
    answers = [answer for answer in answers if answer[1]]
    if not answers:
        return ()
    return (pointer(ANCHOR, "best", ANCHOR, answers=answers),)


_COLOURS = {"listmle": PALETTE[0], "mse": PALETTE[1]}
# Of errors in percent, on a logarithmic axis: what is smaller is drawn as this.
_LEAST = 0.1


def write_tile_figure(results: Results, chip_split: ChipSplit, folder: Path) -> tuple[Path, ...]:
    """Draws top-1, top-5 and top-10 errors of tile models by network and loss, a panel for each k.

    Filled bars are ours, hatched ones the paper's of validation programs. Writes
    `tpugraphs2023_figure5_<split>_<chip>.svg` and `.png`; returns the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    with drawing((10.5, 3.6), columns=3, sharey=True) as (figure, (panels,)):
        for axes, metric, key in zip(panels, TOP_K[TILE], ("k1", "k2", "k3"), strict=True):
            _tile_panel(axes, results, chip_split, metric, key)
            axes.set_title(f"top-{metric.rsplit('_', 1)[1]}", fontsize=9.0)
        panels[0].set_ylabel("error (%), lower is better")
        legend_above(figure, panels[0], 4)
        return save(figure, folder / f"tpugraphs2023_figure5_{chip_split.name}")


def _tile_panel(axes: Axes, results: Results, chip_split: ChipSplit, metric: str, key: str) -> None:
    paper = printed_table(PAPER, "tile_variants")
    positions = np.arange(len(NETWORKS), dtype=np.float64)
    series = []
    for loss, name in LOSSES.items():
        labels = [f"{network}-{loss}" for network in NETWORKS]
        ours = [kernel_mean(results, chip_split, label, metric) for label in labels]
        theirs = [paper.value(label, f"{key}_val") for label in labels]
        for who, values in (("ours", ours), ("paper", theirs)):
            heights = np.array([np.nan if value is None else max(value, _LEAST) for value in values])
            series.append(BarSeries(f"{name}, {who}", _COLOURS[loss], heights, hatched=who == "paper"))
    draw_grouped_bars(axes, positions, series, 0.2)
    axes.set_yscale("log")
    axes.set_ylim(bottom=_LEAST)
    axes.set_xticks(positions, list(NETWORKS.values()), fontsize=7.5)
    axes.tick_params(axis="x", length=0)


def write_layout_figure(results: Results, chip_split: ChipSplit, folder: Path) -> tuple[Path, ...]:
    """Draws Kendall's tau of layout models on each collection; the paper's Table 2 as marks.

    Writes `layout_tau_<split>_<chip>.svg` and `.png`; returns the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    paper = printed_table(PAPER, "best")
    positions = np.arange(len(COLLECTIONS), dtype=np.float64)
    width = 0.8 / len(LAYOUT_VARIANTS)
    with drawing((7.5, 3.4)) as (figure, ((axes,),)):
        for index, (label, variant) in enumerate(LAYOUT_VARIANTS.items()):
            values = [layout_mean(results, chip_split, variant, name, TAU) for name in COLLECTIONS]
            heights = [np.nan if value is None else value for value in values]
            shift = (index - (len(LAYOUT_VARIANTS) - 1) / 2.0) * width
            axes.bar(positions + shift, heights, 0.92 * width, label=f"{label}, ours", color=PALETTE[index])
        printed = [paper.value(f"layout:{name}", "tau_test") for name in COLLECTIONS]
        marks = [np.nan if value is None else value for value in printed]
        named = f"{LAYOUT_BEST}, paper"
        axes.hlines(
            marks, positions - 0.46, positions + 0.46, colors="#222222", linestyles="dashed", label=named
        )
        axes.axhline(0.0, color="#444444", linewidth=0.8)
        axes.set_xticks(positions, [f"layout:{name}" for name in COLLECTIONS])
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel("Kendall's τ, test programs")
        figure.legend(loc="outside upper center", ncols=3, frameon=False)
        return save(figure, folder / f"layout_tau_{chip_split.name}")
