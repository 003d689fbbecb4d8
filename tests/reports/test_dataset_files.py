"""Evidence is read strictly: half-understood evidence qualifies nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import write_json
from costbench.datasets.card import LogHistogram
from costbench.errors import DataError
from costbench.reports.dataset_files import (
    ALL_PROGRAMS,
    flat_counts,
    flat_leakage,
    read_cards,
    read_leakage,
    read_set_counts,
)
from tests.reports.evidence_files import CARD, COUNTS, LEAK, write_evidence


def test_audits(tmp_path: Path) -> None:
    leakage = read_leakage(write_evidence(tmp_path, ("layout", "fusion", "tile")).audits)
    whole = leakage[leakage["program"] == ALL_PROGRAMS]
    assert whole["task"].tolist() == ["tile", "fusion"]
    assert leakage["program"].tolist() == ["rnn", ALL_PROGRAMS] * 2
    tile = leakage[leakage["task"] == "tile"]
    assert tile["share_of_runtime"].tolist() == [0.25, 0.25]
    assert flat_leakage(tile) == {
        "leakage/tile/random/tpu_v2/share_of_kernels": 0.1,
        "leakage/tile/random/tpu_v2/share_of_runtime": 0.25,
    }
    assert read_leakage(None).empty
    assert flat_leakage(read_leakage(None)) == {}


def test_counts_of_sets(tmp_path: Path) -> None:
    files = write_evidence(tmp_path, ("fusion", "tile"))
    write_json(files.counts, {"tile": {"manual": {"tpu_v3": COUNTS}, "random": {"tpu_v2": COUNTS}}})
    counts = read_set_counts(files.counts)
    assert counts[["split", "chip"]].drop_duplicates().values.tolist() == [
        ["random", "tpu_v2"],
        ["manual", "tpu_v3"],
    ]
    assert counts["samples"][counts["set"] == "test"].tolist() == [150, 150]


@pytest.mark.parametrize(
    "content", [[], {"tile": []}, {"tile": {"random": []}}, {"tile": {"random": {"tpu_v2": {"test": LEAK}}}}]
)
def test_other_json_is_no_audit(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / "leakage.json", content)
    with pytest.raises(DataError, match=r"leakage\.json"):
        read_leakage(tmp_path / "leakage.json")


@pytest.mark.parametrize("sets", [{}, {**COUNTS, "more": {}}, {**COUNTS, "test": {"programs": "many"}}])
def test_other_json_is_no_counts(tmp_path: Path, sets: object) -> None:
    write_json(tmp_path / "counts.json", {"tile": {"random": {"tpu_v2": sets}}})
    with pytest.raises(DataError, match=r"counts\.json: tile\.random\.tpu_v2"):
        read_set_counts(tmp_path / "counts.json")


def test_cards(tmp_path: Path) -> None:
    tile, layout = read_cards(write_evidence(tmp_path, ("layout", "tile")).card)
    assert (tile.task, layout.task, tile.chip, tile.configs) == ("tile", "layout", "tpu_v2", 600)
    assert tile.by_application["RNN"].kernels == 20
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
