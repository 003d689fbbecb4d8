"""tpugraphs2023's tables 8 and 9: tile models by loss, join and network, ours beside the paper's."""

from __future__ import annotations

from costbench.reports.papers.tpugraphs2023 import PrintedTable, printed_table
from costbench.reports.results import Results
from costbench.reports.table import Column, Table, Value
from costbench.reports.tpugraphs.variants import (
    LOSSES,
    MODEL,
    NETWORKS,
    OPA,
    TILE,
    TOP_K,
    Place,
    kernel_mean,
    kernels_of,
    tile_cell,
)

_KEYS = {"k1": "top-1", "k2": "top-5", "k3": "top-10"}
_OURS, _THEIRS = "Top-K error (%), ours", "Top-K error (%), paper"
_DEFINITION = (
    "Top-K error: how much slower the fastest of the K tile sizes predicted fastest is than the fastest "
    "of all, mean over the kernels of all programs, each counting alike. Ours are of test programs; what "
    "the paper says of models it says of its validation programs."
)


def variants_table(results: Results, place: Place) -> Table:
    """Returns Table 8: every loss and network on the tiles of one split and chip, beside the paper's errors.

    Variants that were not trained have no numbers of ours.
    """
    paper = printed_table("tile_variants")
    columns = [Column("loss", "Loss"), Column("model", "Model")]
    columns += [Column(f"ours_{key}", name, _OURS, 1) for key, name in _KEYS.items()]
    columns += [Column("ours_opa", "OPA", "Ours", 3)]
    columns += [
        Column(f"paper_{key}_{part}", f"{name} {part}", _THEIRS, 1)
        for key, name in _KEYS.items()
        for part in ("val", "test")
    ]
    rows = []
    for label in paper.labels:
        network, loss = label.rsplit("-", 1)
        ours: list[Value] = [kernel_mean(results, place, label, metric) for metric in (*TOP_K[TILE], OPA)]
        theirs = [paper.value(label, f"{key}_{part}") for key in _KEYS for part in ("val", "test")]
        rows.append((LOSSES[loss], NETWORKS[network], *ours, *theirs))
    absent = [label for label in paper.labels if tile_cell(results, place, label) is None]
    notes = [_DEFINITION, *([f"Not run: {', '.join(absent)}."] if absent else [])]
    title = f"Tile models by loss, join and network, {place.title}, beside {paper.table} of {paper.paper}"
    return Table(f"{paper.paper}_table8_{place.name}", title, tuple(columns), tuple(rows), 0, tuple(notes))


def programs_table(results: Results, place: Place) -> Table:
    """Returns Table 9: errors by program with ListMLE, ours above, the paper's validation programs below.

    There are rows of ours only for programs that some of the models were tested on.
    """
    paper = printed_table("tile_programs")
    shown = ("mlp", "early-gcn", "early-sage", "late-gcn", "late-sage")
    columns = [
        Column("whose", "Whose"),
        Column("program", "Program"),
        Column("kernels", "Kernels", count=True),
    ]
    for network in shown:
        columns += [
            Column(f"{key}_{network}", _KEYS[key], f"{NETWORKS[network]}, error (%)", 1)
            for key in ("k1", "k2")
        ]
    rows: list[tuple[Value, ...]] = [
        ("ours", program, kernels_of(results, place, program), *_errors(results, place, program, shown))
        for program in _programs(results, place, shown)
    ]
    rows += [("paper", row.label, *row.values) for row in _ordered(paper, shown).rows]
    title = f"Tile models by program, ListMLE, {place.title}, beside {paper.table} of {paper.paper}"
    notes = (
        "The error of a program is the mean over its kernels. Theirs are validation programs, in whole "
        "percents.",
    )
    return Table(f"{paper.paper}_table9_{place.name}", title, tuple(columns), tuple(rows), 0, notes)


def _errors(results: Results, place: Place, program: str, networks: tuple[str, ...]) -> list[Value]:
    cells = [tile_cell(results, place, f"{network}-listmle") for network in networks]
    return [
        None if cell is None else cell.score(MODEL, metric, program)
        for cell in cells
        for metric in TOP_K[TILE][:2]
    ]


def _programs(results: Results, place: Place, networks: tuple[str, ...]) -> list[str]:
    cells = [tile_cell(results, place, f"{network}-listmle") for network in networks]
    return sorted({program for cell in cells if cell is not None for _, program in cell.programs})


def _ordered(paper: PrintedTable, networks: tuple[str, ...]) -> PrintedTable:
    """Returns the printed table with its columns in the order of ours: kernels, then two a network."""
    expected = ("kernels", *(f"{key}_{network}" for network in networks for key in ("k1", "k2")))
    assert paper.columns == expected, "the data file has the columns of this table"
    return paper
