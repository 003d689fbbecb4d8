"""What training runs were given and what they reached on validation programs, read from their folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costbench.artifacts import write_json, write_text
from costbench.errors import DataError
from costbench.reports.training_runs import (
    Budget,
    Selected,
    budget_note,
    budget_table,
    read_budgets,
    read_history,
    read_selected,
    rises,
    write_budgets,
    write_wall_times,
)
from tests.reports.evidence_files import write_evidence
from tests.sentences import numbers

SHORT = Budget("inputs", "tile", "random", "tpu_v2", "mse", 0, 100, 8, 32, 2)


def _cell(folder: Path, name: str, **changes: object) -> Path:
    cell = folder / "inputs" / name
    cell.mkdir(parents=True)
    done = {"steps": 100, "kernels": 8, "configs": 32, "validations": 2, "key": "k"}
    (cell / "done.json").write_text(json.dumps(done | changes))
    return cell


def test_a_budget_is_read_from_its_cell(tmp_path: Path) -> None:
    cell = _cell(tmp_path, "tile-random-tpu_v2-gat-column-wise-s3")
    (found,) = read_budgets([cell])
    assert found == Budget("inputs", "tile", "random", "tpu_v2", "gat-column-wise", 3, 100, 8, 32, 2)
    assert found.samples == 25_600
    write_budgets([found], tmp_path / "budgets.json")
    (written,) = json.loads((tmp_path / "budgets.json").read_text())
    assert (written["samples"], written["variant"]) == (25_600, "gat-column-wise")
    assert "seconds" not in written


def test_wall_times_lie_in_a_file_of_their_own(tmp_path: Path) -> None:
    timed, untimed = (_cell(tmp_path, f"tile-random-tpu_v2-mse-s{seed}") for seed in (0, 1))
    machine = tmp_path / "machine"
    write_json(machine / "train" / "inputs" / f"{timed.name}.json", {"seconds": 12.5})
    assert read_budgets([timed]) == (SHORT,)
    path = machine / "wall_times.json"
    write_wall_times([timed, untimed], machine)
    expected = {"experiment": "inputs", "cell": "tile-random-tpu_v2-mse-s0", "seconds": 12.5}
    assert json.loads(path.read_text()) == [expected]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("no-cell", {}, "names no cell"),
        ("tile-random-tpu_v2-mse-s0", {"steps": "100"}, "steps: '100'"),
        ("tile-random-tpu_v2-mse-s0", {"kernels": True}, "kernels: True"),
    ],
)
def test_other_folders_are_refused(
    tmp_path: Path, name: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_budgets([_cell(tmp_path, name, **changes)])


def _budget(variant: str, seed: int = 0, steps: int = 100) -> Budget:
    return Budget("inputs", "tile", "random", "tpu_v2", variant, seed, steps, 8, 32, 2)


def test_equal_runs_of_a_variant_share_a_row() -> None:
    table = budget_table([_budget("mse"), _budget("mse", 1), _budget("vanilla"), _budget("mse", 2, 50)])
    assert table.rows == (
        ("inputs", "mse", 2, 100, 8, 32, 25_600, 2),
        ("inputs", "vanilla", 1, 100, 8, 32, 25_600, 2),
        ("inputs", "mse", 1, 50, 8, 32, 12_800, 2),
    )


def test_a_table_says_whether_its_rows_were_given_the_same() -> None:
    names = ("mse", "main")
    same = budget_note([_budget("mse"), _budget("main"), _budget("other", steps=9)], names, "tile")
    # Steps, kernels, tile sizes and validations, once for both.
    assert numbers(same) == [100, 8, 32, 2]
    differ = budget_note([_budget("mse"), _budget("main", steps=1000)], names, "tile")
    assert numbers(differ) == [100, 8, 32, 2, 1000, 8, 32, 2]
    assert differ.index("mse") < differ.index("main")
    assert budget_note([_budget("mse")], names, "fusion") == ""


COLUMNS = {"tile": "validation/tau", "fusion": "validation/mape"}


def cell(folder: Path, task: str, variant: str, values: str) -> tuple[Path, Budget]:
    place = folder / f"{task}-random-tpu_v2-{variant}-s0"
    lines = [f"{epoch},{100 * epoch},{value}" for epoch, value in enumerate(values.split(), start=1)]
    write_text(place / "history.csv", "\n".join([f"epoch,step,{COLUMNS[task]}", *lines]) + "\n")
    return place, Budget("e", task, "random", "tpu_v2", variant, 0, 300, 8, 32, 3)


def test_the_best_epoch_counts(tmp_path: Path) -> None:
    cells = [
        cell(tmp_path, "tile", "a", "0.5 0.7 0.6"),
        cell(tmp_path, "fusion", "b", "50.0 40.0 45.0"),
        cell(tmp_path, "tile", "main", "0.9"),
    ]
    paths, budgets = zip(*cells, strict=True)
    found = read_selected(paths, budgets, COLUMNS, lambda variant: variant != "main")
    assert found == (Selected(budgets[0], 0.7), Selected(budgets[1], 40.0))
    assert read_selected(paths, budgets, {}, lambda _: True) == ()


def test_directions() -> None:
    assert rises("validation/tau")
    assert rises("validation/opa")
    assert not rises("validation/mape")
    assert not rises("validation/slowdown")


def test_a_history_without_the_column_is_an_error_that_names_it(tmp_path: Path) -> None:
    place, budget = cell(tmp_path, "tile", "a", "0.5")
    with pytest.raises(DataError, match="'validation/ape'"):
        read_selected([place], [budget], {"tile": "validation/ape"}, lambda _: True)


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
