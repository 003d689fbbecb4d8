"""What is in a task's folder, file by file and column by column, as text and as Croissant metadata.

Croissant (https://docs.mlcommons.org/croissant) is a description of data sets that search engines and loaders
read; `mlcroissant validate` checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from costbench.artifacts import digest_file, write_json
from costbench.features.schema import DECISION_FEATURES, LAYOUT_FEATURES, NODE_FEATURES, STATIC_FEATURES
from costbench_suite.kernel_samples import SUMMARY_FEATURES
from costbench_suite.program_tables import open_table
from costbench_suite.schedule_samples import LOOP_FEATURES
from costbench_suite.tasks import VERSION, SuiteTask

CROISSANT_FILE = "croissant.json"
_LICENSES = "https://spdx.org/licenses/"
_CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
_TERMS = """citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes
isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate
separator source subField transform"""
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    **{term: f"cr:{term}" for term in _TERMS.split()},
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}
_MEANINGS: Mapping[str, str] = {
    "id": "kernel, or program and collection: what decisions are about",
    "program": "name of the program",
    "application": "application that the program belongs to; folds never divide one",
    "fold": "fold in which the program is tested, from 1; of `splits`, the fold that the row is about",
    "set": "train, validation or test",
    "decision": "number of the decision among those about the same id",
    "runtime_ns": "measured runtime in ns: what is to be predicted",
    "again_ns": "second measurement in ns",
    "measured_again": "whether `again_ns` was measured; else expected from similar schedules",
    "estimate_ns": "estimate of the compiler's own analytical model; only its order has a meaning",
    "scored": "whether metrics count it; predictions are asked for all the same",
    "fingerprint": "equal for equal kernels, in whichever program",
    "runs": "executions in a run of the program",
    "opcodes": "opcode of each node",
    "node_features": f"features of each node in turn, {len(NODE_FEATURES)} numbers each",
    "edges": "two ends of each edge in turn",
    "node_config_ids": "nodes that have options",
    "option_offsets": "first option of each of these nodes, and the number of all options",
    "option_features": f"features of each option in turn, {len(LAYOUT_FEATURES)} numbers each",
    "options": "option of each configurable node",
    "operator": "kind of the operator",
    "flops": "floating-point operations of a run",
    "target": "whether code was built for this processor (native) or for any of its architecture (generic)",
    "processor": "processor that it ran on",
    "parents": "position of the node around each node, in the order of the program; -1 for none",
    "loop_features": f"features of each node in turn, {len(LOOP_FEATURES)} numbers each: "
    + ", ".join(LOOP_FEATURES),
    "features": "numbers that sum up the kernel, in this order: " + ", ".join(SUMMARY_FEATURES),
}
_FEATURES = {feature.name: feature.meaning for feature in (*STATIC_FEATURES, *DECISION_FEATURES)}


@dataclass(frozen=True)
class DescribedColumn:
    """A column of a table: its name, its Arrow type, and its meaning in words."""

    name: str
    kind: pa.DataType
    meaning: str


@dataclass(frozen=True)
class DescribedTable:
    """A file of a task's folder: its name, its rows, and its columns."""

    file: str
    contents: str
    rows: int
    columns: tuple[DescribedColumn, ...]


def describe(folder: Path, task: SuiteTask) -> dict[str, DescribedTable]:
    """Returns the tables of a task's folder by name.

    Raises:
        DataError: for a table that is missing or damaged.
    """
    contents = {
        "programs": "a row for each program",
        "splits": "a row for each program of a set of a fold",
        **task.tables,
    }
    described = {}
    for name, text in contents.items():
        path = folder / f"{name}.parquet"
        file = open_table(path)
        columns = tuple(
            DescribedColumn(field.name, field.type, _meaning(field.name)) for field in file.schema_arrow
        )
        described[name] = DescribedTable(path.name, text, file.metadata.num_rows, columns)
    return described


def _meaning(column: str) -> str:
    if column in _MEANINGS:
        return _MEANINGS[column]
    if column in _FEATURES:
        return _FEATURES[column]
    if column.startswith("tile_"):
        return "factor of the axis at this level, outermost first"
    if column.startswith("size_"):
        return "size of the operator's shape, by its name in it"
    return column.replace("_", " ")


def write_croissant(folder: Path, task: SuiteTask, tables: Mapping[str, DescribedTable]) -> None:
    """Writes `croissant.json` of a task's folder.

    Raises:
        DataError: if a file cannot be read or written.
    """
    files = [
        {
            "@type": "cr:FileObject",
            "@id": table.file,
            "name": table.file,
            "description": table.contents,
            "contentUrl": table.file,
            "encodingFormat": "application/x-parquet",
            "sha256": digest_file(folder / table.file),
        }
        for table in tables.values()
    ]
    records = [
        {
            "@type": "cr:RecordSet",
            "@id": name,
            "name": name,
            "description": table.contents,
            "field": [_field(name, table, column) for column in table.columns],
        }
        for name, table in tables.items()
    ]
    content = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": f"costbench-suite-{task.name}",
        "description": f"{task.title}: {task.predicts}. Version {VERSION} of costbench-suite.",
        "conformsTo": _CONFORMS_TO,
        "license": _LICENSES + task.license,
        "url": f"costbench-suite-{task.name}",
        "version": f"{VERSION}.0.0",
        "distribution": files,
        "recordSet": records,
    }
    write_json(folder / CROISSANT_FILE, content)


def _field(table_name: str, table: DescribedTable, column: DescribedColumn) -> dict[str, object]:
    is_list = pa.types.is_list(column.kind)
    kind = column.kind.value_type if is_list else column.kind
    field: dict[str, object] = {
        "@type": "cr:Field",
        "@id": f"{table_name}/{column.name}",
        "name": column.name,
        "description": column.meaning,
        "dataType": _data_type(kind),
        "source": {"fileObject": {"@id": table.file}, "extract": {"column": column.name}},
    }
    return field | ({"repeated": True} if is_list else {})


def _data_type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"
