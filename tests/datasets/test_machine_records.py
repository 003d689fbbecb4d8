from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from costbench.artifacts import read_json, write_json
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.datasets.machine_records import (
    CARD,
    CONFIG_COLUMNS,
    KERNEL_COLUMNS,
    KERNELS,
    MACHINE,
    MachineRecords,
    machines,
    open_records,
    read_table,
    write_table,
)
from costbench.errors import DataError
from costbench.hardware.xla_cpu.program import row_major
from costbench.hlo.reader import read_module

ROW: dict[str, Any] = {
    "program": "small", "application": "Small", "fingerprint": bytes(range(16)), "computation": 1,
    "inputs": [0], "instructions": [2, 3], "outputs": [3], "config": 0, "places": 2, "default_runs": 1,
    "operations": 1,
}  # fmt: skip
ROW |= {
    f"{number}_{name}": 3 for number in ("first", "second") for name in ("ns", "median_ns", "repeats", "cpu")
}


def test_rows_come_back(tmp_path: Path) -> None:
    write_table(tmp_path / KERNELS, [ROW], KERNEL_COLUMNS)
    [row] = read_table(tmp_path / KERNELS, KERNEL_COLUMNS).to_dict("records")
    assert {key: list(value) if isinstance(value, np.ndarray) else value for key, value in row.items()} == ROW


def test_files_that_are_no_such_table(tmp_path: Path) -> None:
    path = tmp_path / KERNELS
    with pytest.raises(DataError, match="no such file"):
        read_table(path, KERNEL_COLUMNS)
    path.write_bytes(b"PAR1 and more")
    with pytest.raises(DataError, match=str(path)):
        read_table(path, KERNEL_COLUMNS)
    write_table(path, [ROW], KERNEL_COLUMNS)
    with pytest.raises(DataError, match="origin: missing or of another type"):
        read_table(path, CONFIG_COLUMNS)


def test_empty_values_and_nan_are_named_with_their_row(tmp_path: Path) -> None:
    path = tmp_path / KERNELS
    write_table(path, [ROW, ROW | {"second_cpu": float("nan")}], KERNEL_COLUMNS)
    with pytest.raises(DataError, match=r"kernels\.parquet: second_cpu: row 1 is NaN"):
        read_table(path, KERNEL_COLUMNS)
    write_table(path, [ROW, ROW, ROW], KERNEL_COLUMNS)
    table = pq.read_table(path)
    index = table.schema.get_field_index("first_ns")
    pq.write_table(table.set_column(index, "first_ns", pa.array([5, None, 7])), path)
    with pytest.raises(DataError, match="first_ns: row 1 is empty"):
        read_table(path, KERNEL_COLUMNS)


def test_records_of_another_version(tmp_path: Path) -> None:
    write_json(tmp_path / "here" / MACHINE, {"version": 0})
    assert machines(tmp_path) == ("here",)
    with pytest.raises(DataError, match="version: is of another version"):
        open_records(tmp_path, "here")


@pytest.fixture(scope="module", params=["data/xla_cpu"])
def committed(request: pytest.FixtureRequest, repository: Path) -> MachineRecords:
    folder = repository / request.param
    if not machines(folder):
        pytest.skip(f"no records in {folder}")
    return open_records(folder, machines(folder)[0])


def test_the_committed_records_are_what_their_card_says(committed: MachineRecords) -> None:
    card: Any = read_json(committed.folder / CARD)
    kernels, configs = committed.kernels, committed.configs
    assert len(kernels) == card["kernels"]
    assert kernels["fingerprint"].nunique() == card["distinct_kernels"]
    assert configs["program"].nunique() == card["programs"] == len(committed.entries)
    assert configs["application"].nunique() == card["applications"]
    assert configs["origin"].value_counts().to_dict() == card["configs"]
    for name in ("first", "second"):
        assert (kernels[f"{name}_ns"] >= 1).all()
        assert (kernels[f"{name}_median_ns"] >= kernels[f"{name}_ns"]).all()
    size = sum(path.stat().st_size for path in committed.folder.parent.rglob("*") if path.is_file())
    assert size < 6_000_000


def test_the_committed_kernels_are_parts_of_their_programs(committed: MachineRecords) -> None:
    names = committed.kernels["program"].value_counts()
    # The programs of fewest kernels: fingerprints of all would take minutes.
    for program in names.index[-4:]:
        module = row_major(read_module(committed.programs_folder / committed.entries[program].file))
        fingerprints = ModuleFingerprints(module)
        rows = committed.kernels[committed.kernels["program"] == program]
        for row in rows.itertuples():
            parts = (tuple(map(int, part)) for part in (row.inputs, row.instructions, row.outputs))
            assert fingerprints.subgraph(row.computation, *parts) == row.fingerprint.hex()


def test_the_committed_configs_refer_to_kernels(committed: MachineRecords) -> None:
    known = set(zip(committed.kernels["program"], committed.kernels["fingerprint"], strict=True))
    for config in committed.configs.itertuples():
        assert len(config.fingerprints) == len(config.runs) == len(set(config.fingerprints))
        assert min(config.runs) >= 1
        measured = sum((config.program, name) in known for name in config.fingerprints)
        # XLA removes few kernels; most have a runtime.
        assert measured >= 0.5 * len(config.fingerprints)
