"""The card is read strictly, and says the same as the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import write_json
from costbench.datasets.card import LogHistogram
from costbench.errors import DataError
from costbench.reports.data.dataset_card import flat_counts, read_cards
from tests.reports.evidence_files import CARD, write_evidence


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
