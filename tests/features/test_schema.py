"""The feature tables against the public ones, and against the order of groups that the data set documents."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from costbench.errors import ChoiceError
from costbench.features import schema
from costbench.features.schema import (
    DECISION_FEATURES,
    LAYOUT_FEATURES,
    LOOP_FEATURES,
    NODE_FEATURES,
    STATIC_FEATURES,
    TILE_FEATURES,
    Feature,
)

TABLES = {
    "tpugraphs_node_features.csv": NODE_FEATURES,
    "tpugraphs_tile_config_features.csv": TILE_FEATURES,
    "tpugraphs_layout_config_features.csv": LAYOUT_FEATURES,
}


@pytest.mark.parametrize(
    ("table", "size"),
    [
        (NODE_FEATURES, 140),
        (TILE_FEATURES, 24),
        (LAYOUT_FEATURES, 18),
        (STATIC_FEATURES, 4),
        (LOOP_FEATURES, 4),
        (DECISION_FEATURES, 28),
    ],
)
def test_tables_are_complete(table: tuple[Feature, ...], size: int) -> None:
    assert [feature.index for feature in table] == list(range(size))
    assert len(set(schema.names(table))) == size
    assert all(feature.name and feature.meaning for feature in table)


@pytest.mark.parametrize("file_name", sorted(TABLES))
def test_tables_equal_the_public_ones(file_name: str, shared_data: Path) -> None:
    reference = shared_data.parent / "reference" / file_name
    if not reference.is_file():
        pytest.skip(f"no {reference}")
    rows = list(csv.DictReader(reference.read_text(encoding="utf-8").splitlines()))
    ours = [(f.index, f.name, f.absent_value) for f in TABLES[file_name]]
    assert ours == [(int(r["index"]), r["name"], int(r["absent_value"])) for r in rows]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("is_root", 0),
        ("element_size_in_bits", 1),
        ("shape_element_type_is_invalid_type", 2),
        ("shape_dimensions_0", 21),
        ("shape_tuple_shapes_size", 29),
        ("parameter_number", 30),
        ("dimensions_0", 31),
        ("window_size_0", 37),
        ("convolution_dim_numbers_input_batch_dim", 93),
        ("feature_group_count", 107),
        ("slice_dims_start_0", 109),
        ("dynamic_slice_sizes_0", 121),
        ("padding_config_edge_padding_low_0", 125),
        ("is_stable", 133),
        ("layout_minor_to_major_0", 134),
    ],
)
def test_groups_start_where_documented(name: str, index: int) -> None:
    assert schema.column(NODE_FEATURES, name) == index


def test_absent_rows() -> None:
    row = schema.absent_row(NODE_FEATURES)
    # An empty product is 1: shape, six window lists, three slice lists, one dynamic slice, two paddings.
    assert row.sum() == 1 + 6 + 3 + 1 + 2
    assert all(NODE_FEATURES[i].name.endswith("_product") for i in row.nonzero()[0])
    assert not schema.absent_row(TILE_FEATURES).any()
    assert (schema.absent_row(LAYOUT_FEATURES) == -1).all()


def test_unknown_column_is_an_error() -> None:
    with pytest.raises(ChoiceError, match="unknown feature 'colour'"):
        schema.column(TILE_FEATURES, "colour")
