"""Result rows: one metric of one model on one program, with everything that is needed to verify it.

Rows are the only thing that evaluation hands to reports. A file of rows is JSON lines in one canonical
order, so equal results are equal bytes; it is read strictly, because a table made of misread rows looks like
any other table.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from os import PathLike
from types import MappingProxyType
from typing import Any

from costbench.artifacts import parse_json, read_bytes, write_text
from costbench.errors import DataError


@dataclass(frozen=True, order=True)
class MetricRow:
    """One number.

    Attributes:
        task: task, such as `tile`.
        split: split, such as `random` or `folds`.
        chip: chip or machine, such as `tpu_v3`.
        model: `learned`, `hybrid`, `analytical`, `random`, `iterations`; `best` for what depends on none.
        variant: `main`, or the ablation that the model was trained for (`undirected`, `gat-lstm`).
        seed: seed of the training run (or of the random ranking); 0 for models without one.
        application: application family of the program.
        program: name of the test program.
        kernels: group of its kernels: `all`, `unseen` (those that training has not seen),
            `new_structure` (those whose operator graph, extents aside, it has not seen), or those of a kind.
        metric: name of the metric, unit included where it has one (`tile_size_ape`: percent).
        value: the number, finite.
        params_digest: identity of the parameters that the numbers follow from.
        data_digest: identity of the samples.
        git_revision: revision of the code.
        computed_by: `compiled` kernels or the `plain` network for a trained network; empty for other models.
    """

    task: str
    split: str
    chip: str
    model: str
    variant: str
    seed: int
    application: str
    program: str
    kernels: str
    metric: str
    value: float
    params_digest: str
    data_digest: str
    git_revision: str
    computed_by: str = ""

    @property
    def key(self) -> tuple[str | int, ...]:
        """Returns the fields that must be unique: everything but the value and its provenance."""
        return _key_of(self)


_key_of = attrgetter("task", "split", "chip", "model", "variant", "seed", "program", "kernels", "metric")


@dataclass(frozen=True)
class RowOrigin:
    """What all rows of one program's results have in common; fields are those of `MetricRow`."""

    task: str
    split: str
    chip: str
    application: str
    program: str
    params_digest: str
    data_digest: str
    git_revision: str

    def rows(
        self,
        kernels: str,
        metrics: Mapping[tuple[str, str, int], Mapping[str, float]],
        computed_by: Mapping[tuple[str, str, int], str] = MappingProxyType({}),
    ) -> Iterator[MetricRow]:
        """Yields rows of metrics by model, variant and seed, over a group of kernels.

        Args:
            kernels: name of the group.
            metrics: values by name, by model, variant and seed.
            computed_by: see `MetricRow`, for the models that are trained networks.
        """
        common = asdict(self)
        for (model, variant, seed), values in metrics.items():
            for metric, value in values.items():
                yield MetricRow(
                    model=model,
                    variant=variant,
                    seed=seed,
                    kernels=kernels,
                    metric=metric,
                    value=value,
                    computed_by=computed_by.get((model, variant, seed), ""),
                    **common,
                )


MAIN = "main"
"""The variant of results that belong to no ablation."""
PROGRAMS = "programs"
"""Group of rows that are over the fusion configs of a program, which ran as a whole on a real machine."""
_TYPES: dict[str, type] = {"seed": int, "value": float}
_NAMES = tuple(field.name for field in fields(MetricRow))
_in_order = attrgetter(*_NAMES)
_SORTED = tuple(sorted(_NAMES))
_KINDS = tuple(_TYPES.get(name, str) for name in _SORTED)


def write_rows(path: str | PathLike[str], rows: Iterable[MetricRow]) -> None:
    """Writes rows as JSON lines, sorted, atomically.

    Raises:
        DataError: naming `path`, if a value is not finite or two rows have the same key.
    """
    ordered = sorted(rows, key=_in_order)
    for row in ordered:
        if not math.isfinite(row.value):
            raise DataError(
                f"{row.value} in {row.key}", where=path, field="value", expected="a finite number"
            )
    _check_unique(ordered, path)
    lines = (json.dumps(asdict(row), sort_keys=True, allow_nan=False, ensure_ascii=False) for row in ordered)
    write_text(path, "".join(f"{line}\n" for line in lines))


def read_rows(path: str | PathLike[str]) -> tuple[MetricRow, ...]:
    """Returns the rows of a file, sorted.

    Raises:
        DataError: naming file, line and field, for a line that is no row, a missing or unknown field, a
            wrong type, a value that is not finite, or two rows with the same key.
    """
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", where=path) from error
    # Not `splitlines`, which also splits at separators that JSON leaves in strings, such as U+2028.
    lines = list(io.StringIO(text, newline="\n"))
    rows = _parse_all(lines) or [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    rows.sort(key=_in_order)
    _check_unique(rows, path)
    return tuple(rows)


def _parse_all(lines: Sequence[str]) -> list[MetricRow] | None:
    """Returns the rows of lines as `write_rows` writes them, at once; None if one is written otherwise."""
    try:
        parsed: Any = parse_json(f"[{','.join(lines)}]".encode(), "")
    except DataError:
        return None
    # What fills several lines, or one in part, has another number of values, or one that holds others.
    as_written = len(parsed) == len(lines) and all(
        type(values) is dict and tuple(values) == _SORTED and tuple(map(type, values.values())) == _KINDS
        for values in parsed
    )
    return [MetricRow(**values) for values in parsed] if as_written else None


def _check_unique(rows: Iterable[MetricRow], path: str | PathLike[str]) -> None:
    seen: set[tuple[str | int, ...]] = set()
    for key in map(_key_of, rows):
        if key in seen:
            raise DataError(f"two rows for {'/'.join(map(str, key))}", where=path, expected="one")
        seen.add(key)


def _parse(line: str, where: str) -> MetricRow:
    values = parse_json(line.encode(), where)
    if not isinstance(values, dict) or sorted(values) != sorted(_NAMES):
        raise DataError("not a result row", where=where, expected=f"the fields {', '.join(_NAMES)}")
    for name, value in values.items():
        kind = _TYPES.get(name, str)
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or isinstance(value, bool):
            raise DataError(f"{value!r}", where=where, field=name, expected=f"a {kind.__name__}")
    row = MetricRow(**{**values, "value": float(values["value"])})
    if not math.isfinite(row.value):
        raise DataError(f"{row.value}", where=where, field="value", expected="a finite number")
    return row
