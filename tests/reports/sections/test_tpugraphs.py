"""The section shows what exists and says what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from costbench.reports.claims.claim import load_claims
from costbench.reports.claims.evaluation import HOLDS, NOT_EVALUATED, Finding
from costbench.reports.page import Section
from costbench.reports.results import Results
from costbench.reports.sections.tpugraphs import tpugraphs_pointer, tpugraphs_section
from tests.reports.conftest import report_data, results_of_rows, rows_of
from tests.reports.tpugraphs_rows import layout_rows, tile_rows
from tests.sentences import numbers

OF_PAPER = [claim for claim in load_claims() if claim.paper == "tpugraphs2023"]
FINDINGS = (Finding(OF_PAPER[0], HOLDS, 1.0, 0.5, 1.5, n=8), Finding(OF_PAPER[1], NOT_EVALUATED))
TILES = {"early-sage-listmle": [2.0, 10.0], "late-sage-listmle": [20.0, 100.0]}
LAYOUTS = {("gst-listmle", "xla:random"): [0.2, 0.6], ("gst-listmle", "xla:default"): [0.1, 0.2]}


def _section(folder: Path, results: Results) -> Section | None:
    return tpugraphs_section(report_data(folder, rows_of(), results=results, findings=FINDINGS))


def test_without_results_there_is_no_section(tmp_path: Path) -> None:
    results = results_of_rows(rows_of())
    assert _section(tmp_path, results) is None
    assert tpugraphs_pointer(results) == ()


def test_tiles_alone_say_what_layouts_lack(tmp_path: Path) -> None:
    results = results_of_rows(tile_rows(TILES))
    section = _section(tmp_path, results)
    assert section is not None
    # Claims of the paper, and how many hold and do not.
    assert numbers(section.paragraphs[0])[:3] == [2, 1, 1]
    # The tile size at every node, and joined after the network.
    assert numbers(section.paragraphs[1].replace("top-1", "").replace("%", " ")) == [8.0, 80.0]
    text = " ".join(section.paragraphs)
    for missing in ("early-gcn-listmle", "Table 1 (layouts)", "Table 10"):
        assert missing in text
    names = [table.name.removeprefix("tpugraphs2023_") for table in section.tables]
    tables = ["table1", "table2", "table5", "table8_random_tpu_v3", "table9_random_tpu_v3", "table10"]
    assert names == tables
    assert set(section.folded) == {f"tpugraphs2023_{name}" for name in ("table1", "table5", *tables[4:])}
    assert [figure.path.name for figure in section.figures] == ["tpugraphs2023_figure5_random_tpu_v3.svg"]
    (pointer,) = tpugraphs_pointer(results)
    assert pointer.anchor == section.anchor
    assert numbers(pointer.answer.replace("top-1", "").replace("%", " ")) == [8.0, 80.0]


def test_layouts_have_tables_and_a_figure(tmp_path: Path) -> None:
    results = results_of_rows(tile_rows(TILES), layout_rows(LAYOUTS))
    section = _section(tmp_path, results)
    assert section is not None
    names = {table.name for table in section.tables}
    assert names >= {"tpugraphs2023_table6_random_tpu_v3", "tpugraphs2023_table7_random_tpu_v3"}
    assert (tmp_path / "layout_tau_random_tpu_v3.png").is_file()
    # Means of tau of the two collections, and what has no results.
    assert [0.4, 0.15] in [numbers(text) for text in section.paragraphs]
    (missing,) = (text for text in section.paragraphs if "full-listmle" in text)
    assert "nlp:random" in missing


def test_layouts_say_what_there_is_to_gain_and_what_chance_does(tmp_path: Path) -> None:
    default = layout_rows({("main", "xla:random"): [0.5] * 4}, "default_first")
    losses = iter([0.0, 2.0, 8.0, 30.0])
    default = [replace(row, value=next(losses)) if row.metric == "top_1" else row for row in default]
    chance = layout_rows({("main", "xla:random"): [0.0, 0.0]}, "random")
    results = results_of_rows(layout_rows(LAYOUTS), default, chance)
    section = _section(tmp_path, results)
    assert section is not None
    told = [numbers(text.replace("%", " ")) for text in section.paragraphs]
    # Arithmetic mean and median; 75% of programs gain more than 1%, 25% more than 10%.
    assert [10.0, 5.0, 75, 1, 25, 10] in [told_numbers[-6:] for told_numbers in told]
    # The best of ten: the network's, and at random.
    assert [5.0, 5.0] in [told_numbers[-2:] for told_numbers in told]


def test_layouts_without_the_papers_networks_stand_by_themselves(tmp_path: Path) -> None:
    own = {("main", "xla:random"): [0.2, 0.6], ("gcn", "xla:random"): [0.1, 0.3]}
    results = results_of_rows(layout_rows(own))
    section = _section(tmp_path, results)
    assert section is not None
    names = [table.name for table in section.tables if table.name.endswith("_random_tpu_v3")]
    assert names == ["tpugraphs_layouts_random_tpu_v3"]
    assert section.figures == ()
