"""A model of records: of tables and logs, of any operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.metrics.ranking import kendall_tau
from costbench_schedules.experiments.earlier_records import model_of_records, read_records_of
from costbench_schedules.features.vectors import REPRESENTATIONS
from costbench_schedules.models.spec import ScheduleModelSpec
from costbench_schedules.records.table import read_table
from costbench_schedules.records.tune_log import LogEntry, LogWriter, header_of


def test_a_model_of_one_operator_orders_schedules_of_another(repository: Path) -> None:
    folder = repository / "data" / "schedules" / "native"
    model, digest = model_of_records([folder / "C1.arrow", folder / "C5.arrow"], ScheduleModelSpec(), 0)
    other = read_table(folder / "C8.arrow")
    numbers = np.flatnonzero(~other.failed)[::4]
    features = REPRESENTATIONS["relation"](other.space, other.space.rows(numbers.tolist()))
    assert kendall_tau(model.predict(features), other.columns["runtime_ns"][numbers].astype(float)) > 0.4
    assert digest != model_of_records([folder / "C1.arrow"], ScheduleModelSpec(), 0)[1]


def test_logs_and_folders_are_read(tmp_path: Path, repository: Path) -> None:
    table = read_table(repository / "data" / "schedules" / "native" / "C1.arrow")
    header = header_of(table.space, "native", {"processor": "p"}, {})
    log = tmp_path / "measurements.jsonl"
    with LogWriter(log, header) as writer:
        writer.append(LogEntry(3, 1_000, 0.1))
        writer.append(LogEntry(5, None, 0.1, reason="wrong"))
    [(path, records)] = read_records_of(log)
    assert (path, records.numbers, records.runtime_ns.tolist()) == (log, [3, 5], [1_000.0, np.inf])
    sources = [*read_records_of(repository / "data" / "schedules" / "generic")]
    assert [path.stem for path, _ in sources] == ["C2", "C6", "C9", "matmul-256", "matmul-512"]


def test_what_holds_no_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no recorded tables") as error:
        model_of_records([tmp_path], ScheduleModelSpec(), 0)
    assert error.value.where == str(tmp_path)
    (tmp_path / "x.arrow").write_text("nothing")
    with pytest.raises(DataError, match=r"x\.arrow"):
        model_of_records([tmp_path / "x.arrow"], ScheduleModelSpec(), 0)
    with pytest.raises(DataError, match=r"missing\.jsonl"):
        model_of_records([tmp_path / "missing.jsonl"], ScheduleModelSpec(), 0)
