"""The README of a task's folder: what is predicted, from what, how it is scored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costbench.artifacts import write_text
from costbench_suite.croissant import DescribedTable
from costbench_suite.tasks import VERSION, SuiteTask

_TEXT = """\
# costbench-suite, version {version}: {title}

**To predict**: {predicts}.

**May be trained on**: in each fold, the programs of the sets `train` and `validation`, with everything in
these files. Every program is tested in one fold, by a model that never saw a runtime of its application.

**Scored** by `costbench suite score predictions.parquet --task {name} --name NAME`: a file with the columns
`id`, `decision` and `cost` (and `seed`, where a model was trained several times), one row for each row of
`decisions.parquet`.
Metrics: {metrics}; what they mean is in `docs/suite.md` of costbench.

**Weaknesses**: {weaknesses}

**Source and licence**: {source}; {license}.
`costbench suite data --task {name}` makes these files again, value by value.

| file | rows | columns | digest of the values |
|---|---|---|---|
{files}

{columns}"""


def write_readme(
    folder: Path, task: SuiteTask, tables: Mapping[str, DescribedTable], digests: Mapping[str, str]
) -> None:
    """Writes `README.md` of a task's folder.

    Raises:
        DataError: if it cannot be written.
    """
    files = "\n".join(
        f"| `{table.file}` | {table.rows:,} | {len(table.columns)} | `{digests[name][:16]}` |"
        for name, table in tables.items()
    )
    columns = "\n".join(_columns(table) for table in tables.values())
    text = _TEXT.format(
        version=VERSION,
        title=task.title,
        name=task.name,
        predicts=task.predicts,
        metrics=", ".join(f"`{metric}`" for metric in task.metrics),
        weaknesses=task.weaknesses,
        source=task.source,
        license=task.license,
        files=files,
        columns=columns,
    )
    write_text(folder / "README.md", text)


def _columns(table: DescribedTable) -> str:
    shown = [f"- `{column.name}` ({column.kind}): {column.meaning}" for column in table.columns]
    contents = table.contents[0].upper() + table.contents[1:]
    return "\n".join([f"## {table.file}", "", f"{contents}.", "", *shown, ""])
