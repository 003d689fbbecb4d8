"""An archive of results: a folder of Parquet files and a manifest, small enough for git.

    archive.json         profile, digests of the other files, and each part with what it follows from
    rows.parquet         metric rows of all stages: `stage`, `experiment` and the fields of `MetricRow`
    histories.parquet    learning curves, a row for each epoch and metric
    points.parquet       predicted and measured runtimes, a row for each kernel and model
    files.parquet        everything else as text: budgets, identities, cards, audits, trials, searches

A part is an experiment (`experiments/NAME`: trained and evaluated) or another stage by name. Equal results
are equal bytes, as long as the version of pyarrow is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from costbench.artifacts import digest_bytes, read_bytes, read_json, write_bytes, write_json
from costbench.errors import DataError, ParamsError
from costbench.metrics.rows import MetricRow
from costbench.params import parse

MANIFEST_FILE = "archive.json"
ROWS, HISTORIES, POINTS, FILES = "rows.parquet", "histories.parquet", "points.parquet", "files.parquet"
FORMAT = 1
_LEVEL, _PAGE_BYTES = 19, 1 << 26


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()
_ROW_TYPES: Mapping[str, pa.DataType] = {"seed": _INT, "value": _FLOAT}
SCHEMAS: Mapping[str, pa.Schema] = {
    ROWS: _schema(
        stage=_TEXT,
        experiment=_TEXT,
        **{field.name: _ROW_TYPES.get(field.name, _TEXT) for field in fields(MetricRow)},
    ),
    HISTORIES: _schema(experiment=_TEXT, cell=_TEXT, epoch=_INT, step=_INT, metric=_TEXT, value=_FLOAT),
    POINTS: _schema(
        experiment=_TEXT,
        entry=_INT,
        task=_TEXT,
        split=_TEXT,
        chip=_TEXT,
        model=_TEXT,
        predicted_ns=_FLOAT,
        measured_ns=_FLOAT,
    ),
    FILES: _schema(path=_TEXT, text=_TEXT),
}
"""Columns of each file.

`experiment` of a row is the folder below its stage, empty where there is none; `entry` numbers the programs
and models of an experiment.
"""

Record = tuple[str | int | float, ...]


@dataclass(frozen=True)
class PartEntry:
    """What the manifest says of a part.

    Attributes:
        params_digest: identity of the parameters that it follows from.
        data_digest: identity of the samples.
        code_digest: identity of the code that computed it.
        git_revision: revision of that code; empty for parts without metric rows.
        rows: number of metric rows.
        cells: number of trained cells.
    """

    params_digest: str
    data_digest: str
    code_digest: str
    git_revision: str
    rows: int
    cells: int


@dataclass(frozen=True)
class Manifest:
    """The file `archive.json`.

    Attributes:
        format: version of the layout of the folder.
        profile: name of the profile that the results are of.
        files: SHA-256 of each Parquet file, by name.
        parts: description of each part, by name.
    """

    format: int
    profile: str
    files: Mapping[str, str]
    parts: Mapping[str, PartEntry]

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"format is {self.format}, must be {FORMAT}: this version reads no other")
        if sorted(self.files) != sorted(SCHEMAS):
            raise ValueError(f"files are {sorted(self.files)}, must be {sorted(SCHEMAS)}")


@dataclass(frozen=True)
class Part:
    """The results of a part.

    Attributes:
        entry: what the manifest says of it.
        tables: rows of each Parquet file that belong to the part, by name of the file.
    """

    entry: PartEntry
    tables: Mapping[str, pa.Table]


def part_of(stage: str, experiment: str) -> str:
    """Return the name of the part that a folder of results belongs to."""
    return f"experiments/{experiment}" if stage in ("train", "evaluate") else stage


def table_of(file: str, records: Iterable[Record]) -> pa.Table:
    """Return records as a table with the columns of a Parquet file."""
    schema = SCHEMAS[file]
    columns = list(zip(*records, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def records_of(table: pa.Table) -> list[Record]:
    """Return the rows of a table."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an archive. Raises: DataError, if it is missing, damaged or something else."""
    path = folder / MANIFEST_FILE
    try:
        return parse(Manifest, read_json(path), where=path)
    except ParamsError as error:
        raise DataError(error.problem, where=path, field=error.field, expected=error.expected) from error


def read_archive(folder: Path, manifest: Manifest) -> dict[str, Part]:
    """Return the parts of an archive by name.

    Args:
        folder: of the archive.
        manifest: its own.

    Raises:
        DataError: naming the file, if one is missing, is not the one that the manifest is about, or has other
            columns.
    """
    tables: dict[str, dict[str, pa.Table]] = {name: {} for name in manifest.parts}
    for file in SCHEMAS:
        for name, table in _by_part(file, _read_table(folder / file, manifest.files[file])).items():
            if name not in tables:
                raise DataError(f"rows of {name!r}", where=folder / file, expected=", ".join(manifest.parts))
            tables[name][file] = table
    empty = {file: table_of(file, ()) for file in SCHEMAS}
    return {name: Part(entry, empty | tables[name]) for name, entry in manifest.parts.items()}


def _read_table(path: Path, digest: str) -> pa.Table:
    data = read_bytes(path)
    if digest_bytes(data) != digest:
        expected = f"the bytes that {MANIFEST_FILE} has the digest of, as git keeps them"
        raise DataError("damaged, or of another archive", where=path, expected=expected)
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"no Parquet: {error}", where=path) from error
    if not table.schema.equals(SCHEMAS[path.name]):
        found = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
        expected = ", ".join(f"{field.name}: {field.type}" for field in SCHEMAS[path.name])
        raise DataError(f"the columns {found}", where=path, expected=expected)
    return table


def _by_part(file: str, table: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of each part, in their order."""
    if file == FILES:
        paths = (path.removeprefix("machine/") for path in table["path"].to_pylist())
        folders = [(*path.split("/"), "", "")[:2] for path in paths]
    elif file == ROWS:
        folders = list(zip(table["stage"].to_pylist(), table["experiment"].to_pylist(), strict=True))
    else:
        folders = [("train", name) for name in table["experiment"].to_pylist()]
    indices: dict[str, list[int]] = {}
    for index, (stage, experiment) in enumerate(folders):
        indices.setdefault(part_of(stage, experiment), []).append(index)
    return {name: table.take(pa.array(own)) for name, own in indices.items()}


def write_archive(folder: Path, profile: str, parts: Mapping[str, Part]) -> Manifest:
    """Write an archive, the manifest last.

    Raises:
        DataError: if a file cannot be written.
    """
    digests = {}
    for file, schema in SCHEMAS.items():
        table = pa.concat_tables(
            [schema.empty_table(), *(parts[name].tables[file] for name in sorted(parts))]
        )
        data = _parquet(table)
        digests[file] = digest_bytes(data)
        write_bytes(folder / file, data)
    manifest = Manifest(FORMAT, profile, digests, {name: parts[name].entry for name in sorted(parts)})
    write_json(folder / MANIFEST_FILE, asdict(manifest))
    return manifest


def _parquet(table: pa.Table) -> bytes:
    """Return the bytes of a Parquet file."""
    # A measure and its relatives, or a group of kernels and a larger one, often have equal values: zstd finds
    # them in long pages, and packs them better than a dictionary or the bytes of numbers apart.
    plain = [field.name for field in table.schema if pa.types.is_floating(field.type) or field.name == "text"]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.combine_chunks(),
        sink,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name in table.schema.names if name not in plain],
        data_page_size=_PAGE_BYTES,
    )
    return bytes(sink.getvalue())
