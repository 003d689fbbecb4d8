"""Scales features to [0, 1] by their extremes over the training data.

Scalers are fitted in one pass over chunks of any size, so the data need not fit into memory.
Columns that are constant over the training data carry no information there and are dropped. Source:
lpm2021, section 3.1; the data set's own baseline does the same (tpugraphs2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from costbench.arrays import F32, F64, I64, AnyArray, AnyFloat, Bool
from costbench.errors import DataError, choose
from costbench.features import schema

Transform = Literal["none", "log1p"]
"""Function applied to values before scaling; `log1p` is sign(x) * log(1 + |x|), for wide ranges."""


def _identity(values: F64) -> F64:
    return values


def _signed_log1p(values: F64) -> F64:
    sizes = np.abs(values)
    return np.copysign(np.log1p(sizes, out=sizes), values, out=sizes)


# Scaled at a time, so that what lies between input and output stays in the processor's cache.
_CHUNK_VALUES = 1 << 15
_TRANSFORMS: dict[str, Callable[[F64], F64]] = {"none": _identity, "log1p": _signed_log1p}
_NAMES_BY_WIDTH = {
    len(table): schema.names(table)
    for table in (
        schema.NODE_FEATURES,
        schema.TILE_FEATURES,
        schema.DECISION_FEATURES,
        schema.LAYOUT_FEATURES,
        schema.STATIC_FEATURES,
    )
}


def _known_names(width: int) -> tuple[str, ...]:
    """Returns the names of the columns of a table of `schema`, or of node features with a user's behind."""
    extra = width - schema.NUM_NODE_FEATURES
    if extra > 0:
        return (*schema.names(schema.NODE_FEATURES), *(f"extra_{number}" for number in range(extra)))
    return _NAMES_BY_WIDTH.get(width, ())


def _column_name(names: Sequence[str], index: int, width: int) -> str:
    known_names = names or _known_names(width)
    return known_names[index] if known_names else f"column {index}"


def _require_finite(values: AnyArray, names: Sequence[str]) -> None:
    if np.isfinite(values).all():
        return
    index = np.argwhere(~np.isfinite(values))[0]
    field = _column_name(names, int(index[-1]), values.shape[-1])
    raise DataError(
        f"value {values[tuple(index)]}", where="features", field=field, expected="a finite number"
    )


