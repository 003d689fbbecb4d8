"""Results of tpugraphs2023's models: its variants, collections and averages, and its tables 1 and 2.

Tile models are variants of the learned model called as in the paper's Table 8. Rows of the layout task name
the collection in their field `kernels` (`xla:random`), beside those over all collections of a program.
Tables 6 to 9 are declared beside what the paper printed (`papers/tpugraphs2023.yaml`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

import pandas as pd

from costbench.datasets.layout_graphs import CollectionSize
from costbench.metrics.rows import MAIN
from costbench.reports.dataset_files import Card
from costbench.reports.declarations import RowDeclaration, declaration_of
from costbench.reports.declared_tables import fill_table, kernel_counts, make_table, mean_over_kernels
from costbench.reports.frame import means, select
from costbench.reports.losses import SKEWED
from costbench.reports.papers.printed import printed_table
from costbench.reports.results import ALL, CEILINGS, FOLDS, ChipSplit, Results, split_order
from costbench.reports.table import Table

PAPER = "tpugraphs2023"
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
TAU = "kendall_tau"
PAPERS_POOL = 1_000
"""Configs of a program that the paper scores at most (section 3.3); so are ours."""
LARGEST_SHARE = 0.1
"""Largest share of a program's configs that K may be: that of the paper's largest K."""


def is_of_paper(variant: str) -> bool:
    """Returns whether a variant of the learned model is one of those that the paper's tables list."""
    return variant in {*printed_table(PAPER, "tile_variants").labels, *LAYOUT_VARIANTS.values()}


def tile_splits(results: Results) -> tuple[ChipSplit, ...]:
    """Returns where tile variants of the paper were tested, folds first, which test the most programs."""
    return _chip_splits(
        select(results.frame, task=TILE, variant=printed_table(PAPER, "tile_variants").labels)
    )


def layout_splits(results: Results) -> tuple[ChipSplit, ...]:
    """Returns where layout models were tested on some collection, folds first."""
    return _chip_splits(layout_frame(results))


def compared_splits(results: Results) -> tuple[ChipSplit, ...]:
    """Returns those of `layout_splits` where a layout network that the paper lists was tested."""
    return _chip_splits(select(layout_frame(results), variant=tuple(LAYOUT_VARIANTS.values())))


def layout_frame(results: Results) -> pd.DataFrame:
    """Returns the rows of layout models on the collections."""
    return select(results.frame, task=LAYOUT, group=COLLECTIONS)


def _chip_splits(frame: pd.DataFrame) -> tuple[ChipSplit, ...]:
    pairs: Iterable[tuple[str, str]] = frame.groupby(["split", "chip"]).groups  # type: ignore[assignment]
    chip_splits = [ChipSplit(split, chip) for split, chip in pairs]
    return tuple(
        sorted(chip_splits, key=lambda tested: (tested.split != FOLDS, split_order(tested.split), tested))
    )


def tile_frame(results: Results, chip_split: ChipSplit) -> pd.DataFrame:
    """Returns the rows of tile models over all kernels."""
    return select(results.frame, task=TILE, **asdict(chip_split), group=ALL)


def kernel_mean(results: Results, chip_split: ChipSplit, variant: str, metric: str) -> float | None:
    """Returns a tile metric averaged over the kernels of all test programs, each kernel counting alike.

    None where the variant was not tested, or no row says how many kernels there are.
    """
    frame = tile_frame(results, chip_split)
    rows = select(frame, model=MODEL, variant=variant, metric=metric)
    values = means(rows, ["application", "program"]).droplevel("application")
    return mean_over_kernels(values, kernel_counts(select(frame, variant=MAIN)))


def pool_sizes(collections: Sequence[CollectionSize]) -> dict[str, float]:
    """Returns the mean number of runs of a program that are scored, by collection as rows name it."""
    return {
        collection.name.removeprefix(f"{LAYOUT}:"): min(collection.samples / collection.graphs, PAPERS_POOL)
        for collection in collections
        if collection.graphs
    }


def without_large_k(results: Results, collections: Sequence[CollectionSize]) -> Results:
    """Returns the results without top-K errors where K is a large share of a program's configs.

    The best of 100 out of 215 configs says little about a model, and is no counterpart of the paper's 100
    out of 1,000. Of collections without a known size everything stays.

    Args:
        results: results of layout models.
        collections: sizes of the collections of layout graphs.
    """
    frame = results.frame
    is_large = pd.Series(False, index=frame.index)
    ks = {metric: int(metric.removeprefix("top_")) for metric in TOP_K[LAYOUT]}
    for collection, pool in pool_sizes(collections).items():
        large = [metric for metric, k in ks.items() if k > LARGEST_SHARE * pool]
        of_collection = (frame["task"] == LAYOUT) & (frame["group"] == collection)
        is_large |= of_collection & frame["metric"].isin(large)
    return Results(frame[~is_large])


def _words_on_pools(
    results: Results, chip_split: ChipSplit | None, collections: Sequence[CollectionSize]
) -> dict[str, object]:
    """Returns what notes say of the number of configs and of random orders."""
    sizes = [f"{pool:.0f} ({collection})" for collection, pool in pool_sizes(collections).items()]
    orders = 0
    if chip_split is not None:
        of_chance = select(layout_frame(results), **asdict(chip_split), model=SKEWED[LAYOUT].chance)
        orders = int(of_chance["seed"].nunique())
    return {"pools": f"Ours: {', '.join(sizes)} a program." if sizes else "", "orders": orders}


