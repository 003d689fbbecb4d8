"""Names, meanings and absent values of all features, as data.

Five tables, one row per column of a feature array: 140 node features, 24 tile features, 18 layout features,
4 static performance features and 4 loop features. The first three are TpuGraphs' (tpugraphs2023, section 4.1,
and the extractor that the data set documents), the static ones are lpm2021's (section 3.1), and the loop
features are in none of the papers. The CSV files beside this module are the tables; code asks for a column
by name, never by number.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources

import numpy as np

from costbench.arrays import F32
from costbench.errors import ChoiceError, DataError, nearest


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of a feature array.

    Attributes:
        index: index of the column.
        name: name of the feature, which no other of its table has.
        meaning: meaning of the feature in words.
        absent_value: value that stands there when a node or configuration has no such attribute.
    """

    index: int
    name: str
    meaning: str
    absent_value: int


def _load(file_name: str) -> tuple[Feature, ...]:
    text = resources.files(__package__).joinpath(file_name).read_text(encoding="utf-8")
    rows = [
        Feature(int(row["index"]), row["name"], row["meaning"], int(row["absent_value"]))
        for row in csv.DictReader(text.splitlines())
    ]
    if [row.index for row in rows] != list(range(len(rows))):
        raise DataError("rows out of order", where=file_name, field="index", expected="0, 1, 2, ...")
    return tuple(rows)


NODE_FEATURES = _load("node_features.csv")
"""The 140 features of a node (an instruction)."""
TILE_FEATURES = _load("tile_features.csv")
"""The 24 features of a tile size."""
LAYOUT_FEATURES = _load("layout_features.csv")
"""The 18 features of a layout configuration at one configurable node."""
STATIC_FEATURES = _load("static_features.csv")
"""The 4 static performance features of a kernel."""
LOOP_FEATURES = _load("loop_features.csv")
"""The 4 features of a tile size among the loops of its kernel."""
DECISION_FEATURES = (
    *TILE_FEATURES,
    *(replace(feature, index=len(TILE_FEATURES) + feature.index) for feature in LOOP_FEATURES),
)
"""The 28 features of a tile size that a network reads."""

NUM_NODE_FEATURES = len(NODE_FEATURES)
NUM_LAYOUT_FEATURES = len(LAYOUT_FEATURES)
NUM_LOOP_FEATURES = len(LOOP_FEATURES)
NUM_DECISION_FEATURES = len(DECISION_FEATURES)


def names(features: Sequence[Feature]) -> tuple[str, ...]:
    """Returns the names of the columns, in order."""
    return tuple(feature.name for feature in features)


def column(features: Sequence[Feature], name: str) -> int:
    """Returns the index of the column called `name`.

    Raises:
        ChoiceError: if the table has none.
    """
    for feature in features:
        if feature.name == name:
            return feature.index
    near = nearest(name, [feature.name for feature in features])
    raise ChoiceError(
        f"unknown feature {name!r}{near}", expected=f"one of the {len(features)} names of the table"
    )


def absent_row(features: Sequence[Feature]) -> F32:
    """Returns what an array row holds when nothing is present: float32 [len(features)]."""
    return np.array([feature.absent_value for feature in features], dtype=np.float32)
