from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError
from costbench_schedules.records.imported.importing import read_tuning_table
from costbench_schedules.records.imported.parquet import write_parquet
from costbench_schedules.records.second_measurements import second_measurements
from costbench_schedules.records.table import write_table
from tests.schedules.experiments.made_up_tables import made_up_table


def test_a_recorded_table_is_a_tuning_table_by_its_second_measurements(tmp_path: Path) -> None:
    recorded = made_up_table("matmul-256")
    write_table(tmp_path / "matmul-256.arrow", recorded)
    table = read_tuning_table(tmp_path / "matmul-256.arrow")
    twice = second_measurements(recorded)
    assert twice is not None
    np.testing.assert_array_equal(table.first_ns, twice.first_ns)
    np.testing.assert_array_equal(table.second_ns, twice.second_ns)
    assert table.kernel == "matmul-256"
    assert not table.twice
    again = np.unique(recorded.repeats[recorded.repeats[:, 1] > 0, 0])
    assert np.flatnonzero(table.repeats == 2).tolist() == again.tolist()
    row = recorded.space.rows([17])
    assert table.space.choices(table.space.listed[17]) == recorded.space.choices(row[0])
    # Tiles are tuples: a model sees a number for each factor.
    assert any(name.endswith("[1]") for name in table.space.columns[0])
    write_parquet(tmp_path / "copy.parquet", table)
    copy = read_tuning_table(tmp_path / "copy.parquet")
    np.testing.assert_array_equal(copy.first_ns[copy.space.indices_of(table.space)], table.first_ns)


def test_tables_that_say_nothing_of_noise_are_named(tmp_path: Path) -> None:
    recorded = made_up_table("matmul-256")
    once = replace(recorded, repeats=recorded.repeats[:0])
    write_table(tmp_path / "once.arrow", once)
    with pytest.raises(DataError, match="measured again") as error:
        read_tuning_table(tmp_path / "once.arrow")
    assert error.value.where == str(tmp_path / "once.arrow")
