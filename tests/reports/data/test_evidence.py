"""Evidence is read strictly: half-understood evidence qualifies nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.artifacts import write_json, write_text
from costbench.errors import DataError
from costbench.reports.data.evidence import flat_leaks, read_audits, read_counts, read_history
from tests.reports.evidence_files import COUNTS, LEAK, write_evidence


def test_audits(tmp_path: Path) -> None:
    files = write_evidence(tmp_path, ("layout", "fusion", "tile"))
    tile, fusion = read_audits(files.audits)
    assert (tile.task, tile.split, tile.chip, tile.test.share_of_runtime) == (
        "tile",
        "random",
        "tpu_v2",
        0.25,
    )
    assert fusion.task == "fusion"
    assert flat_leaks((tile,)) == {
        "leakage/tile/random/tpu_v2/share_of_kernels": 0.1,
        "leakage/tile/random/tpu_v2/share_of_runtime": 0.25,
    }


def test_counts_of_sets(tmp_path: Path) -> None:
    files = write_evidence(tmp_path, ("fusion", "tile"))
    write_json(files.counts, {"tile": {"manual": {"tpu_v3": COUNTS}, "random": {"tpu_v2": COUNTS}}})
    first, second = read_counts(files.counts)
    assert (first.split, second.split, second.chip) == ("random", "manual", "tpu_v3")
    assert first.sets["test"].samples == 150


def test_histories_leave_out_epochs_without_a_value(tmp_path: Path) -> None:
    history = write_evidence(tmp_path).history
    assert read_history(history, "val_tau") == ((0.0, 0.25), (2.0, 0.5))
    assert len(read_history(history, "loss")) == 3


def test_histories_without_the_column_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing"):
        read_history(write_evidence(tmp_path).history, "missing")


def test_histories_with_words_for_numbers_are_refused(tmp_path: Path) -> None:
    write_text(tmp_path / "h.csv", "epoch,val_tau\n0,high\n")
    with pytest.raises(DataError, match="no numbers"):
        read_history(tmp_path / "h.csv", "val_tau")


@pytest.mark.parametrize(
    "content", [[], {"tile": []}, {"tile": {"random": []}}, {"tile": {"random": {"tpu_v2": {"test": LEAK}}}}]
)
def test_other_json_is_no_audit(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / "leakage.json", content)
    with pytest.raises(DataError, match=r"leakage\.json"):
        read_audits(tmp_path / "leakage.json")


@pytest.mark.parametrize("sets", [{}, {**COUNTS, "more": {}}, {**COUNTS, "test": {"programs": "many"}}])
def test_other_json_is_no_counts(tmp_path: Path, sets: object) -> None:
    write_json(tmp_path / "counts.json", {"tile": {"random": {"tpu_v2": sets}}})
    with pytest.raises(DataError, match=r"counts\.json: tile\.random\.tpu_v2"):
        read_counts(tmp_path / "counts.json")
