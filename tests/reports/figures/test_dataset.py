"""The card's figures show what they should and are the same bytes for the same numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.reports.dataset_files import Card, Distribution, read_cards
from costbench.reports.sections.data import write_application_figure, write_histogram_figure
from tests.reports.conftest import draw_twice
from tests.reports.evidence_files import write_evidence


@pytest.fixture
def card(tmp_path: Path) -> Card:
    return read_cards(write_evidence(tmp_path).card)[0]


def test_histograms_of_chips_lie_over_each_other(card: Card, tmp_path: Path) -> None:
    cards = (card, replace(card, chip="tpu_v3"))
    name, text = draw_twice(lambda folder: write_histogram_figure("tile", cards, folder), tmp_path)
    assert name == "dataset_tile.svg"
    for shown in ("tpu_v2", "tpu_v3", "nodes per kernel", "% of kernels", "500,000"):
        assert shown in text


def test_fusion_histograms_show_where_the_papers_lie(card: Card, tmp_path: Path) -> None:
    # From 100 ns to a second.
    times = Distribution(1, 2, (1, 2, 3, 4, 3, 2, 1))
    cards = (replace(card, distributions={**card.distributions, "runtime_ns": times}),)
    text = write_histogram_figure("fusion", cards, tmp_path)[0].read_text()
    for shown in ("5 µs", "papers' mean", "100 ns", "1 ms", "1 s"):
        assert shown in text


def test_every_task_has_a_figure(card: Card, tmp_path: Path) -> None:
    assert write_histogram_figure("layout", (card,), tmp_path)[0].exists()


def test_a_quantity_without_numbers_is_an_empty_panel(card: Card, tmp_path: Path) -> None:
    empty = {name: Distribution(1, 0, ()) for name in card.distributions}
    svg, _ = write_histogram_figure("tile", (replace(card, distributions=empty),), tmp_path)
    assert "nodes per kernel" in svg.read_text()


def test_applications_are_named_with_most_samples_on_top(card: Card, tmp_path: Path) -> None:
    text = write_application_figure("tile", card, tmp_path)[0].read_text()
    assert text.index("SSD") < text.index("RNN")
    assert "samples (logarithmic)" in text
    assert "kernels (logarithmic)" in text
    # Layouts are of programs: there are no kernels to count.
    layout = write_application_figure("layout", card, tmp_path)[0].read_text()
    assert "kernels (logarithmic)" not in layout
