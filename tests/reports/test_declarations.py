"""Tables from ten lines of YAML, worked out by hand, and what is wrong with a declaration."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import ParamsError
from costbench.reports.declared_tables import declared_tables
from costbench.reports.frame import frame_of
from tests.reports.conftest import make_row, rows_of

YAML = """
tables:
- name: errors_{split}_{chip}
  title: "Errors, {where}"
  each: [split, chip]
  filter: {task: tile, group: all, metric: tile_size_ape}
  rows: [application, program]
  across: model
  decimals: 1
  better: lower
  summary: [median]
  notes: ["Not run: {absent}.", "Percent."]
"""
BESIDE = """
tables:
- name: beside
  title: "Beside {printed}"
  section: claims
  filter: {task: tile, split: random}
  printed: theirs
  rows: [model]
  cases:
  - {labels: [Ours], filter: {model: learned}, printed: Theirs}
  - {labels: [Nobody], filter: {model: nobody}}
  columns:
  - {key: ape, header: "APE (%)", group: ours, filter: {metric: tile_size_ape}, statistic: max}
  - {key: number, count: true, filter: {metric: tile_size_ape}, statistic: programs}
  - {key: paper, group: paper, printed: ape}
  notes: ["Not run: {absent}."]
theirs:
  paper: somebody2026
  table: Table 1
  columns: [ape]
  rows:
  - {label: Theirs, values: [7.5]}
"""


def test_ten_lines_are_a_table_for_each_split_and_chip(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(YAML)
    frame = frame_of([*rows_of("manual", "tpu_v3"), *rows_of(), *rows_of(seed=1)])
    first, second = declared_tables(path, frame)["tables"]
    assert (first.name, second.name) == ("errors_random_tpu_v2", "errors_manual_tpu_v3")
    assert first.title == "Errors, random split, tpu_v2"
    assert [column.header for column in first.columns[2:]] == ["analytical", "learned", "random"]
    assert first.rows == (
        ("ConvDRAW", "convdraw_b64_train_f32", 8.0, 1.0, 300.0),
        ("Own", "user_mine", 5.0, 0.0, 100.0),
        ("RNN", "rnn_gru_b128_train_f32", 2.0, 4.0, 200.0),
        ("Median", "", 5.0, 1.0, 200.0),
    )
    assert first.is_best(0, 3)
    assert first.notes == ("Percent.",)


def test_numbers_of_a_paper_stand_beside_ours(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(BESIDE)
    (table,) = declared_tables(path, frame_of(rows_of()))["claims"]
    assert table.title == "Beside Table 1 of somebody2026"
    assert table.rows == (("Ours", 4.0, 3.0, 7.5), ("Nobody", None, None, None))
    assert table.notes == ("Not run: Nobody.",)


def test_kernels_are_weights(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(BESIDE.replace("statistic: max", "statistic: kernel_mean"))
    counts = [
        make_row(program=p, model="best", metric="kernels", value=n) for p, n in (("a", 1.0), ("b", 3.0))
    ]
    errors = [make_row(program=p, value=value) for p, value in (("a", 8.0), ("b", 4.0), ("c", 100.0))]
    (table,) = declared_tables(path, frame_of([*counts, *errors]))["claims"]
    assert table.rows[0][1] == 5.0


def test_without_results_there_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(YAML.replace("task: tile", "task: fusion"))
    assert declared_tables(path, frame_of(rows_of())) == {"tables": ()}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("task: tile", "tusk: tile", "tusk: no column of results"),
        ("across: model", "columns: []", "give the columns"),
        ("[median]", "[middle]", "summary"),
        ("decimals: 1", "digits: 1", "digits"),
        ("tables:", "table:", "tables"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, before: str, after: str, told: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(YAML.replace(before, after))
    with pytest.raises(ParamsError, match=told):
        declared_tables(path, frame_of(rows_of()))


MEASURED = """
tables:
- name: by_model
  title: "Errors of each model"
  filter: {task: tile, split: random, group: all, variant: main}
  rows: [model]
  columns:
  - {key: "{short}_mean", group: "{measure}", measure: error, statistic: geometric_mean}
  - {key: runs, statistic: seeds, filter: {metric: tile_size_ape}}
  - {key: highest, over_seeds: max, scale: percent, filter: {metric: kendall_tau},
     statistic: max, averages: []}
  - {key: absent, optional: absent, filter: {metric: nothing}}
  summary: [mean]
