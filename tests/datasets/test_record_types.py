from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.datasets.arrow_tables import stored_columns
from costbench.datasets.record_types import RECORD_TYPES


def test_every_column_is_documented_and_little_endian() -> None:
    for name, record in RECORD_TYPES.items():
        assert name == record.name
        keys = [column.key for column in record.columns]
        assert len(set(keys)) == len(keys)
        for column in record.columns:
            assert column.meaning
            assert np.dtype(column.dtype).str == column.dtype
            assert column.dtype[0] in "<|"
            assert column.offsets_into is None or column.offsets_into in keys
            assert column.key.endswith("_offsets") == (column.offsets_into is not None)
            assert column.key.endswith("_ns") == (column.unit == "ns")
        # All record types have decisions, but for further features of nodes.
        assert (record.runtime == "") == (name == "node_extras")
        if record.runtime:
            assert record.column(record.runtime).unit == "ns"


def test_the_data_dictionary_lists_every_column(repository: Path) -> None:
    page = (repository / "docs" / "data.md").read_text()
    for record in RECORD_TYPES.values():
        for stored in stored_columns(record):
            column = stored.column
            kind = "metadata" if stored.field is None else f"`{shown(str(stored.field.type))}`"
            assert f"| `{column.key}` | {kind} | {column.unit} | {column.meaning} |" in page


def shown(arrow_type: str) -> str:
    """An Arrow type without what is the same everywhere: 64-bit offsets, no nulls, names of items."""
    for word in ("item: ", " not null", "large_"):
        arrow_type = arrow_type.replace(word, "")
    return arrow_type.replace("fixed_size_binary", "binary")
