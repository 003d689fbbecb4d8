"""What each difference to lpm2021's model is worth, beside that model."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.results import Results, load_results
from costbench.reports.tables.variants import ablation_tables, differences_tables, known_differences
from tests.reports.test_standings import model_rows


def _results(folder: Path, *, base: bool = True) -> Results:
    rows = [
        *model_rows("learned", [10.0] * 6),
        *model_rows("learned", [14.0] * 6, variant="lpm2021-plus-huber"),
        *model_rows("learned", [18.0] * 6, variant="lpm2021-plus-something"),
        *(model_rows("lpm2021", [16.0] * 6) if base else ()),
    ]
    write_rows(folder / "r.jsonl", rows)
    return load_results(folder / "r.jsonl")


def test_each_difference_has_a_row_with_its_effect(tmp_path: Path) -> None:
    (table,) = differences_tables(_results(tmp_path), 0)
    assert table.name == "differences_fusion_random_tpu_v3"
    keys = [column.key for column in table.columns]
    shown = [
        [table.text(i, keys.index(k)) for k in ("variant", "mape_ge5us")] for i in range(len(table.rows))
    ]
    assert shown == [
        ["lpm2021", "16.0"],
        ["lpm2021-plus-huber", "14.0"],
        ["lpm2021-plus-something", "18.0"],
        ["main", "10.0"],
    ]
    texts = {one.name: one.text for one in known_differences()}
    assert table.rows[1][1] == f"+ {texts['huber']}"
    # What is not described goes by its name.
    assert table.rows[2][1] == "+ something"
    effects = ("mape_ge5us_effect", "mape_ge5us_low", "mape_ge5us_high", "tau_ge5us_effect")
    assert [table.text(0, keys.index(key)) for key in effects] == ["–"] * 4
    assert [table.text(1, keys.index(key)) for key in effects] == ["-2.00", "-2.00", "-2.00", "0.000"]
    assert table.text(3, keys.index("mape_ge5us_effect")) == "-6.00"


def test_variants_are_compared_at_their_own_budget(tmp_path: Path) -> None:
    rows = [
        *model_rows("lpm2021", [16.0] * 6),
        *model_rows("learned", [10.0] * 6),
        *model_rows("learned", [20.0] * 6, variant="lpm2021-base"),
        *model_rows("learned", [15.0] * 6, variant="lpm2021-plus-all"),
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    (table,) = differences_tables(load_results(tmp_path / "r.jsonl"), 0)
    assert [row[0] for row in table.rows] == ["lpm2021-base", "lpm2021-plus-all"]
    keys = [column.key for column in table.columns]
    assert table.text(1, keys.index("mape_ge5us_effect")) == "-5.00"


def test_without_the_base_there_is_no_table(tmp_path: Path) -> None:
    assert differences_tables(_results(tmp_path, base=False), 0) == ()


def test_differences_are_not_among_the_other_variants(tmp_path: Path) -> None:
    assert ablation_tables(_results(tmp_path)) == ()
