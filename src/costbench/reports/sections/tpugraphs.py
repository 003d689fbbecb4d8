"""The part of the page about tpugraphs2023: its tables and figure, ours beside them, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from costbench.datasets.layout_graphs import CollectionSize
from costbench.metrics.overhead import Overhead
from costbench.reports.claims.claim import TPUGRAPHS
from costbench.reports.claims.evaluation import Finding
from costbench.reports.dataset_files import Card
from costbench.reports.declared_tables import declared_tables
from costbench.reports.figures.tpugraphs import write_layout_figure, write_tile_figure
from costbench.reports.frame import select
from costbench.reports.losses import SKEWED, spread
from costbench.reports.overhead import overhead_table
from costbench.reports.page import Pointer, Section, page_figure, paragraphs, sentence
from costbench.reports.papers.printed import FOLDER, printed_table
from costbench.reports.results import PRIMARY_CHIP, ChipSplit, Results
from costbench.reports.sections.claims import claims_of_papers
from costbench.reports.tables.hyperparameters import tried_table
from costbench.reports.tables.tpugraphs import (
    COLLECTIONS,
    LAYOUT,
    LAYOUT_BEST,
    LAYOUT_VARIANTS,
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


@dataclass(frozen=True)
class TpuGraphsInputs:
    """What the section shows beside result rows.

    Attributes:
        settings: task -> variant -> its parameters of training.
        collections: sizes of the collections of layout graphs.
        overheads: what evaluating a layout config takes.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    collections: tuple[CollectionSize, ...] = ()
    overheads: tuple[Overhead, ...] = ()


def tpugraphs_section(
    results: Results,
    inputs: TpuGraphsInputs,
    cards: Sequence[Card],
    findings: Sequence[Finding],
    figures: Path,
) -> Section | None:
    """Returns the section; None where neither a tile variant of the paper nor a layout model was tested.

    Args:
        results: results of all variants.
        inputs: settings and sizes that are shown beside them.
        cards: cards of the data sets.
        findings: on all claims, for a sentence on the paper's.
        figures: folder that figures go to.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the paper are broken.
    """
    of_tiles, of_layouts = tile_splits(results), layout_splits(results)
    if not of_tiles and not of_layouts:
        return None
    results = without_large_k(results, inputs.collections)
    compared = compared_splits(results)
    tables = [
        sizes_table(inputs.collections, cards, PRIMARY_CHIP),
        best_table(
            results, next(iter(of_tiles), None), next(iter(compared), None), collections=inputs.collections
        ),
        tried_table(inputs.settings),
        *declared_tables(DECLARED, results.frame).get(ANCHOR, ()),
        *(collection_table(results, chip_split, inputs.collections) for chip_split in of_layouts),
        overhead_table(inputs.overheads, measured=False),
    ]
    shown_first = {
        f"{TPUGRAPHS}_table2",
        *(f"{TPUGRAPHS}_table8_{chip_split.name}" for chip_split in of_tiles),
    }
    return Section(
        anchor=ANCHOR,
        title="TpuGraphs: tile and layout models beside tpugraphs2023",
        label="TpuGraphs",
        paragraphs=_words(results, inputs, findings),
        figures=(
            *(
                page_figure(write(results, chip_split, figures)[0], ANCHOR, name, where=chip_split.title)
                for name, write, chip_splits in (
                    ("tile", write_tile_figure, of_tiles),
                    ("layout", write_layout_figure, compared),
                )
                for chip_split in chip_splits
            ),
        ),
        tables=tuple(tables),
        folded=tuple(table.name for table in tables if table.name not in shown_first),
    )


def _words(results: Results, inputs: TpuGraphsInputs, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Returns how the paper's claims were decided, what its best models reach here, and what is missing."""
    labels = printed_table(PAPER, "tile_variants").labels
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
        claims=Counter(
            finding.verdict for finding in claims_of_papers(findings) if finding.claim.paper == TPUGRAPHS
        ),
        tiles=tiles,
        layouts=layouts,
        compared=compared,
        model=LAYOUT_BEST,
        collections=inputs.collections,
        overheads=inputs.overheads,
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
    losses = {
        name: spread(
            error,
            select(
                frame,
                split=chip_split.split,
                chip=chip_split.chip,
                model=SKEWED[LAYOUT].default,
                group=name,
                metric=error.metric,
            )["value"].tolist(),
        )
        for name in COLLECTIONS
    }
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


def tpugraphs_pointer(results: Results) -> Pointer | None:
    """Returns the answer of the first screen; None without results."""
    answers = [
        *(("Tiles", _tile_errors(results, first), first.title) for first in tile_splits(results)[:1]),
        *(("Layouts", _layout_taus(results, first), first.title) for first in layout_splits(results)[:1]),
    ]
    answers = [answer for answer in answers if answer[1]]
    if not answers:
        return None
    answer = sentence(ANCHOR, "pointer_answer", answers=answers)
    return Pointer(sentence(ANCHOR, "pointer_question"), answer, ANCHOR)
