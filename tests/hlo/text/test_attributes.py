"""Attributes as XLA prints them, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from costbench.errors import HloError
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import split_list
from costbench.hlo.text.attributes import set_attribute


def fields(opcode: str, **attributes: str) -> dict[str, Any]:
    proto = hlo_pb2.HloInstructionProto(opcode=opcode)
    for name, value in attributes.items():
        set_attribute(proto, name, value)
    values = MessageToDict(proto, preserving_proto_field_name=True)
    del values["opcode"]
    return values


def test_windows() -> None:
    text = "{size=3x2 stride=2x1 pad=1_0x0_-1 lhs_dilate=1x2 rhs_dilate=2x1 rhs_reversal=0x1}"
    first, second = fields("convolution", window=text)["window"]["dimensions"]
    assert first == {
        "size": "3", "stride": "2", "padding_low": "1", "base_dilation": "1", "window_dilation": "2",
    }  # fmt: skip
    assert second == {
        "size": "2", "stride": "1", "padding_high": "-1", "base_dilation": "2", "window_dilation": "1",
        "window_reversal": True,
    }  # fmt: skip
    (neutral,) = fields("reduce-window", window="{size=5}")["window"]["dimensions"]
    assert neutral == {"size": "5", "stride": "1", "base_dilation": "1", "window_dilation": "1"}
    assert fields("convolution", window="{}") == {}


def test_convolution_labels() -> None:
    numbers = fields("convolution", dim_labels="f01b_i01o->01bf")["convolution_dimension_numbers"]
    assert numbers == {
        "input_batch_dimension": "3", "input_spatial_dimensions": ["1", "2"],
        "kernel_output_feature_dimension": "3", "kernel_spatial_dimensions": ["1", "2"],
        "output_batch_dimension": "2", "output_feature_dimension": "3",
        "output_spatial_dimensions": ["0", "1"],
    }  # fmt: skip
    with pytest.raises(HloError, match="dimension labels"):
        fields("convolution", dim_labels="b01f")


def test_slices_and_padding() -> None:
    assert fields("slice", slice="{[0:64], [512:1024:2]}")["slice_dimensions"] == [
        {"limit": "64", "stride": "1"},
        {"start": "512", "limit": "1024", "stride": "2"},
    ]
    assert fields("pad", padding="1_2x0_-1_3")["padding_config"]["dimensions"] == [
        {"edge_padding_low": "1", "edge_padding_high": "2"},
        {"edge_padding_high": "-1", "interior_padding": "3"},
    ]


def test_numbers_flags_and_texts() -> None:
    assert fields("iota", iota_dimension="1") == {"dimensions": ["1"]}
    assert fields("transpose", dimensions="{1,0}") == {"dimensions": ["1", "0"]}
    assert fields("broadcast", dimensions="{}") == {}
    assert fields("get-tuple-element", index="3") == {"tuple_index": "3"}
    assert fields("sort", is_stable="true") == {"is_stable": True}
    assert fields("fft", fft_type="RFFT", fft_length="{8}") == {"fft_type": 2, "fft_length": ["8"]}
    assert fields("custom-call", custom_call_target='"a\\"b"') == {"custom_call_target": 'a"b'}
    assert fields("fusion", kind="kLoop") == {"fusion_kind": "kLoop"}
    assert fields("compare", direction="GE") == {"comparison_direction": "GE"}
    # What says nothing about cost.
    assert fields("add", sharding="{replicated}", frontend_attributes="{a=b}") == {}


def test_index_vectors_are_those_of_the_opcode() -> None:
    assert fields("gather", index_vector_dim="1") == {"gather_dimension_numbers": {"index_vector_dim": "1"}}
    assert fields("scatter", index_vector_dim="2") == {"scatter_dimension_numbers": {"index_vector_dim": "2"}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fft_type", "XFFT"),
        ("index", "one"),
        ("window", "{size=3 pad=1}"),
        ("padding", "a_b"),
        ("dimensions", "{x}"),
    ],
)
def test_other_values_are_errors(name: str, value: str) -> None:
    with pytest.raises((HloError, ValueError)):
        fields("add", **{name: value})


def test_lists_are_split_outside_of_brackets() -> None:
    assert split_list("f32[2,3]{1,0} %a, (s32[], pred[2]) %b") == ["f32[2,3]{1,0} %a", "(s32[], pred[2]) %b"]
    assert split_list(" ") == []
