"""Evidence is read strictly: half-understood evidence qualifies nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import write_json, write_text
from costbench.datasets.card import LogHistogram
from costbench.errors import DataError
from costbench.reports.dataset_files import flat_counts, flat_leaks, read_audits, read_cards, read_counts
from costbench.reports.training_runs import read_history
from tests.reports.evidence_files import CARD, COUNTS, LEAK, write_evidence


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


def test_cards(tmp_path: Path) -> None:
    tile, layout = read_cards(write_evidence(tmp_path, ("layout", "tile")).card)
    assert (tile.task, layout.task, tile.chip, tile.counts.configs) == ("tile", "layout", "tpu_v2", 600)
    assert tile.applications["RNN"].kernels == 20
    shape = tile.distributions["tile_space_size"]
    assert shape.edges().tolist() == [1.0, 10.0, 100.0]
    assert (shape.median, shape.mean) == (20, 25.5)
    assert flat_counts((tile,)) == {
        "dataset/tile/tpu_v2/programs": 3.0,
        "dataset/tile/tpu_v2/applications": 2.0,
        "dataset/tile/tpu_v2/kernels": 30.0,
        "dataset/tile/tpu_v2/unique_kernels": 28.0,
        "dataset/tile/tpu_v2/configs": 600.0,
        "dataset/tile/tpu_v2/failed": 2.0,
    }


def test_histograms_as_they_are_written(tmp_path: Path) -> None:
    histogram = LogHistogram(5)
    histogram.add([40, 4_000])
    shapes = {"nodes_per_kernel": histogram.to_dict(), "runtime_ns": LogHistogram().to_dict()}
    write_json(tmp_path / "card.json", {"tile": {"tpu_v2": {**CARD, "distributions": shapes}}})
    (card,) = read_cards(tmp_path / "card.json")
    nodes = card.distributions["nodes_per_kernel"]
    edges = nodes.edges()
    assert edges[0] <= 40 < edges[1]
    assert edges[-2] <= 4_000 < edges[-1]
    assert np.isclose(edges[1] / edges[0], 10**0.2)
    assert card.distributions["runtime_ns"].median is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kernels": "many"}, "kernels"),
        ({"surprise": 1}, "surprise"),
        ({"by_application": {"RNN": {"programs": 1}}}, "RNN"),
        ({"distributions": {"nodes": {"counts": [1]}}}, "nodes"),
        ({"distributions": []}, "distributions"),
    ],
)
def test_other_json_is_no_card(tmp_path: Path, change: dict[str, object], field: str) -> None:
    write_json(tmp_path / "card.json", {"tile": {"tpu_v2": {**CARD, **change}}})
    with pytest.raises(DataError, match=field):
        read_cards(tmp_path / "card.json")
