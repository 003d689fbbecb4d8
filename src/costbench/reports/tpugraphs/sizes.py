"""tpugraphs2023's tables 1 and 5: sizes of the collections and hyper-parameters, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from costbench.datasets.layout_graphs import CollectionSize
from costbench.reports.dataset_files import Card
from costbench.reports.described_table import described_table
from costbench.reports.papers.tpugraphs2023 import printed_settings, printed_table
from costbench.reports.table import Column, Table, Value
from costbench.reports.tables.training import setting, shown_setting
from costbench.reports.tpugraphs.variants import LAYOUT, TILE

_HEADERS: Mapping[str, tuple[str, str]] = {
    "graphs": ("programs or kernels", ""),
    "nodes_mean": ("mean", "Nodes"),
    "nodes_min": ("least", "Nodes"),
    "nodes_max": ("most", "Nodes"),
    "configs_mean": ("mean", "Configs of each"),
    "configs_min": ("fewest", "Configs of each"),
    "configs_max": ("most", "Configs of each"),
    "pairs": ("Pairs", ""),
    "samples": ("Samples", ""),
}


def sizes_table(collections: Sequence[CollectionSize], cards: Sequence[Card], chip: str) -> Table:
    """Returns Table 1: how large the collections are, a row of ours below each of the paper's.

    Args:
        collections: of layout graphs.
        cards: of all data sets; that of the tile task gives the row of tiles.
        chip: that samples were measured on.
    """
    paper = printed_table("collections")
    ours = {one.name: asdict(one) for one in collections}
    for card in cards:
        if (card.task, card.chip) == (TILE, chip):
            ours["tile:xla"] = _of_tiles(card)
    columns = [Column("collection", "Collection"), Column("whose", "Whose")]
    columns += [Column(key, *_HEADERS[key], decimals=1, count=True) for key in paper.columns]
    rows: list[tuple[Value, ...]] = []
    for row in paper.rows:
        rows.append((row.label, "paper", *row.values))
        if row.label in ours:
            rows.append((row.label, "ours", *(ours[row.label].get(key) for key in paper.columns)))
    absent = [label for label in paper.labels if label not in ours]
    notes = [
        "Pairs: different configs of different programs (or tile sizes of kernels); samples: measurements."
    ]
    if absent:
        notes.append(f"Without data of ours: {', '.join(absent)}.")
    title = f"Sizes of the collections, {chip}, beside {paper.table} of {paper.paper}"
    return Table(f"{paper.paper}_table1", title, tuple(columns), tuple(rows), 0, tuple(notes))


def _of_tiles(card: Card) -> dict[str, float | None]:
    """Returns the row of the tile task; tile sizes of a kernel are all different."""
    nodes, configs = (card.distributions.get(name) for name in ("nodes_per_kernel", "configs_per_kernel"))
    found: dict[str, float | None] = {"graphs": card.kernels, "pairs": card.configs}
    found["samples"] = card.configs
    for key, distribution in (("nodes", nodes), ("configs", configs)):
        if distribution is not None:
            for part in ("mean", "min", "max"):
                found[f"{key}_{part}"] = getattr(distribution, part)
    return found


def tuned_table(settings: Mapping[str, object]) -> Table:
    """Returns Table 5: the values that the paper tried beside those of our variants.

    Args:
        settings: task -> variant -> its parameters of training, for the tasks that have variants.
    """
    paper = printed_settings()
    rows = tuple(
        (
            row.parameter,
            _values(settings.get(LAYOUT), row.setting),
            row.layout,
            _values(settings.get(TILE), row.setting),
            row.tile,
        )
        for row in paper.rows
    )
    return described_table("tpugraphs2023_table5", rows, printed=f"{paper.table} of {paper.paper}")


def _values(variants: object, path: str) -> str:
    """Returns the different values of a setting over variants, in order: `listmle, mse`."""
    if not isinstance(variants, Mapping) or not variants:
        return "–"
    if not path:
        return "Adam"
    values = (_value(one, path) for one in variants.values())
    return ", ".join(dict.fromkeys(value for value in values if value != "–")) or "–"


def _value(variant: object, path: str) -> str:
    if path == "iterations":
        numbers = [setting(variant, key) for key in ("epochs", "batch.per_epoch")]
        return str(numbers[0] * numbers[1]) if all(isinstance(one, int) for one in numbers) else "–"  # type: ignore[operator]
    if path == "batch":
        return " x ".join(shown_setting(setting(variant, f"batch.{key}")) for key in ("kernels", "configs"))
    return shown_setting(setting(variant, path))
