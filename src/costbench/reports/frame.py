"""All results as one long table: a row is one metric of one model on one program.

Everything that reports show is filtered and pivoted out of this table, and the stage writes it as
`results.parquet`, which a notebook opens by `pandas.read_parquet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from costbench.arrays import F64
from costbench.artifacts import atomic_path
from costbench.errors import DataError
from costbench.metrics.rows import MetricRow
from costbench.programs.manifest import is_of_user

COLUMNS = (
    *("task", "split", "chip", "experiment", "variant", "model", "seed", "application", "program"),
    *("group", "metric", "value", "budget", "params_digest", "data_digest", "git_revision", "computed_by"),
)
"""Fields of `MetricRow` under their names, but for these:

- `experiment`: entry of section `experiments` that the row is of; `autotune` for searches.
- `group`: kernels of the program that the metric is over (`MetricRow.kernels`).
- `budget`: what a search might spend (`top10`, `default-1m`); empty for everything else.
"""
ORDER = (
    *("task", "split", "chip", "model", "variant", "seed", "application", "program", "group", "metric"),
    *("value", "params_digest", "data_digest", "git_revision", "computed_by"),
)
"""Columns that rows are sorted by, as files of rows are."""
_FIELDS = (*COLUMNS[:3], *COLUMNS[4:9], "kernels", *COLUMNS[10:12], *COLUMNS[13:])


def frame_of(rows: Iterable[MetricRow], experiment: str = "") -> pd.DataFrame:
    """Returns rows as a frame with the columns `COLUMNS`, in their order.

    Args:
        rows: results.
        experiment: experiment that they are of.
    """
    frame = pd.DataFrame(map(attrgetter(*_FIELDS), rows), columns=list(_FIELDS))
    return _with_all_columns(frame.assign(experiment=experiment))


def frame_of_packed(table: pa.Table, where: Path) -> pd.DataFrame:
    """Returns rows of an archive's `rows.parquet` as such a frame, in the order of the table.

    Args:
        table: rows of one part.
        where: path of the file, for errors.

    Raises:
        DataError: for a value that is not finite, or two rows with the same key, as for rows in files.
    """
    frame = _with_all_columns(table.to_pandas())
    keys = list(ORDER[: ORDER.index("value")])
    for problem, wrong, expected in (
        ("not finite", ~np.isfinite(frame["value"].to_numpy()), "a finite number"),
        ("there twice", frame.duplicated([name for name in keys if name != "application"]), "one row"),
    ):
        if wrong.any():
            row = "/".join(map(str, frame.loc[wrong, keys].iloc[0]))
            raise DataError(f"{row} is {problem}", where=where, expected=expected)
    return frame


def _with_all_columns(frame: pd.DataFrame) -> pd.DataFrame:
    kinds = dict.fromkeys(COLUMNS, "str") | {"seed": "int64", "value": "float64"}
    frame = frame.rename(columns={"kernels": "group"}).assign(budget="")
    return frame[list(COLUMNS)].astype(kinds)


def stack(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Returns results one below the other, with rows numbered anew and text in one piece.

    Left in pieces, it would be joined by pyarrow whenever rows are taken, and that is often.
    """
    table = pa.Table.from_pandas(pd.concat(frames, ignore_index=True), preserve_index=False)
    stacked: pd.DataFrame = table.combine_chunks().to_pandas()
    return stacked


def select(frame: pd.DataFrame, **values: str | Sequence[str]) -> pd.DataFrame:
    """Returns the rows whose columns have the given values, or any of several.

    Args:
        frame: results.
        values: column -> the value or values to keep.
    """
    # One mask for all columns: rows that a later column leaves out are not copied before.
    mask = np.ones(len(frame), dtype=np.bool_)
    for column, value in values.items():
        matches = frame[column] == value if isinstance(value, str) else frame[column].isin(list(value))
        mask &= matches.to_numpy(dtype=np.bool_)
    return frame[mask]


def split_user_programs(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the rows of the corpus, which averages and verdicts are over, and those of a user's programs.

    Args:
        frame: results.
    """
    of_user = frame["application"].isin([name for name in frame["application"].unique() if is_of_user(name)])
    return frame[~of_user], frame[of_user]


def means(frame: pd.DataFrame, by: Sequence[str]) -> pd.Series[float]:
    """Returns the mean value of each group of rows, such as the seeds of a model on a program.

    Sums are taken in the order of rows, so that equal rows give equal bits (pandas' own mean corrects its
    rounding errors, and so differs from NumPy's in the last bit).

    Args:
        frame: results.
        by: columns whose values a group shares.
    """
    groups = frame.groupby(list(by), sort=True)["value"]
    sizes = groups.size()
    in_order = np.argsort(groups.ngroup().to_numpy(), kind="stable")
    values, counts = frame["value"].to_numpy(dtype=np.float64)[in_order], sizes.to_numpy()
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    group_means: F64 = np.empty(len(counts), dtype=np.float64)
    for count in np.unique(counts):
        same = counts == count
        group_means[same] = values[starts[same][:, np.newaxis] + np.arange(count)].mean(axis=1)
    return pd.Series(group_means, index=sizes.index)


def split_by(frame: pd.DataFrame, columns: Sequence[str]) -> dict[tuple[str, ...], pd.DataFrame]:
    """Returns the rows of each combination of values of some columns, sorted by them."""
    return {tuple(map(str, key)): rows for key, rows in frame.groupby(list(columns))}


def number(value: object) -> float | None:
    """Returns a cell of a frame as a number, None where it is missing."""
    return None if value is None or pd.isna(value) else float(value)  # type: ignore[call-overload, arg-type]


def flatten(frame: pd.DataFrame, key: str, columns: Mapping[str, str] | Iterable[str]) -> dict[str, float]:
    """Returns numbers of a frame by key of the summary, missing ones left out.

    Args:
        frame: rows.
        key: beginning of a row's keys, with names of columns in braces: `leakage/{task}/{split}`.
        columns: columns with numbers, which end the keys; or such ends -> columns.
    """
    named = columns if isinstance(columns, Mapping) else {column: column for column in columns}
    return {
        f"{key.format_map(row)}/{end}": float(row[column])
        for row in frame.to_dict("records")
        for end, column in named.items()
        if pd.notna(row[column])
    }


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Writes results as Parquet, text as categories, the same bytes for the same results.

    Each page of values has a checksum, which `pandas.read_parquet` compares with
    `page_checksum_verification=True`.

    Raises:
        DataError: if the file cannot be written.
    """
    texts = {name: "category" for name in frame.columns if name not in ("seed", "value")}
    with atomic_path(path) as temporary:
        frame.astype(texts).to_parquet(temporary, index=False, compression="zstd", write_page_checksum=True)
