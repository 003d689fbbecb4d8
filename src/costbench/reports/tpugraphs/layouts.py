"""tpugraphs2023's tables 2, 6 and 7: layout models by collection, variant and program, beside the paper's."""

from __future__ import annotations

from costbench.reports.papers.tpugraphs2023 import PrintedTable, printed_table
from costbench.reports.results import Results
from costbench.reports.table import Column, Table, Value
from costbench.reports.tpugraphs.variants import (
    COLLECTIONS,
    LAYOUT,
    LAYOUT_BEST,
    LAYOUT_VARIANTS,
    TAU,
    TILE,
    TILE_BEST,
    TOP_K,
    Place,
    kernel_mean,
    layout_mean,
    layout_scores,
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


def variants_table(results: Results, place: Place) -> Table:
    """Returns Table 6: training on segments and whole graphs, the losses, and chance on layout:xla:random."""
    paper = printed_table("layout_variants")
    rows = [
        (label, *_layout_means(results, place, LAYOUT_VARIANTS[label], "xla:random"), *_theirs(paper, label))
        for label in paper.labels
    ]
    title = f"Layout models on layout:xla:random, {place.title}, beside {paper.table} of {paper.paper}"
    names = ", ".join(f"{label} is {variant}" for label, variant in LAYOUT_VARIANTS.items())
    columns = (Column("model", "Model"), *_score_columns())
    name = f"{paper.paper}_table6_{place.name}"
    return Table(name, title, columns, tuple(rows), 0, (_DEFINITION, f"Variants of ours: {names}."))


_SHOWN = (
    ("gst", LAYOUT_BEST, "xla:random", "GST, random"),
    ("full", "full-listmle", "xla:random", "Full Graph, random"),
    ("mse", "gst-mse", "xla:random", "MSE loss, random"),
    ("default", LAYOUT_BEST, "xla:default", "GST, default"),
)


def programs_table(results: Results, place: Place) -> Table:
    """Returns Table 7: layout models by program of the xla collections; ours above, the paper's below."""
    paper = printed_table("layout_programs")
    columns = [Column("whose", "Whose"), Column("program", "Program")]
    scores: dict[str, dict[str, float]] = {}
    for key, variant, collection, title in _SHOWN:
        columns += [Column(f"tau_{key}", "τ", title, 2), Column(f"k1_{key}", "top-1 (%)", title, 1)]
        for metric, name in ((TAU, "tau"), (TOP_K[LAYOUT][0], "k1")):
            scores[f"{name}_{key}"] = layout_scores(results, place, variant, collection, metric)
    programs = sorted({program for own in scores.values() for program in own})
    rows: list[tuple[Value, ...]] = [
        ("ours", program, *(scores[column].get(program) for column in paper.columns)) for program in programs
    ]
    rows += [("paper", row.label, *row.values) for row in paper.rows]
    title = f"Layout models by program, {place.title}, beside {paper.table} of {paper.paper}"
    notes = ("Ours are test programs, theirs are validation programs.",)
    return Table(f"{paper.paper}_table7_{place.name}", title, tuple(columns), tuple(rows), 0, notes)


def collection_table(results: Results, place: Place) -> Table:
    """Returns all models of the layout task on each collection: means over its test programs.

    Columns are tau, the pooled pair accuracy (OPA) and the three top-K errors.
    """
    metrics = (TAU, "opa", *TOP_K[LAYOUT])
    found: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    programs: dict[str, set[str]] = {}
    for row in results.rows:
        if (row.task, row.split, row.chip) == (
            LAYOUT,
            place.split,
            place.chip,
        ) and row.kernels in COLLECTIONS:
            programs.setdefault(row.kernels, set()).add(row.program)
            if row.metric in metrics:
                own = found.setdefault((row.kernels, row.model, row.variant), {})
                own.setdefault(row.metric, []).append(row.value)
    columns = [Column("collection", "Collection"), Column("model", "Model"), Column("variant", "Variant")]
    columns += [Column("programs", "Programs", count=True)]
    titles = ("τ", "OPA", "top-1 (%)", "top-10 (%)", "top-100 (%)")
    columns += [
        Column(metric, title, "", 1 if metric.startswith("top") else 3)
        for metric, title in zip(metrics, titles, strict=True)
    ]
    rows = [
        (f"{LAYOUT}:{key[0]}", key[1], key[2], len(programs[key[0]]), *(_mean(own.get(m)) for m in metrics))
        for key, own in sorted(found.items(), key=lambda item: (COLLECTIONS.index(item[0][0]), *item[0]))
    ]
    title = f"Every model on each collection of layouts, {place.title}"
    return Table(f"tpugraphs_layouts_{place.name}", title, tuple(columns), tuple(rows), 0, (_DEFINITION,))


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None
