"""Result cards, and the page of all of them; the commands from data to page."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from costbench.errors import CostbenchError, DataError
from costbench.reports.rendering import read_table
from costbench_suite.card import About, Card, Metric, file_name, read_about, read_card, write_card
from costbench_suite.cli import app
from costbench_suite.leaderboard import leaderboard_table, rank, read_cards, write_leaderboard
from costbench_suite.task_data import TaskData
from costbench_suite.tasks import TASKS
from tests.suite.conftest import predictions_of


def _card(name: str, ape: float, fresh: int = 0, **changes: object) -> Card:
    card = Card(
        version=1,
        task="tile",
        about=About(name),
        metrics={"ape_mean": Metric(ape, ape - 0.5, ape + 0.5), "tau_mean": Metric(0.8, 0.7, 0.9)},
        numbers={"ape_mean": ape, "tau_mean": 0.8},
        by_application={"RNN": ape},
        programs=5,
        applications=5,
        predictions=1000,
        digest="00",
        fresh=fresh,
        data_digest="aa",
    )
    return replace(card, **changes)  # type: ignore[arg-type]


def _write(folder: Path, *cards: Card) -> None:
    for card in cards:
        write_card(folder / "tile" / f"{card.about.name}-{card.fresh}.json", card)


def test_a_card_is_read_as_it_was_written(tmp_path: Path) -> None:
    card = _card("trees", 3.0)
    write_card(tmp_path / "card.json", card)
    assert read_card(tmp_path / "card.json") == card


def test_a_card_with_another_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_card(path, _card("trees", 3.0))
    path.write_text(path.read_text().replace("3.0", "2.0"))
    with pytest.raises(DataError, match=r"card\.json"):
        read_card(path)


def test_less_error_is_first_and_equal_ones_stand_by_name() -> None:
    cards = [_card("b", 2.0), _card("c", 1.0), _card("a", 2.0)]
    assert [card.about.name for card in rank(cards)] == ["c", "a", "b"]


def test_fresh_test_sets_stand_beside_the_entries_with_the_agreement_of_orders(tmp_path: Path) -> None:
    _write(tmp_path, _card("a", 1.0), _card("b", 2.0), _card("c", 3.0))
    _write(
        tmp_path,
        *(_card(name, ape, 7, data_digest="bb") for name, ape in (("a", 2.0), ("b", 1.0), ("c", 4.0))),
    )
    cards = read_cards(tmp_path)["tile"]
    table = leaderboard_table(TASKS["tile"], [c for c in cards if not c.fresh], [c for c in cards if c.fresh])
    assert table.data["entry"].tolist() == ["a", "b", "c"]
    assert table.data["fresh7"].tolist() == [2.0, 1.0, 4.0]
    # One of three pairs is the other way round: tau is 1/3.
    assert any("0.33" in note for note in table.notes)
    page = write_leaderboard(tmp_path / "page", read_cards(tmp_path))
    assert page.is_file()
    drawing = (tmp_path / "page" / "figures" / "leaderboard_tile.svg").read_text("utf-8")
    assert drawing.count("fresh, seed 7") == 1
    csv = page.parent / "tables" / "leaderboard_tile.csv"
    assert pd.read_csv(csv)["entry"].tolist() == ["a", "b", "c"]
    assert read_table(csv.parent, "leaderboard_tile").data["ape_mean"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        (_card("b", 1.0, data_digest="other"), "different data"),
        (_card("b", 1.0, version=2), "version 2"),
        (_card("b", 1.0, task="fusion"), "task fusion"),
    ],
)
def test_cards_that_cannot_be_compared_are_refused(tmp_path: Path, card: Card, problem: str) -> None:
    _write(tmp_path, _card("a", 1.0), card)
    with pytest.raises(DataError, match=problem):
        read_cards(tmp_path)


def test_an_entry_has_one_card(tmp_path: Path) -> None:
    _write(tmp_path, _card("a", 1.0), _card("a", 1.0, 7, data_digest="bb"))
    write_card(tmp_path / "tile" / "other.json", _card("a", 2.0))
    with pytest.raises(DataError, match=r"a-0\.json") as error:
        read_cards(tmp_path)
    assert error.value.where == str(tmp_path / "tile" / "other.json")


@pytest.mark.parametrize(
    ("metrics", "field"),
    [(None, "metrics"), ({}, "metrics.ape_mean"), ({"ape_mean": [1, 2, 3]}, "metrics.ape_mean")],
)
def test_cards_without_numbers_are_one_error(tmp_path: Path, metrics: object, field: str) -> None:
    path = tmp_path / "tile" / "a.json"
    path.parent.mkdir()
    path.write_text(json.dumps(asdict(_card("a", 1.0)) | {"metrics": metrics}))
    with pytest.raises(DataError) as error:
        read_cards(tmp_path)
    assert (error.value.where, error.value.field) == (str(path), field)


def test_names_of_files_tell_names_of_entries_apart() -> None:
    names = ("My trees, 12!", "模型", "другая", "kernel_tuner")
    assert [file_name(name) for name in names] == ["my-trees-12", "模型", "другая", "kernel-tuner"]


def test_what_an_author_says_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "about.yaml"
    path.write_text("name: mine\ntraining_s: 12\nknows_estimate: true\n")
    assert read_about(path) == About("mine", training_s=12.0, knows_estimate=True)
    path.write_text("name: mine\nautors: me\n")
    with pytest.raises(CostbenchError, match="autors"):
        read_about(path)


@pytest.mark.parametrize(("both", "problem"), [(False, "has no name"), (True, "beside --about")])
def test_an_entry_is_named_once(tmp_path: Path, both: bool, problem: str) -> None:
    about = ["--about", str(tmp_path / "about.yaml"), "--name", "mine"] if both else []
    with pytest.raises(DataError, match=problem):
        CliRunner().invoke(app, ["score", "p.parquet", "--task", "tile", *about], catch_exceptions=False)


def test_from_predictions_to_the_page_by_commands(
    tile: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ["--data", str(tile.folder.parent)]
    predictions_of(tile, lambda rows: rows["estimate_ns"]).to_parquet("estimate.parquet", index=False)
    predictions_of(tile, lambda rows: rows["runtime_ns"]).to_parquet("truth.parquet", index=False)
    runner = CliRunner()
    for name in ("estimate", "truth"):
        args = ["score", f"{name}.parquet", "--task", "tile", "--name", name, *data]
        result = runner.invoke(app, args, catch_exceptions=False)
        assert result.exit_code == 0
    assert "1 of 2 entries" in result.output
    first = json.loads(Path("leaderboard/tile/truth.json").read_text())
    runner.invoke(app, ["score", "truth.parquet", "--task", "tile", "--name", "truth", *data])
    assert json.loads(Path("leaderboard/tile/truth.json").read_text()) == first
    checked = runner.invoke(app, ["check", "leaderboard/tile/truth.json", "truth.parquet", *data])
    assert checked.exit_code == 0
    with pytest.raises(DataError, match="numbers differ"):
        runner.invoke(
            app, ["check", "leaderboard/tile/truth.json", "estimate.parquet", *data], catch_exceptions=False
        )
    assert runner.invoke(app, ["leaderboard"], catch_exceptions=False).exit_code == 0
    assert Path("leaderboard/index.html").is_file()


@pytest.fixture
def truth(tile: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of predictions in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "truth.parquet"
    predictions_of(tile, lambda rows: rows["runtime_ns"]).to_parquet(path, index=False)
    return path


def _run(tile: TaskData, *arguments: str) -> None:
    """Runs a command of the suite; what it raises is raised here."""
    command = [*arguments, "--data", str(tile.folder.parent)]
    CliRunner().invoke(app, command, catch_exceptions=False)


@pytest.mark.parametrize(
    ("forge", "field"),
    [
        (lambda card: {"metrics": card.metrics | {"ape_mean": Metric(0.01, 0.0, 0.02)}}, "metrics.ape_mean"),
        (lambda card: {"metrics": card.metrics | {"auc_mean": Metric(1.0, 1.0, 1.0)}}, "metrics.auc_mean"),
        (lambda card: {"by_application": {"RNN": 0.01}}, "by_application.RNN"),
        (lambda card: {"programs": card.programs + 1}, "programs"),
        (lambda card: {"data_digest": "00" * 32}, "data_digest"),
    ],
)
def test_a_forged_card_does_not_pass(tile: TaskData, truth: Path, forge: object, field: str) -> None:
    _run(tile, "score", truth.name, "--task", "tile", "--name", "truth", "--out", "card.json")
    card = read_card(Path("card.json"))
    write_card(Path("card.json"), replace(card, **forge(card)))  # type: ignore[operator]
    with pytest.raises(DataError) as error:
        _run(tile, "check", "card.json", truth.name)
    assert field in str(error.value)


def test_a_card_of_another_entry_is_not_overwritten(tile: TaskData, truth: Path) -> None:
    """Signs are no part of the names of files."""
    _run(tile, "score", truth.name, "--task", "tile", "--name", "☆")
    before = Path("leaderboard/tile/entry.json").read_bytes()
    with pytest.raises(DataError, match=r"entry\.json: is the card of '☆'"):
        _run(tile, "score", truth.name, "--task", "tile", "--name", "★")
    assert Path("leaderboard/tile/entry.json").read_bytes() == before


def test_predictions_are_written_where_they_were_asked_for(tile: TaskData, truth: Path) -> None:
    command = ("score", truth.name, "--task", "tile", "--name", "truth", "--write", "copy.pq")
    _run(tile, *command)
    assert [path.name for path in truth.parent.glob("copy*")] == ["copy.pq"]
    _run(tile, "check", "leaderboard/tile/truth.json", "copy.pq")


def test_an_empty_folder_of_data_is_not_the_current_one() -> None:
    with pytest.raises(DataError) as caught:
        CliRunner().invoke(
            app, ["score", "p.parquet", "--task", "tile", "--data", ""], catch_exceptions=False
        )
    assert caught.value.field == "--data"
