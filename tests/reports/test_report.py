"""The whole report from files, twice: the same bytes, and everything that it links to."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.artifacts import digest_files
from costbench.errors import DataError
from costbench.metrics.rows import RowOrigin, write_rows
from costbench.reports.claims.claim import Claim, Side
from costbench.reports.claims.evaluation import Finding
from costbench.reports.extension import RenderedPart, ReportPart
from costbench.reports.inputs import ReportInputs, ReportParams
from costbench.reports.page import Section
from costbench.reports.report import ReportFiles, write_report
from tests.reports.conftest import fusion_rows, rows_of, variant_rows
from tests.reports.evidence_files import write_evidence
from tests.reports.search_rows import fusion_search_rows, tile_rows


def _inputs(folder: Path) -> ReportInputs:
    write_rows(folder / "rows.jsonl", [*rows_of(), *rows_of("manual", "tpu_v3")])
    evidence = write_evidence(folder)
    return ReportInputs(
        rows=(folder / "rows.jsonl",),
        split=folder,
        histories={"tile-random-tpu_v2-s0": evidence.history},
        provenance={"profile": "test"},
        params=ReportParams(0, {"tile": "val_tau"}, ""),
    )


def _text(written: ReportFiles) -> str:
    """Returns the text of all pages."""
    return "".join(path.read_text() for path in written.pages)


def _check_links(written: ReportFiles) -> None:
    """What pages link to and show is there, on other pages too."""
    for page in written.pages:
        for link in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.is_file(), link
            assert not anchor or f'id="{anchor}"' in target.read_text(), link


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportInputs, ReportFiles]:
    """The inputs above and their report, to be read: drawing its figures takes seconds."""
    folder = tmp_path_factory.mktemp("plain")
    inputs = _inputs(folder)
    return inputs, write_report(inputs, folder / "report")


def test_report_is_complete_and_repeatable(plain: tuple[ReportInputs, ReportFiles], tmp_path: Path) -> None:
    inputs, written = plain
    folders = (written.pages[0].parent, tmp_path)
    write_report(inputs, tmp_path)
    files = [sorted(path for path in folder.rglob("*") if path.is_file()) for folder in folders]
    assert digest_files(files[0], folders[0]) == digest_files(files[1], folders[1])
    named = {
        *written.tables,
        *written.figures,
        *written.claims,
        *written.pages,
        written.summary,
        written.metrics,
        written.budgets,
    }
    assert named == set(files[0])
    page = _text(written)
    # Two cells, two of the data, one of training.
    assert page.count("<img ") == 5
    _check_links(written)
    # Digests of parameters and data.
    for text in ("0123456789abcdef", "fedcba9876543210", "profile"):
        assert text in page
    summary = json.loads(written.summary.read_text())
    assert summary["tile/random/tpu_v2/learned/tau_median"] == 0.8
    metrics = json.loads(written.metrics.read_text())
    assert metrics["tile"]["learned"] == summary["tile/random/tpu_v2/learned/ape_mean"]
    assert summary["leakage/tile/random/tpu_v2/share_of_kernels"] == 0.1


def test_a_users_own_programs_change_no_number_and_have_rows_and_averages(tmp_path: Path) -> None:
    """Rows of two programs that are far off leave every file as it is but for tables of their own."""
    inputs = replace(_inputs(tmp_path), searches=tmp_path / "searches.jsonl")
    assert inputs.searches is not None
    write_rows(inputs.searches, tile_rows())
    before = write_report(inputs, tmp_path / "before")
    of_user = [
        replace(row, application=f"user:{name}", program=f"user_{name}", value=100.0 * row.value)
        for name in ("first", "second")
        for row in rows_of()
        if row.program == "rnn_gru_b128_train_f32"
    ]
    write_rows(inputs.rows[0], [*rows_of(), *rows_of("manual", "tpu_v3"), *of_user])
    first = tile_rows()[0].program
    tuned = [
        replace(row, application="user:first", program="user_first")
        for row in tile_rows()
        if row.program == first
    ]
    write_rows(inputs.searches, [*tile_rows(), *tuned])
    after = write_report(inputs, tmp_path / "after")
    assert after.headline == before.headline
    for name in ("summary", "metrics"):
        assert getattr(after, name).read_bytes() == getattr(before, name).read_bytes()
    for one, other in zip(before.claims, after.claims, strict=True):
        assert one.read_bytes() == other.read_bytes()
    by_name = [
        {path.name: path.read_bytes() for path in written.tables if path.suffix == ".csv"}
        for written in (before, after)
    ]
    added = {name for name in by_name[1] if name.startswith("user_")}
    assert {"user_tile_random_tpu_v2.csv", "user_lpm2021_figure4_random_tpu_v2.csv"} <= added
    assert {name: data for name, data in by_name[1].items() if name not in added} == by_name[0]
    lines = by_name[1]["user_tile_random_tpu_v2.csv"].decode().splitlines()
    rows = {line.split(",")[1]: line.split(",") for line in lines[1:]}
    column = lines[0].split(",").index("ape_learned")
    assert [float(rows[f"user_{name}"][column]) for name in ("first", "second")] == [400.0, 400.0]
    assert [float(line.split(",")[column]) for line in lines[3:]][:1] == [400.0]
    assert set(after.frame["application"]) - set(before.frame["application"]) == {"user:first", "user:second"}
    page = _text(after)
    assert 'id="user-programs"' in page
    _check_links(after)


@pytest.mark.parametrize("name", ["rows.jsonl", "leakage.json", "counts.json", "card.json"])
def test_a_missing_input_is_named(tmp_path: Path, name: str) -> None:
    inputs = _inputs(tmp_path)
    missing = tmp_path / name
    missing.unlink()
    with pytest.raises(DataError, match=missing.name):
        write_report(inputs, tmp_path / "out")


def test_tile_results_alone_say_what_else_there_could_be(plain: tuple[ReportInputs, ReportFiles]) -> None:
    _, written = plain
    assert "Table 4 of lpm2021" in _text(written)
    verdicts = {one["id"]: one["verdict"] for one in json.loads(written.claims[1].read_text())}
    # Three programs cannot tell; of fusion there are none.
    assert verdicts["lpm2021.tile_random_vs_analytical@learned"] == "undecided"
    assert verdicts["lpm2021.fusion_random_vs_analytical@learned"] == "not evaluated"


def test_parts_of_other_packages_have_claims_numbers_and_a_page(tmp_path: Path) -> None:
    ours, theirs = (Side(name, "main", "own", "cpu") for name in ("ours", "theirs"))
    claim = Claim(
        "paper2030.fast",
        "Table 1",
        "It is fast.",
        "kernels",
        "gflops",
        "left_better",
        None,
        (ours,),
        (theirs,),
        scale="ratio",
        unit="percent",
    )
    speeds = {("ours", "main", 0): {"gflops": 2.0}, ("theirs", "main", 0): {"gflops": 1.0}}
    rows = [
        row
        for number in range(8)
        for row in RowOrigin("kernels", "own", "cpu", "a", f"p{number}", "", "", "").rows("all", speeds)
    ]

    def render(findings: Sequence[Finding], figures: Path) -> RenderedPart:
        verdicts = [one.verdict for one in findings if one.claim.paper == "paper2030"]
        section = Section("kernels", "Kernels", "Kernels", (f"Verdicts: {verdicts}.",))
        return RenderedPart((section,), {"kernels/number": float(len(verdicts))})

    part = ReportPart("How fast are kernels?", "Measured.", render, claims=(claim,), rows=tuple(rows))
    written = write_report(replace(_inputs(tmp_path), parts={"kernels": part}), tmp_path / "with")
    assert "Verdicts: [&#39;holds&#39;]." in (tmp_path / "with" / "pages" / "kernels.html").read_text()
    assert json.loads(written.summary.read_text())["kernels/number"] == 1.0
    verdicts = {one["id"]: one["verdict"] for one in json.loads(written.claims[1].read_text())}
    assert verdicts["paper2030.fast"] == "holds"


def test_searches_are_part_of_everything(plain: tuple[ReportInputs, ReportFiles], tmp_path: Path) -> None:
    inputs, without = plain
    page = without.pages[0].read_text()
    assert 'href="#overview"' in page
    assert "autotuner" not in page.split("</nav>")[0]
    assert not [key for key in without.headline if key.startswith("autotune/")]
    searches = tmp_path / "searches.jsonl"
    write_rows(searches, [*tile_rows(), *fusion_search_rows()])
    written = write_report(replace(inputs, searches=searches), tmp_path / "with")
    page = _text(written)
    _check_links(written)
    assert "Tile autotuner" in page
    assert "Fusion autotuner" in page
    named = {path.stem for path in (*written.tables, *written.figures)}
    for name in ("lpm2021_figure4_random_tpu_v2", "lpm2020_figure4_random_tpu_v2"):
        assert name in named
    assert named >= {"lpm2021_figure5a_random_tpu_v2", "tile_search_random_tpu_v2"}
    summary = json.loads(written.summary.read_text())
    assert summary["autotune/tile/random/tpu_v2/all/learned/top10/fewer_hardware_seconds"] == 50.0
    verdicts = {one["id"]: one["verdict"] for one in json.loads(written.claims[1].read_text())}
    assert verdicts["lpm2021.top10_learned_vs_analytical"] == "undecided"
    # Nothing else changes.
    before = json.loads(without.summary.read_text())
    assert {key: summary[key] for key in before} == before


def test_everything_that_was_run_is_shown(tmp_path: Path) -> None:
    rows = [*rows_of(), *fusion_rows(), *fusion_rows("manual", "tpu_v3")]
    for variant in ("mse", "gat-lstm", "unbalanced", "lpm2020-lstm"):
        rows += [row for task in ("tile", "fusion") for row in variant_rows(variant, task, [1.0, 2.0, 3.0])]
    inputs = _inputs(tmp_path)
    write_rows(inputs.rows[0], rows)
    point = {"task": "fusion", "split": "random", "chip": "tpu_v2", "model": "learned"}
    scatter = tmp_path / "scatter.json"
    scatter.write_text(json.dumps([{**point, "predicted_ns": [1.0, 2.0], "measured_ns": [1.5, 2.5]}]))
    settings = {"train": {"fusion": {"net": {"hidden": 64}}}}
    full = replace(inputs, scatter=(scatter,), settings=settings)
    written = write_report(full, tmp_path / "one")
    write_report(full, tmp_path / "two")
    files = [sorted(p for p in (tmp_path / n).rglob("*") if p.is_file()) for n in ("one", "two")]
    assert digest_files(files[0], tmp_path / "one") == digest_files(files[1], tmp_path / "two")
    names = {path.stem for path in written.tables}
    assert names >= {
        "tile_random_tpu_v2",
        "fusion_random_tpu_v2",
        "fusion_manual_tpu_v3_short",
        "lpm2020_table2_fusion_random_tpu_v2",
        "lpm2020_table3_tile_random_tpu_v2",
        "lpm2021_table3_random_tpu_v2",
        "lpm2021_table4_random_tpu_v2",
        "variants_random_tpu_v2",
        "lpm2021_table5",
        "lpm2021_table7",
        "claims",
    }
    headings = [
        heading for page in written.pages for heading in re.findall("<h1>(.*)</h1>", page.read_text())
    ]
    assert len(set(headings)) == len(headings) == len(written.pages)
    drawn = {path.stem for path in written.figures}
    assert drawn >= {"fusion_random_tpu_v2", "networks_random_tpu_v2", "predicted_fusion_random_tpu_v2"}
    _check_links(written)
    summary = json.loads(written.summary.read_text())
    assert summary["fusion/random/tpu_v2/hybrid/mape_ge5us_mean"] == pytest.approx(2.0 ** (1 / 3))
