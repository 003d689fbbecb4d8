"""What of the result rows belongs to tpugraphs2023: its variants, its collections, its averages.

Tile models are variants of the learned model called as in the paper's Table 8. Rows of the layout task name
the collection in their field `kernels` (`xla:random`), beside those over all collections of a program
(`all`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from costbench.metrics.rows import MAIN
from costbench.reports.frame import means, select
from costbench.reports.papers.tpugraphs2023 import printed_table
from costbench.reports.results import BEST, FOLDS, SPLIT_NAMES, Cell, Results, split_order

MODEL = "learned"
TILE, LAYOUT = "tile", "layout"
LOSSES: Mapping[str, str] = {"listmle": "ListMLE", "mse": "MSE"}
NETWORKS: Mapping[str, str] = {
    "early-sage": "EarlySAGE",
    "early-gcn": "EarlyGCN",
    "late-sage": "LateSAGE",
    "late-gcn": "LateGCN",
    "mlp": "MLP",
}
TILE_BEST = "early-sage-listmle"
"""The paper's best tile model, in its Table 2."""
LAYOUT_BEST = "gst-listmle"
"""The layout model of its Table 2: graph segment training."""
LAYOUT_VARIANTS: Mapping[str, str] = {
    "GST": LAYOUT_BEST,
    "Full Graph": "full-listmle",
    "MSE loss": "gst-mse",
    "Random": "random",
}
"""Label in Table 6 to the variant of ours, or to the model `random`."""
COLLECTIONS = ("xla:random", "xla:default", "nlp:random", "nlp:default")
"""Collections of layouts, as rows name them, in the order of Table 2."""
TOP_K: Mapping[str, tuple[str, str, str]] = {
    TILE: ("kernel_top_1", "kernel_top_5", "kernel_top_10"),
    LAYOUT: ("top_1", "top_10", "top_100"),
}
"""Metrics of the paper's K1, K2 and K3, in percent."""
TAU, OPA = "kendall_tau", "opa"


def is_of_paper(variant: str) -> bool:
    """Whether a variant of the learned model is one of those that the paper's tables list."""
    return variant in {*printed_table("tile_variants").labels, *LAYOUT_VARIANTS.values()}


@dataclass(frozen=True, order=True)
class Place:
    """A split and a chip that variants were tested on."""

    split: str
    chip: str

    @property
    def name(self) -> str:
        """`random_tpu_v3`: names files."""
        return f"{self.split}_{self.chip}"

    @property
    def title(self) -> str:
        """`random split, tpu_v3`."""
        return f"{SPLIT_NAMES.get(self.split, self.split)}, {self.chip}"


def tile_places(results: Results) -> tuple[Place, ...]:
    """Returns where tile variants of the paper were tested, folds first, which test the most programs."""
    labels = set(printed_table("tile_variants").labels)
    found = {
        Place(cell.split, cell.chip)
        for cell in results.variants
        if cell.task == TILE and cell.variant in labels
    }
    return _ordered(found)


def layout_places(results: Results) -> tuple[Place, ...]:
    """Returns where layout models were tested on some collection, folds first."""
    return _ordered(_places(layout_frame(results)))


def compared_places(results: Results) -> tuple[Place, ...]:
    """Returns those of `layout_places` where a layout network that the paper lists was tested."""
    return _ordered(_places(select(layout_frame(results), variant=tuple(LAYOUT_VARIANTS.values()))))


def layout_frame(results: Results) -> pd.DataFrame:
    """Returns the rows of layout models on the collections."""
    return select(results.frame, task=LAYOUT, group=COLLECTIONS)


def _places(frame: pd.DataFrame) -> set[Place]:
    return {Place(*pair) for pair in frame[["split", "chip"]].drop_duplicates().itertuples(index=False)}


def _ordered(places: set[Place]) -> tuple[Place, ...]:
    def rank(place: Place) -> tuple[bool, int, Place]:
        return (place.split != FOLDS, split_order(place.split), place)

    return tuple(sorted(places, key=rank))


def kernel_mean(results: Results, place: Place, variant: str, metric: str) -> float | None:
    """Returns a tile metric averaged over the kernels of all test programs, each kernel counting alike.

    That is the sum over programs of kernels x the program's mean, over the number of kernels; None where the
    variant was not tested.
    """
    cell = results.cell(TILE, place.split, place.chip, variant)
    if cell is None:
        return None
    pairs = [
        (value, weight)
        for _, program in cell.programs
        if (value := cell.score(MODEL, metric, program)) is not None
        and (weight := kernels_of(results, place, program)) is not None
    ]
    if not pairs:
        return None
    values, weights = np.array(pairs).T
    return float((values * weights).sum() / weights.sum())


def kernels_of(results: Results, place: Place, program: str) -> float | None:
    """Returns the number of tested kernels of a program, or None where no row says."""
    cell = results.cell(TILE, place.split, place.chip)
    return None if cell is None else cell.score(BEST, "kernels", program)


def tile_cell(results: Results, place: Place, variant: str) -> Cell | None:
    """Returns the results of a tile variant."""
    return results.cell(TILE, place.split, place.chip, variant)


def layout_scores(
    results: Results, place: Place, variant: str, collection: str, metric: str
) -> dict[str, float]:
    """Returns a layout metric by program of a collection, seeds averaged.

    Args:
        results: has the rows.
        place: split and chip.
        variant: of the learned model, or `random` for that model.
        collection: such as `xla:random`.
        metric: of the rows.
    """
    model, named = (variant, MAIN) if variant == "random" else (MODEL, variant)
    where = {"split": place.split, "chip": place.chip, "group": collection}
    rows = select(results.frame, task=LAYOUT, model=model, variant=named, metric=metric, **where)
    return means(rows, ["program"]).to_dict()  # type: ignore[return-value]


def flat_collections(results: Results) -> dict[str, float]:
    """Returns means over programs by collection, for the summary.

    Keys are `layout/<split>/<chip>/<model>/<collection>/<metric>_mean`, models as in the rest of the summary
    (`learned@gst-listmle`).
    """
    frame = layout_frame(results)
    model = frame["model"].where(frame["variant"] == MAIN, frame["model"] + "@" + frame["variant"])
    found = means(frame.assign(model=model), ("split", "chip", "model", "group", "metric"))
    return {"/".join((LAYOUT, *key)) + "_mean": value for key, value in found.items()}  # type: ignore[misc]


def layout_mean(results: Results, place: Place, variant: str, collection: str, metric: str) -> float | None:
    """Returns the mean over programs of `layout_scores`, or None where there are none."""
    values = list(layout_scores(results, place, variant, collection, metric).values())
    return float(np.mean(values)) if values else None