@dataclass(frozen=True, eq=False)
class MinMaxNormalizer:
    """y = (t(x) - t(min)) / (t(max) - t(min)) for every column that varies over the training data.

    Values outside the training range give results outside [0, 1]: nothing is cut, as their order counts.

    Attributes:
        minimum: float64 [k], smallest training value of each column, before the transform t.
        maximum: float64 [k], largest one.
        transform: t, one of `Transform`.
        names: names of the columns, for errors; empty for the tables of `schema`, known by their width.
    """

    minimum: F64
    maximum: F64
    transform: Transform = "none"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        choose(_TRANSFORMS, self.transform, "transform")
        if self.minimum.ndim != 1 or self.minimum.shape != self.maximum.shape:
            shapes = f"{self.minimum.shape} and {self.maximum.shape}"
            raise DataError(f"bounds of shapes {shapes}", field="minimum", expected="[k] and [k]")
        if self.names and len(self.names) != len(self.minimum):
            expected = f"{len(self.minimum)} names"
            raise DataError(f"{len(self.names)} names", field="names", expected=expected)
        _require_finite(self.minimum, self.names)
        _require_finite(self.maximum, self.names)
        if (self.minimum > self.maximum).any():
            index = int(np.argmax(self.minimum > self.maximum))
            field = _column_name(self.names, index, self.num_inputs)
            raise DataError("minimum above maximum", where="features", field=field)

    @staticmethod
    def fit(
        chunks: Iterable[AnyFloat],
        transform: Transform = "none",
        names: Sequence[str] = (),
    ) -> MinMaxNormalizer:
        """Fits to chunks [., k] of training rows.

        Raises:
            DataError: without any row, on NaN or infinity (naming the column), or on different widths.
            ChoiceError: on an unknown transform.
        """
        fit = MinMaxFit(transform, names)
        for chunk in chunks:
            fit.update(chunk)
        return fit.finish()

    @property
    def num_inputs(self) -> int:
        """Columns before dropping."""
        return len(self.minimum)

    @cached_property
    def varying(self) -> Bool:
        """Which columns vary over the training data: bool [k]."""
        low, high = self._bounds
        return high > low

    @property
    def num_outputs(self) -> int:
        """Columns after dropping."""
        return len(self._scale[0])

    @cached_property
    def _bounds(self) -> tuple[F64, F64]:
        apply = _TRANSFORMS[self.transform]
        return apply(self.minimum), apply(self.maximum)

    @cached_property
    def _scale(self) -> tuple[I64, F64, F64]:
        """Returns the kept columns, t(minimum), and t(maximum) - t(minimum) of each; t is the transform."""
        low, high = (bound[self.varying] for bound in self._bounds)
        return np.flatnonzero(self.varying), low, high - low

    def __call__(self, values: AnyFloat) -> F32:
        """Scales [..., k] to float32 [..., num_outputs]; training rows come to lie in [0, 1].

        Raises:
            DataError: on another number of columns, or on NaN or infinity (naming the column).
        """
        if values.ndim < 1 or values.shape[-1] != self.num_inputs:
            problem = f"features of shape {values.shape}"
            raise DataError(problem, field="features", expected=f"[..., {self.num_inputs}]")
        rows = values.reshape(-1, self.num_inputs)
        scaled = np.empty((len(rows), self.num_outputs), np.float32)
        step = max(1, _CHUNK_VALUES // max(1, self.num_inputs))
        for start in range(0, len(rows), step):
            scaled[start : start + step] = self._scaled(rows[start : start + step])
        return scaled.reshape(*values.shape[:-1], self.num_outputs)

    def _scaled(self, rows: AnyFloat) -> F64:
        _require_finite(rows, self.names)
        columns, low, spread = self._scale
        scaled = _TRANSFORMS[self.transform](np.take(rows, columns, axis=1).astype(np.float64))
        np.subtract(scaled, low, out=scaled)
        return np.divide(scaled, spread, out=scaled)

    def beyond(self, values: AnyFloat) -> F64:
        """Returns how far each column leaves its training range, float64 [k]; 1 within.

        With s(x) = sign(x) log(1 + |x|) it is exp(max(s(max x) - s(maximum), s(minimum) - s(min x), 0)):
        about the ratio of a value to the training data's largest. Columns that are dropped are within.

        Args:
            values: rows [n, k] before scaling.
        """
        if not len(values):
            return np.ones(self.num_inputs)
        ends = values.max(axis=0), self.maximum, self.minimum, values.min(axis=0)
        highest, high, low, lowest = (_signed_log1p(np.array(end, np.float64)) for end in ends)
        excess = np.maximum(np.maximum(highest - high, low - lowest), 0.0)
        return np.exp(np.where(self.varying, excess, 0.0))

    def column_name(self, index: int) -> str:
        """Returns the name of a column."""
        return _column_name(self.names, index, self.num_inputs)

    def of_columns(self, columns: Sequence[int]) -> MinMaxNormalizer:
        """Returns the scaler of some of the columns, in ascending order."""
        indices = np.array(columns, np.int64)
        names = tuple(_column_name(self.names, column, self.num_inputs) for column in columns)
        return replace(self, minimum=self.minimum[indices], maximum=self.maximum[indices], names=names)

    def without(self, endings: Sequence[str]) -> MinMaxNormalizer:
        """Returns a scaler that also drops columns whose names end with one of `endings`.

        Columns that have no names are kept.
        """
        names = self.names or _known_names(self.num_inputs)
        dropped = np.array([name.endswith(tuple(endings)) for name in names], dtype=bool)
        if not dropped.any():
            return self
        return replace(self, maximum=np.where(dropped, self.minimum, self.maximum))

    def to_dict(self) -> dict[str, Any]:
        """Returns a JSON value that `from_dict` turns into an equal scaler, bit for bit."""
        return {
            "transform": self.transform,
            "names": list(self.names),
            "minimum": self.minimum.tolist(),
            "maximum": self.maximum.tolist(),
        }

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> MinMaxNormalizer:
        """Returns the scaler that `to_dict` described.

        Raises:
            DataError: on missing or unknown keys, on values that are no numbers or names, or on impossible
                bounds.
            ChoiceError: on an unknown transform.
        """
        expected = ("transform", "names", "minimum", "maximum")
        if set(content) != set(expected):
            raise DataError(f"keys {sorted(content)}", where="scaler", expected=", ".join(expected))
        try:
            bounds = [np.array(content[key], dtype=np.float64) for key in ("minimum", "maximum")]
        except (TypeError, ValueError) as error:
            raise DataError(
                f"bounds are no numbers: {error}", where="scaler", expected="lists of numbers"
            ) from error
        names, transform = content["names"], content["transform"]
        is_list = isinstance(names, list | tuple)
        if not is_list or not all(isinstance(name, str) for name in [*names, transform]):
            raise DataError("names or transform are no text", where="scaler", expected="names")
        return MinMaxNormalizer(bounds[0], bounds[1], transform, tuple(names))


class MinMaxFit:
    """Accumulates the extremes of chunks of training rows."""

    def __init__(self, transform: Transform = "none", names: Sequence[str] = ()) -> None:
        choose(_TRANSFORMS, transform, "transform")
        self._transform: Transform = transform
        self._names = tuple(names)
        self._minimum: F64 | None = None
        self._maximum: F64 | None = None

    def update(self, chunk: AnyFloat) -> None:
        """Updates the extremes by a chunk [., k]; an empty one changes nothing.

        Raises:
            DataError: on NaN or infinity (naming the column) or another width than before.
        """
        known = self._minimum if len(chunk) else None
        if chunk.ndim != 2 or (known is not None and chunk.shape[1] != len(known)):
            width = "k" if self._minimum is None else len(self._minimum)
            raise DataError(f"a chunk of shape {chunk.shape}", field="features", expected=f"[rows, {width}]")
        if not len(chunk):
            return
        _require_finite(chunk, self._names)
        low, high = chunk.min(axis=0).astype(np.float64), chunk.max(axis=0).astype(np.float64)
        if self._minimum is not None and self._maximum is not None:
            low, high = np.minimum(self._minimum, low), np.maximum(self._maximum, high)
        self._minimum, self._maximum = low, high

    def finish(self) -> MinMaxNormalizer:
        """Returns the scaler for the rows so far.

        Raises:
            DataError: if there was no row.
        """
        if self._minimum is None or self._maximum is None:
            raise DataError("no training rows", where="features", expected="at least one")
        return MinMaxNormalizer(self._minimum, self._maximum, self._transform, self._names)
