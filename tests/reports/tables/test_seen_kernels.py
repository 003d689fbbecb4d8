"""With and without the kernels that training has seen, by hand."""

from __future__ import annotations

import pytest

from costbench.reports.results import Cell
from costbench.reports.summary import summarise
from costbench.reports.tables.programs import (
    NEW_STRUCTURE,
    share_of_structures,
    structure_table,
    unseen_means,
    unseen_table,
)
from tests.reports.conftest import PROGRAMS, make_row, results_of_rows, rows_of


@pytest.fixture
def cells() -> tuple[Cell, Cell]:
    # Two of the three programs have unseen kernels: the learned model's APE doubles there, its tau halves.
    rnn = {"application": "RNN", "program": "rnn_gru_b128_train_f32"}
    draw = {"application": "ConvDRAW", "program": "convdraw_b64_train_f32"}
    unseen = [
        make_row(**program, kernels="unseen", metric=metric, value=value)
        for program, ape, tau in ((rnn, 8.0, 0.45), (draw, 2.0, 0.35))
        for metric, value in (("tile_size_ape", ape), ("kendall_tau", tau))
    ]
    counts = [
        make_row(**program, model="best", kernels=group, metric="kernels", value=value)
        for program, group, value in ((rnn, "all", 9.0), (rnn, "unseen", 7.0), (draw, "all", 5.0))
    ]
    results = results_of_rows([*rows_of(), *unseen, *counts])
    (cell,) = results.cells
    part = results.part(cell, "unseen")
    assert part is not None
    return cell, part


def test_rows_and_averages(cells: tuple[Cell, Cell]) -> None:
    table = unseen_table(*cells)
    rows = table.data.set_index("application").to_dict("index")
    assert (rows["RNN"]["kernels"], rows["RNN"]["unseen_kernels"]) == (9.0, 7.0)
    assert (rows["RNN"]["ape_learned"], rows["RNN"]["unseen_ape_learned"]) == (4.0, 8.0)
    assert rows["Own"]["unseen_ape_learned"] is None
    # Over the two programs that have both: 4 and 1 against 8 and 2.
    assert rows["Geometric mean"]["ape_learned"] == pytest.approx(2.0)
    assert rows["Geometric mean"]["unseen_ape_learned"] == pytest.approx(4.0)
    assert rows["Arithmetic mean"]["tau_learned"] == pytest.approx(0.8)
    assert rows["Median"]["unseen_tau_learned"] == pytest.approx(0.4)
    assert rows["Median"]["unseen_ape_analytical"] is None


def test_means_with_and_without_seen_kernels(cells: tuple[Cell, Cell]) -> None:
    cell, unseen = cells
    ((model, ape, tau),) = unseen_means(cell, unseen)
    assert (model, ape, tau) == ("learned", pytest.approx((2.0, 4.0)), pytest.approx((0.8, 0.4)))
    assert unseen_means(cell, None) == []


def test_shares_and_errors() -> None:
    counts = [
        make_row(model="best", application=a, program=p, metric="kernels", kernels=group, value=float(count))
        for group, numbers in (("all", (10, 20, 10)), (NEW_STRUCTURE, (5, 5)))
        for (a, p), count in zip(PROGRAMS, numbers, strict=False)
    ]
    new = [row for row in rows_of(kernels=NEW_STRUCTURE) if row.application != "Own"]
    results = results_of_rows([*rows_of(), *counts, *new])
    cell = results.cells[0]
    part = results.part(cell, NEW_STRUCTURE)
    table = structure_table(cell, part, "random")
    keys = [column.key for column in table.columns]
    assert keys[2:] == [
        "kernels",
        "known",
        *(f"{m}_{p}" for m in ("learned", "analytical", "random") for p in ("all", "new")),
    ]
    rows = {row[0]: row for row in table.rows}
    assert rows["ConvDRAW"][2:6] == (20.0, 75.0, 1.0, 1.0)
    # A program without kernels of new structure.
    assert rows["Own"][2:6] == (10.0, 100.0, 0.0, None)
    # Of 40 kernels 10 are new; 4 and 1 in the geometric mean, without the third program.
    assert rows["All, geometric mean"][2:6] == (40.0, 75.0, pytest.approx(2.0), pytest.approx(2.0))
    assert share_of_structures(cell, part) == pytest.approx(0.75)
    summary = summarise(results, {})
    assert summary["leakage/tile/random/tpu_v2/share_of_structures"] == pytest.approx(0.75)
    assert summary["tile/random/tpu_v2/learned/new_structure_ape_mean"] == pytest.approx(2.0)
    assert structure_table(cell, None, None).rows == ()
    assert share_of_structures(cell, None) is None
