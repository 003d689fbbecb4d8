"""A recording becomes the folder that is kept, and what is committed follows from the features beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench_schedules.crop.estimate import Estimator
from costbench_schedules.crop.simple_estimates import executed_lanes
from costbench_schedules.devices.processor import load_processor
from costbench_schedules.llvm.features import ProgramFeatures
from costbench_schedules.llvm.operations import KINDS
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.arrow_file import read_arrow, write_arrow
from costbench_schedules.records.card import CARD, check_folder
from costbench_schedules.records.estimation import ProgramEstimates, estimate_folder
from costbench_schedules.records.programs import (
    PROGRAMS,
    SAMPLED,
    DrawnPrograms,
    EstimatedPrograms,
    read_estimated,
    read_programs,
    write_programs,
)
from tests.schedules.crop.machines import ROUND, features
from tests.schedules.crop.test_simple_estimates import COUNTS, LOOP

DATA = Path(__file__).parents[3] / "data"
COMMITTED = {
    DATA / "networks": "amd_epyc_zen4",
    DATA / "networks_zen5": "amd_epyc_zen5",
    DATA / "schedules" / "estimates": "amd_epyc_zen4",
}
"""Folders, and the processors that their programs were measured on."""


def recorded(folder: Path, n: int = 8, measured_on: str = "", analysed: bool = True) -> ProgramFeatures:
    """Writes a recording of three programs, one of them slow; returns the features of the first."""
    kernel = features(LOOP, COUNTS, (1, 40))
    columns = {
        "number": np.array([5, 6, 7]),
        "searched": np.array([False, False, True]),
        "native_ns": np.array([300, 9000, 400]),
        "generic_ns": np.array([500, 0, 700]),
        "clean": np.array([3, 3, 3], dtype=np.uint8),
        "again_ns": np.array([310, 0, 410]),
    }
    contents = (kernel.to_bytes(), b"", kernel.to_bytes()) if analysed else (b"", b"", b"")
    draw = {"measured_on": {"processor": measured_on}} if measured_on else {"seed": 0}
    facts = {"host": {"processor": "made up"}, "draw": draw}
    operator = parse_operator(f"matmul:m=8,n={n},k=8")
    table = DrawnPrograms(operator, facts, columns, ("", "slow", ""), contents)
    write_programs(folder / f"matmul-8x{n}x8.arrow", table)
    return kernel


def test_estimates_are_the_models(tmp_path: Path) -> None:
    kernel = recorded(tmp_path / "in")
    estimate_folder(tmp_path / "in", tmp_path / "out", ROUND, "on a quiet day")
    check_folder(tmp_path / "out")
    estimated = read_estimated(tmp_path / "out" / PROGRAMS)
    total = Estimator(ROUND).runtime_ns(kernel)
    np.testing.assert_allclose(estimated.estimates["total"], [total, 0.0, total], rtol=1e-6)
    parts = sum(estimated.estimates[name][0] for name in ("compute", "L2", "RAM", "branches"))
    assert parts == pytest.approx(total, rel=1e-5)
    assert estimated.columns["analysed"].tolist() == [True, False, True]
    assert estimated.columns["lanes"][0][KINDS.index("store")] == 800
    card = read_json(tmp_path / "out" / CARD)
    assert isinstance(card, dict)
    assert card["problems"] == {"slow": 1}
    assert card["remarks"] == "on a quiet day"
    assert card["measured_again"]["programs"] == 2


@pytest.mark.parametrize("changed", [{"operators": 7}, {"operators": [7]}, {"estimates": 7}, {"kinds": None}])
def test_impossible_facts_are_one_error(tmp_path: Path, changed: dict[str, object]) -> None:
    recorded(tmp_path)
    estimate_folder(tmp_path, tmp_path / "out", load_processor("amd_epyc_zen4"))
    path, key = tmp_path / "out" / PROGRAMS, b"costbench.networks"
    facts, table = read_arrow(path, key)
    write_arrow(path, key, facts | changed, table.schema, table.to_batches()[0].columns)
    with pytest.raises(DataError) as raised:
        read_estimated(path)
    assert raised.value.where == str(path)


def test_without_recordings_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="record-networks"):
        estimate_folder(tmp_path, tmp_path / "out", ROUND)


def test_programs_without_features_are_an_error(tmp_path: Path) -> None:
    recorded(tmp_path / "in", analysed=False)
    with pytest.raises(DataError, match="no analysed programs"):
        estimate_folder(tmp_path / "in", tmp_path / "out", ROUND)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("first", "second", "mixed"), [("", "made up", False), ("", "b", True), ("a", "b", True)]
)
def test_programs_of_two_processors_are_not_mixed(
    tmp_path: Path, first: str, second: str, mixed: bool
) -> None:
    recorded(tmp_path / "in", measured_on=first)
    recorded(tmp_path / "in", 16, measured_on=second)
    if not mixed:
        assert len(estimate_folder(tmp_path / "in", tmp_path / "out", ROUND)) == 6
        return
    with pytest.raises(DataError, match="one processor"):
        estimate_folder(tmp_path / "in", tmp_path / "out", ROUND)


@pytest.mark.parametrize(("folder", "processor"), COMMITTED.items(), ids=[path.name for path in COMMITTED])
def test_committed_estimates_follow_from_committed_features(folder: Path, processor: str) -> None:
    """Fails when the model or the description changes: then `estimate-networks` has to be run again."""
    if not (folder / PROGRAMS).exists():
        pytest.skip(f"no programs are recorded in {folder}")
    check_folder(folder)
    result, sampled = read_estimated(folder / PROGRAMS), read_programs(folder / SAMPLED)
    estimates = ProgramEstimates(load_processor(processor))
    texts = [operator.text for operator in result.operators]
    for position, text in enumerate(sampled.facts["operators"]):
        kernel = ProgramFeatures.from_bytes(sampled.features[position], text)
        row = _row(result, texts.index(text), int(sampled.columns["number"][position]))
        for name, value in estimates.of(kernel).items():
            assert result.estimates[name][row] == pytest.approx(value, rel=1e-5, abs=1e-3), (text, name)
        np.testing.assert_allclose(result.columns["lanes"][row], executed_lanes(kernel), rtol=1e-6)


def _row(result: EstimatedPrograms, operator: int, number: int) -> int:
    own = (result.columns["operator"] == operator) & (result.columns["number"] == number)
    [row] = np.flatnonzero(own).tolist()
    return int(row)
