"""The whole report from files, twice: the same bytes, and everything that it links to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from costbench.artifacts import digest_files
from costbench.errors import DataError
from costbench.metrics.rows import write_rows
from costbench.reports.report import ReportInputs, write_report
from tests.reports.conftest import rows_of
from tests.reports.evidence_files import write_evidence


def _inputs(folder: Path) -> ReportInputs:
    write_rows(folder / "rows.jsonl", [*rows_of(), *rows_of("manual", "tpu_v3")])
    evidence = write_evidence(folder)
    return ReportInputs(
        rows=folder / "rows.jsonl",
        audits=evidence.audits,
        counts=evidence.counts,
        card=evidence.card,
        histories={"tile-random-tpu_v2-s0": evidence.history},
        curve="val_tau",
        provenance={"profile": "test"},
    )


def test_report_is_complete_and_repeatable(tmp_path: Path) -> None:
    inputs = _inputs(tmp_path)
    written = write_report(inputs, tmp_path / "one", seed=0)
    write_report(inputs, tmp_path / "two", seed=0)
    files = [sorted(p for p in (tmp_path / n).rglob("*") if p.is_file()) for n in ("one", "two")]
    assert digest_files(files[0], tmp_path / "one") == digest_files(files[1], tmp_path / "two")
    assert {*written.tables, *written.figures, written.page, written.summary, written.metrics} == set(
        files[0]
    )
    page = written.page.read_text()
    for link in re.findall(r'href="(tables/[^"]+)"', page):
        assert (tmp_path / "one" / link).is_file()
    # Two cells, two of the data, one of training.
    assert page.count("<svg ") == 5
    for text in ("0123456789abcdef", "fedcba9876543210", "0" * 40, "profile", "10.0% of the test kernels"):
        assert text in page
    summary = json.loads(written.summary.read_text())
    assert summary["tile/random/tpu_v2/learned/tau_median"] == 0.8
    metrics = json.loads(written.metrics.read_text())
    learned = metrics["tile"]["random"]["tpu_v2"]["learned"]
    assert learned == {
        name: summary[f"tile/random/tpu_v2/learned/{name}"] for name in ("ape_mean", "tau_mean")
    }
    assert summary["leakage/tile/random/tpu_v2/share_of_kernels"] == 0.1


@pytest.mark.parametrize("name", ["rows", "audits", "counts", "card"])
def test_a_missing_input_is_named(tmp_path: Path, name: str) -> None:
    inputs = _inputs(tmp_path)
    missing: Path = getattr(inputs, name)
    missing.unlink()
    with pytest.raises(DataError, match=missing.name):
        write_report(inputs, tmp_path / "out", seed=0)
