"""The table of machines follows from the rows beside a chip."""

from __future__ import annotations

import pytest

from costbench.hardware.machine import CHOICES
from costbench.reports.tables.machines import machines_table
from costbench.target import available_targets


@pytest.mark.parametrize("chip", available_targets())
def test_a_row_for_the_chip_its_ensemble_and_each_choice(chip: str) -> None:
    table = machines_table(chip)
    rules = [f"{rule}: {choice}" for rule, choices in CHOICES.items() for choice in choices]
    assert [row[0] for row in table.rows] == ["as it ships", "all of the ensemble", *rules]
    numbers = [row[1] for row in table.rows]
    assert numbers[:2] == [1, 32]
    assert [sum(map(int, numbers[2 + 3 * i : 5 + 3 * i])) for i in range(3)] == [32, 32, 32]
    # The chip has its own order; what was never recorded has no error.
    assert table.rows[0][-3:] == (100.0, 100.0, 100.0)
    assert (table.rows[0][2] is None) == (chip == "tpu_v2")


def test_other_chips_have_no_rows() -> None:
    assert machines_table("other").rows == ()