def layout_mean(
    results: Results, chip_split: ChipSplit, variant: str, collection: str, metric: str
) -> float | None:
    """Returns the mean of a layout metric over the programs of a collection, None where there are none.

    Args:
        results: results of layout models.
        chip_split: split and chip.
        variant: variant of the learned model, or `random` for that model.
        collection: collection such as `xla:random`.
        metric: metric of the rows.
    """
    model, named = (variant, MAIN) if variant == "random" else (MODEL, variant)
    frame = select(layout_frame(results), **asdict(chip_split), group=collection)
    values = means(select(frame, model=model, variant=named, metric=metric), ["program"])
    return float(values.to_numpy().mean()) if len(values) else None


def flat_collections(results: Results) -> dict[str, float]:
    """Returns means over programs by collection, for the summary.

    Keys are `layout/<split>/<chip>/<model>/<collection>/<metric>_mean`, models as in the rest of the summary
    (`learned@gst-listmle`).
    """
    frame = layout_frame(results)
    model = frame["model"].where(frame["variant"] == MAIN, frame["model"] + "@" + frame["variant"])
    values = means(frame.assign(model=model), ("split", "chip", "model", "group", "metric"))
    return {"/".join((LAYOUT, *key)) + "_mean": value for key, value in values.items()}  # type: ignore[misc]


def best_table(
    results: Results,
    tiles: ChipSplit | None,
    layouts: ChipSplit | None,
    collections: Sequence[CollectionSize] = (),
) -> Table:
    """Returns Table 2: the paper's best model on each collection, ours beside it.

    Args:
        results: results of tile and layout models.
        tiles: split and chip that tile models were tested on; None where they were not.
        layouts: split and chip that layout models were tested on; None where they were not.
        collections: sizes of the collections of layout graphs.
    """
    of_tiles = results.frame.iloc[:0] if tiles is None else tile_frame(results, tiles)
    of_layouts = select(layout_frame(results), **asdict(layouts)) if layouts else results.frame.iloc[:0]
    where = " and ".join(
        f"{name} on the {chip_split.title}"
        for name, chip_split in (("tiles", tiles), ("layouts", layouts))
        if chip_split
    )
    return make_table(
        declaration_of("tpugraphs2023_table2"),
        select(pd.concat([of_tiles, of_layouts]), model=(MODEL, SKEWED[LAYOUT].chance)),
        words={"where": where or "not run", **_words_on_pools(results, layouts, collections)},
        printed=printed_table(PAPER, "best"),
        kernels=kernel_counts(select(of_tiles, variant=MAIN)),
    )


def collection_table(
    results: Results, chip_split: ChipSplit, collections: Sequence[CollectionSize] = ()
) -> Table:
    """Returns all models of the layout task on each collection, over its test programs.

    Columns are tau, the pair accuracy (OPA) and the top-K errors, of which also how they are spread. Ceilings
    are marked, and follow the models of a collection.

    Args:
        results: results of layout models.
        chip_split: split and chip.
        collections: sizes of the collections of layout graphs.
    """
    frame = select(layout_frame(results), **asdict(chip_split))
    named = frame[["group", "model", "variant"]].drop_duplicates().itertuples(index=False, name=None)
    ordered = sorted(named, key=lambda row: (COLLECTIONS.index(row[0]), row[1] in CEILINGS, *row[1:]))
    cases = tuple(
        RowDeclaration(
            (f"{LAYOUT}:{group}", f"{model} (ceiling)" if model in CEILINGS else model, variant),
            {"group": group, "model": model, "variant": variant},
        )
        for group, model, variant in ordered
    )
    declared = declaration_of("tpugraphs_layouts", f"tpugraphs_layouts_{chip_split.name}")
    return make_table(
        replace(declared, rows=("collection", "model", "variant"), cases=cases),
        frame,
        words={"where": chip_split.title, **_words_on_pools(results, chip_split, collections)},
    )


def sizes_table(collections: Sequence[CollectionSize], cards: Sequence[Card], chip: str) -> Table:
    """Returns Table 1: how large the collections are, a row of ours below each of the paper's.

    Args:
        collections: sizes of the collections of layout graphs.
        cards: cards of all data sets; that of the tile task gives the row of tiles.
        chip: chip that samples were measured on.
    """
    paper = printed_table(PAPER, "collections")
    ours = {collection.name: asdict(collection) for collection in collections}
    for card in cards:
        if (card.task, card.chip) == (TILE, chip):
            ours["tile:xla"] = _tile_sizes(card)
    rows = []
    for row in paper.rows:
        rows.append({"collection": row.label, "whose": "paper", **paper.numbers(row)})
        if row.label in ours:
            rows.append({"collection": row.label, "whose": "ours", **ours[row.label]})
    absent = [label for label in paper.labels if label not in ours]
    note = f"Without data of ours: {', '.join(absent)}." if absent else ""
    return fill_table("tpugraphs2023_table1", rows, notes=(note,), chip=chip, printed=paper.name)


def _tile_sizes(card: Card) -> dict[str, float | None]:
    """Returns the row of the tile task; tile sizes of a kernel are all different."""
    sizes: dict[str, float | None] = {"graphs": card.kernels}
    sizes |= dict.fromkeys(("pairs", "samples"), card.configs)
    for key in ("nodes", "configs"):
        distribution = card.distributions.get(f"{key}_per_kernel")
        if distribution is not None:
            sizes |= {f"{key}_{part}": getattr(distribution, part) for part in ("mean", "min", "max")}
    return sizes
