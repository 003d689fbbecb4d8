"""tpugraphs2023's table 2, beside the paper's, and every model on each collection of layouts."""

from __future__ import annotations

from costbench.reports.described_table import described_table
from costbench.reports.frame import number, select
from costbench.reports.papers.tpugraphs2023 import PrintedTable, printed_table
from costbench.reports.results import Results
from costbench.reports.table import Column, Table, Value
from costbench.reports.tpugraphs.variants import (
    COLLECTIONS,
    LAYOUT,
    LAYOUT_BEST,
    TAU,
    TILE,
    TILE_BEST,
    TOP_K,
    Place,
    kernel_mean,
    layout_frame,
    layout_mean,
)

_KEYS = ("tau", "k1", "k2", "k3")
_TITLES = ("τ", "top-K1", "top-K2", "top-K3")
_DEFINITION = (
    "τ: Kendall's tau-b between predicted and measured runtimes of a program's layout configs. Top-K: how "
    "much slower the fastest of the K configs predicted fastest is than the fastest of all, in percent. "
    "Both are means over programs; (K1, K2, K3) are (1, 10, 100) for layouts and (1, 5, 10) for tiles, "
    "whose errors are means over kernels. Ours are of test programs."
)


def _score_columns() -> list[Column]:
    columns = []
    for whose, parts in (("ours", ("test",)), ("paper", ("val", "test"))):
        for key, title in zip(_KEYS, _TITLES, strict=True):
            for part in parts:
                name = f"ours_{key}" if whose == "ours" else f"paper_{key}_{part}"
                header = title if whose == "ours" else f"{title} {part}"
                columns.append(Column(name, header, whose, 2 if key == "tau" else 1))
    return columns


def _theirs(paper: PrintedTable, label: str) -> list[Value]:
    return [paper.value(label, f"{key}_{part}") for key in _KEYS for part in ("val", "test")]


def _layout_means(results: Results, place: Place | None, variant: str, collection: str) -> list[Value]:
    if place is None:
        return [None] * len(_KEYS)
    metrics = (TAU, *TOP_K[LAYOUT])
    return [layout_mean(results, place, variant, collection, metric) for metric in metrics]


def best_table(results: Results, tiles: Place | None, layouts: Place | None) -> Table:
    """Returns Table 2: the paper's best model on each collection, ours beside it.

    Args:
        results: the rows.
        tiles: where tile models were tested; None where they were not.
        layouts: where layout models were.
    """
    paper = printed_table("best")
    rows: list[tuple[Value, ...]] = []
    for collection in COLLECTIONS:
        label = f"{LAYOUT}:{collection}"
        ours = _layout_means(results, layouts, LAYOUT_BEST, collection)
        rows.append((label, *ours, *_theirs(paper, label)))
    metrics = (TAU, *TOP_K[TILE])
    of_tiles = [None if tiles is None else kernel_mean(results, tiles, TILE_BEST, m) for m in metrics]
    rows.append(("tile:xla", *of_tiles, *_theirs(paper, "tile:xla")))
    where = " and ".join(
        f"{name} on the {place.title}" for name, place in (("tiles", tiles), ("layouts", layouts)) if place
    )
    title = f"The paper's best model on each collection, beside {paper.table} of {paper.paper}"
    notes = [
        _DEFINITION,
        f"Models: {LAYOUT_BEST} for layouts, {TILE_BEST} for tiles. Ours: {where or 'not run'}.",
    ]
    columns = (Column("collection", "Collection"), *_score_columns())
    return Table(f"{paper.paper}_table2", title, columns, tuple(rows), 0, tuple(notes))


def collection_table(results: Results, place: Place) -> Table:
    """Returns all models of the layout task on each collection: means over its test programs.

    Columns are tau, the pooled pair accuracy (OPA) and the three top-K errors.
    """
    metrics = (TAU, "opa", *TOP_K[LAYOUT])
    frame = select(layout_frame(results), split=place.split, chip=place.chip)
    programs = frame.groupby("group")["program"].nunique()
    values = select(frame, metric=metrics).groupby(["group", "model", "variant", "metric"])["value"]
    found = values.agg(lambda own: sum(own.tolist()) / len(own)).unstack("metric")
    rows = []
    for key, own in found.iterrows():
        group, model, variant = map(str, key)  # type: ignore[call-overload]
        scores = (number(own.get(metric)) for metric in metrics)
        rows.append((f"{LAYOUT}:{group}", model, variant, int(programs[group]), *scores))
    rows.sort(key=lambda row: (COLLECTIONS.index(row[0].partition(":")[2]), row[:3]))
    name = f"tpugraphs_layouts_{place.name}"
    return described_table("tpugraphs_layouts", rows, name=name, notes=(_DEFINITION,), where=place.title)
