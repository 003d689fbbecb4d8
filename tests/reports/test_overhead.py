"""Table 10: what git keeps has no wall time, and the machine's folder has all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.metrics.overhead import Overhead
from costbench.reports.claims.claim import TPUGRAPHS, load_claims
from costbench.reports.claims.evaluation import BY_CONSTRUCTION, HOLDS, evaluate_claims
from costbench.reports.frame import frame_of
from costbench.reports.overhead import (
    overhead_metrics,
    overhead_rows,
    overhead_table,
    without_wall_times,
    write_machine_overheads,
)

FIRST = Overhead("random", "tpu_v3", "RNN", "p0", 40.0, 0.5, 0.2, 0.01, 0.1)
OVERHEADS = [replace(FIRST, program=f"p{i}", application=f"a{i}") for i in range(6)]
CLAIMS = tuple(claim for claim in load_claims() if claim.wall_time and claim.paper == TPUGRAPHS)


def test_claims_about_times_are_decided_and_lose_their_numbers() -> None:
    found = evaluate_claims(CLAIMS, frame_of(overhead_rows(OVERHEADS)), 0, resamples=100)
    effects = {one.claim.id: one.effect for one in found}
    # 0.1 / 0.01.
    assert "tpugraphs2023.prediction_cheaper" in effects
    assert effects["tpugraphs2023.batching_cheaper"] == pytest.approx(10.0)
    shown = without_wall_times(found)
    assert [(one.verdict, one.effect, one.low, one.by_program) for one in shown] == [
        (BY_CONSTRUCTION, None, None, None),
        (HOLDS, None, None, None),
    ]


def test_the_table_of_the_report_is_the_same_on_every_machine() -> None:
    slower = [replace(one, extraction_s=9.0, batch_s=8.0, single_s=7.0) for one in OVERHEADS]
    assert overhead_table(OVERHEADS, measured=False) == overhead_table(slower, measured=False)
    first = overhead_table(OVERHEADS, measured=False).rows[0]
    assert first == ("ours", "p0", 40.0, 0.5, None, None, None)
    assert overhead_table(OVERHEADS, measured=True).rows[0][2:] == (40.0, 0.5, 0.2, 0.01, 0.1)
    paper = overhead_table([], measured=False)
    assert len(paper.rows) == 7


def test_the_folder_of_the_machine_has_everything(tmp_path: Path) -> None:
    found = evaluate_claims(CLAIMS, frame_of(overhead_rows(OVERHEADS)), 0, resamples=100)
    plain, text = write_machine_overheads(OVERHEADS, found, tmp_path)
    content = json.loads(plain.read_text())
    assert content["programs"][0]["extraction_s"] == 0.2
    assert content["claims"]["tpugraphs2023.batching_cheaper"]["effect"] == pytest.approx(10.0)
    assert "| ours | p0 |" in text.read_text()
    assert overhead_metrics(OVERHEADS)["overhead/single_s"] == 0.1
    assert write_machine_overheads([], [], tmp_path) == ()
    assert overhead_metrics([]) == {}
