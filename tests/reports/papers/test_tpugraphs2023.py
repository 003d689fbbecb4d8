"""The paper's numbers agree with each other as far as they should."""

from __future__ import annotations

from typing import get_args

import pytest

from costbench.reports.papers.printed import (
    PrintedRow,
    PrintedTable,
    TableName,
    printed_table,
    tried_settings,
)


@pytest.mark.parametrize("name", get_args(TableName))
def test_every_table_has_numbers_under_every_label_once(name: TableName) -> None:
    table = printed_table(name)
    assert len(set(table.labels)) == len(table.labels)
    assert table.paper == "tpugraphs2023"


def test_table_8_is_table_9_weighed_by_kernels() -> None:
    programs, variants = printed_table("tile_programs"), printed_table("tile_variants")
    kernels = [programs.value(label, "kernels") or 0.0 for label in programs.labels]
    assert sum(kernels) == 676
    for network in ("mlp", "early-gcn", "early-sage", "late-gcn", "late-sage"):
        errors = [programs.value(label, f"k1_{network}") or 0.0 for label in programs.labels]
        mean = sum(k * e for k, e in zip(kernels, errors, strict=True)) / 676
        # Errors by program are printed in whole percents.
        assert mean == pytest.approx(variants.value(f"{network}-listmle", "k1_val"), abs=0.7)


def test_table_2_has_the_best_line_of_table_8() -> None:
    best, variants = printed_table("best"), printed_table("tile_variants")
    for column in variants.columns:
        assert best.value("tile:xla", column) == variants.value("early-sage-listmle", column)


def test_pairs_of_layouts_add_up_to_those_of_table_3() -> None:
    table = printed_table("collections")
    pairs = [table.value(label, "pairs") or 0 for label in table.labels if label.startswith("layout")]
    assert sum(pairs) == 31_091_253


def test_the_range_of_table_10_follows_from_its_rows() -> None:
    """94 to 2400 are printed; counted with feature extraction and single inference, 94 to 2,647."""
    table = printed_table("overhead")
    ratios = []
    for label in table.labels:
        times = {column: table.value(label, column) or 0.0 for column in table.columns}
        ratios.append((times["compile_s"] + times["run_s"]) / (times["extraction_s"] + times["single_s"]))
    assert min(ratios) == pytest.approx(94, abs=1)
    assert max(ratios) == pytest.approx(2647, abs=1)


def test_what_is_not_there_is_none() -> None:
    assert printed_table("best").value("tile:xla", "tau_val") is None
    assert printed_table("best").value("layout:x", "tau_val") is None
    assert [row.parameter for row in tried_settings().rows][:2] == ["opcode embedding size", "hidden size"]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a: 1 values for 2 columns"):
        PrintedTable("p", "Table 1", ("x", "y"), (PrintedRow("a", (1.0,)),))