"""


def test_columns_show_measures_of_the_task_and_are_left_out_without_results(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MEASURED)
    frame = frame_of([*rows_of(), *rows_of(seed=1)])
    (table,) = declared_tables(path, frame)["tables"]
    assert [column.key for column in table.columns] == ["model", "ape_mean", "runs", "highest"]
    assert (table.columns[1].group, table.columns[1].decimals) == ("Tile-Size APE (%)", 1)
    learned = next(row for row in table.rows if row[0] == "learned")
    # 4, 1 and 0, of which zero counts as 0.05.
    assert learned[1] == pytest.approx(0.2 ** (1 / 3))
    assert learned[2:] == (2, pytest.approx(90.0))
    assert table.rows[-1][0] == "Arithmetic mean"
    assert table.rows[-1][3] is None


INTERVALS = """
tables:
- name: against_trees
  title: "Each model less boosted trees"
  filter: {task: tile, split: random, group: all, metric: tile_size_ape}
  rows: [model]
  columns:
  - {key: mean, statistic: mean}
  - {key: mean_low, statistic: mean, interval: low}
  - {key: mean_high, statistic: mean, interval: high}
  - {key: difference, statistic: mean, against: {model: trees}}
  - {key: low, statistic: mean, against: {model: trees}, interval: low}
  - {key: high, statistic: mean, against: {model: trees}, interval: high}
  - {key: won, statistic: share_won, scale: percent, against: {model: trees}}
"""


def test_intervals_are_over_programs_and_differences_over_those_of_both(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(INTERVALS)
    errors = {"learned": [3.0, 5.0, 4.0, 9.0], "trees": [1.0, 3.0, 4.0]}
    rows = [
        make_row(program=f"p{i}", model=model, value=value)
        for model, values in errors.items()
        for i, value in enumerate(values)
    ]
    (table,) = declared_tables(path, frame_of(rows))["tables"]
    (learned, trees) = table.rows
    assert learned[1] == pytest.approx(5.25)
    assert learned[2] < 5.25 < learned[3]
    # Over the three programs of both 4 less 8 / 3; a tie is half won.
    assert learned[4] == pytest.approx(4.0 - 8.0 / 3.0)
    assert learned[5] < learned[4] < learned[6]
    assert learned[7] == pytest.approx(100.0 / 6.0)
    # Nothing is compared with itself.
    assert trees[4:] == (None, None, None, None)
    again, other = (declared_tables(path, frame_of(rows), seed)["tables"][0].rows[0] for seed in (0, 1))
    assert again == learned
    assert other[2] != learned[2]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("share_won, scale: percent, against: {model: trees}", "share_won", "won: programs are won against"),
        ("statistic: mean, interval: low", "statistic: sum, interval: low", "mean_low: only mean"),
        ("against: {model: trees}", "against: {brand: trees}", "brand: no column of results"),
    ],
)
def test_what_has_no_interval_is_told(tmp_path: Path, before: str, after: str, told: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(INTERVALS.replace(before, after, 1))
    with pytest.raises(ParamsError, match=told):
        declared_tables(path, frame_of([]))


BLOCKS = """
tables:
- name: by_group
  title: "All kernels and those of a kind"
  filter: {task: tile, split: random, metric: tile_size_ape}
  rows: [application, program]
  values: {model: {random: chance, learned: a network}}
  headers: {mean: Together}
  columns:
  - {key: "{value}_all", header: all, group: "{title}", across: model, block: models, filter: {group: all}}
  - {key: "{value}_seen", group: "{title}", across: model, block: models, filter: {group: seen}}
  summary: [mean]
"""


def test_columns_of_a_block_stand_together_for_each_value(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(BLOCKS)
    (table,) = declared_tables(path, frame_of(rows_of()))["tables"]
    shown = [(column.key, column.header, column.group) for column in table.columns[2:]]
    assert shown == [
        ("random_all", "all", "chance"),
        ("random_seen", "chance", "chance"),
        ("learned_all", "all", "a network"),
        ("learned_seen", "a network", "a network"),
    ]
    assert table.rows[-1][0] == "Together"
