"""Evidence is read strictly: half-understood evidence qualifies nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.artifacts import write_json, write_text
from costbench.errors import DataError
from costbench.reports.evidence import flat_numbers, read_audits, read_cards, read_history
from tests.reports.evidence_files import CARD, LEAK, write_evidence


def test_audits_and_cards(tmp_path: Path) -> None:
    audits_file, card_file, _ = write_evidence(tmp_path)
    (audit,) = read_audits(audits_file)
    assert (audit.split, audit.chip, audit.test.share_of_runtime) == ("random", "tpu_v2", 0.25)
    cards = read_cards(card_file)
    assert cards["tpu_v2"][0].configs == 600
    assert flat_numbers((audit,), cards) == {
        "leakage/tile/random/tpu_v2/share_of_kernels": 0.1,
        "leakage/tile/random/tpu_v2/share_of_runtime": 0.25,
        "dataset/tile/tpu_v2/programs": 3.0,
        "dataset/tile/tpu_v2/applications": 3.0,
        "dataset/tile/tpu_v2/kernels": 30.0,
        "dataset/tile/tpu_v2/unique_kernels": 28.0,
        "dataset/tile/tpu_v2/configs": 600.0,
        "dataset/tile/tpu_v2/failed": 2.0,
    }


def test_histories_leave_out_epochs_without_a_value(tmp_path: Path) -> None:
    _, _, history = write_evidence(tmp_path)
    assert read_history(history, "val_tau") == ((0.0, 0.25), (2.0, 0.5))
    assert len(read_history(history, "loss")) == 3


def test_histories_without_the_column_are_refused(tmp_path: Path) -> None:
    _, _, history = write_evidence(tmp_path)
    with pytest.raises(DataError, match="missing"):
        read_history(history, "missing")


def test_histories_with_words_for_numbers_are_refused(tmp_path: Path) -> None:
    write_text(tmp_path / "h.csv", "epoch,val_tau\n0,high\n")
    with pytest.raises(DataError, match="no numbers"):
        read_history(tmp_path / "h.csv", "val_tau")


@pytest.mark.parametrize("content", [[], {"random": []}, {"random": {"tpu_v2": {"test": LEAK}}}])
def test_other_json_is_no_audit(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / "leakage.json", content)
    with pytest.raises(DataError, match=r"leakage\.json"):
        read_audits(tmp_path / "leakage.json")


@pytest.mark.parametrize("change", [{"kernels": "many"}, {"surprise": 1}])
def test_other_json_is_no_card(tmp_path: Path, change: dict[str, object]) -> None:
    write_json(tmp_path / "card.json", {"tpu_v2": {**CARD, **change}})
    with pytest.raises(DataError, match=next(iter(change))):
        read_cards(tmp_path / "card.json")
