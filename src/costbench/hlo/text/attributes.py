"""Parses attributes of an instruction in HLO text, such as `window={size=3x3}`, into its proto message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from costbench.errors import HloError
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import split_list

Proto = hlo_pb2.HloInstructionProto
_LABELS = re.compile(r"([bf\d?]+)_([io\d?]+)->([bf\d?]+)")
_SLICE = re.compile(r"\[(\d+):(\d+)(?::(-?\d+))?\]")
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_FFT_TYPES = ("FFT", "IFFT", "RFFT", "IRFFT")


def set_attribute(proto: Proto, name: str, value: str) -> None:
    """Sets an attribute of an instruction; attributes that do not affect cost are ignored.

    Raises:
        HloError, ValueError: if the value is not written as XLA writes it.
    """
    setter = _SETTERS.get(name)
    if setter is not None:
        setter(proto, value)


def _integers(value: str) -> list[int]:
    """Returns the integers of a list, or of a list of lists, end to end."""
    if "{{{" in value:
        raise HloError("lists within lists within lists", expected="a list, or a list of lists")
    if "{{" not in value:
        return [int(part) for part in split_list(value.strip("{}"))]
    return [number for part in split_list(value[1:-1]) for number in _integers(part)]


def _set_window(proto: Proto, value: str) -> None:
    parts = dict(part.split("=", 1) for part in value.strip("{}").split())
    sizes = parts.pop("size", "")
    columns = {name: column.split("x") for name, column in parts.items()}
    rank = len(sizes.split("x")) if sizes else 0
    for name, column in columns.items():
        if len(column) != rank:
            raise HloError(f"{len(column)} of {name} for {rank} of size", expected="one for each axis")
    for axis, size in enumerate(sizes.split("x") if sizes else ()):
        values = {name: column[axis] for name, column in columns.items()}
        low, high = values.get("pad", "0_0").split("_")
        proto.window.dimensions.add(
            size=int(size),
            stride=int(values.get("stride", 1)),
            padding_low=int(low),
            padding_high=int(high),
            window_dilation=int(values.get("rhs_dilate", 1)),
            base_dilation=int(values.get("lhs_dilate", 1)),
            window_reversal=values.get("rhs_reversal", "0") == "1",
        )


def _set_labels(proto: Proto, value: str) -> None:
    match = _LABELS.fullmatch(value)
    if match is None:
        raise HloError("no dimension labels", expected="e.g. b01f_01io->b01f")
    source, kernel, output = match.groups()
    spatial = sorted((label for label in source if label.isdigit()), key=int)
    for labels, letters in ((source, "bf"), (kernel, "io"), (output, "bf")):
        wanted = sorted([*letters, *spatial])
        if sorted(labels) != wanted:
            raise HloError(f"labels {labels}", expected=f"each of {', '.join(wanted)} once")
    numbers = proto.convolution_dimension_numbers
    numbers.input_batch_dimension, numbers.input_feature_dimension = source.index("b"), source.index("f")
    numbers.kernel_input_feature_dimension = kernel.index("i")
    numbers.kernel_output_feature_dimension = kernel.index("o")
    numbers.output_batch_dimension, numbers.output_feature_dimension = output.index("b"), output.index("f")
    numbers.input_spatial_dimensions.extend(source.index(label) for label in spatial)
    numbers.kernel_spatial_dimensions.extend(kernel.index(label) for label in spatial)
    numbers.output_spatial_dimensions.extend(output.index(label) for label in spatial)


def _set_slices(proto: Proto, value: str) -> None:
    for part in split_list(value.strip("{}")):
        match = _SLICE.fullmatch(part)
        if match is None:
            raise HloError("no slice", expected="e.g. {[0:8], [4:12:2]}")
        proto.slice_dimensions.add(start=int(match[1]), limit=int(match[2]), stride=int(match[3] or 1))


def _set_padding(proto: Proto, value: str) -> None:
    for part in value.split("x"):
        low, high, *interior = map(int, part.split("_"))
        proto.padding_config.dimensions.add(
            edge_padding_low=low, edge_padding_high=high, interior_padding=interior[0] if interior else 0
        )


def _string(value: str) -> bytes:
    """Returns the contents of a string with escapes as in C, where other letters stand for themselves."""
    if len(value) < 2 or not value.startswith('"') or not value.endswith('"'):
        raise HloError("no string", expected="text in double quotes")
    return _ESCAPE.sub(_unescape, value[1:-1].encode())


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code in _LETTERS:
        return _LETTERS[code]
    if code[:1] in b"xX" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    return bytes([int(code, 8) & 0xFF]) if code.isdigit() else code


def _set_slice_sizes(proto: Proto, value: str) -> None:
    field = "gather_slice_sizes" if proto.opcode == "gather" else "dynamic_slice_sizes"
    getattr(proto, field).extend(_integers(value))


def _set_index_vector(proto: Proto, value: str) -> None:
    which = proto.gather_dimension_numbers if proto.opcode == "gather" else proto.scatter_dimension_numbers
    which.index_vector_dim = int(value)


def _dot_list(field: str) -> Callable[[Proto, str], None]:
    def put(proto: Proto, value: str) -> None:
        ragged = proto.opcode == "ragged-dot"
        numbers = proto.ragged_dot_dimension_numbers.dot_dimension_numbers
        getattr(numbers if ragged else proto.dot_dimension_numbers, field).extend(_integers(value))

    return put


def _list(field: str, inside: str = "") -> Callable[[Proto, str], None]:
    def put(proto: Proto, value: str) -> None:
        getattr(getattr(proto, inside) if inside else proto, field).extend(_integers(value))

    return put


def _value(field: str, parse: Callable[[str], int | bool | str | bytes]) -> Callable[[Proto, str], None]:
    def put(proto: Proto, value: str) -> None:
        setattr(proto, field, parse(value))

    return put


_RAGGED = "ragged_dot_dimension_numbers"
_GATHER, _SCATTER = "gather_dimension_numbers", "scatter_dimension_numbers"
_SETTERS: Mapping[str, Callable[[Proto, str], None]] = {
    "backend_config": _value(
        "backend_config", lambda value: _string(value) if value.startswith('"') else value.encode()
    ),
    "batch_group_count": _value("batch_group_count", int),
    "collapsed_slice_dims": _list("collapsed_slice_dims", _GATHER),
    "custom_call_target": _value(
        "custom_call_target", lambda value: _string(value).decode("utf-8", "replace")
    ),
    "dim_labels": _set_labels,
    "dimensions": _list("dimensions"),
    "direction": _value("comparison_direction", str),
    "dynamic_slice_sizes": _list("dynamic_slice_sizes"),
    "exponent_bits": _value("exponent_bits", int),
    "feature_group_count": _value("feature_group_count", int),
    "fft_length": _list("fft_length"),
    "fft_type": _value("fft_type", _FFT_TYPES.index),
    "index": _value("tuple_index", int),
    "index_vector_dim": _set_index_vector,
    "input_batching_dims": _list("input_batching_dims", _SCATTER),
    "inserted_window_dims": _list("inserted_window_dims", _SCATTER),
    "iota_dimension": _list("dimensions"),
    "is_stable": _value("is_stable", lambda value: value == "true"),
    "kind": _value("fusion_kind", str),
    "lhs_batch_dims": _dot_list("lhs_batch_dimensions"),
    "lhs_contracting_dims": _dot_list("lhs_contracting_dimensions"),
    "lhs_ragged_dims": _list("lhs_ragged_dimensions", _RAGGED),
    "mantissa_bits": _value("mantissa_bits", int),
    "offset_dims": _list("offset_dims", _GATHER),
    "operand_batching_dims": _list("operand_batching_dims", _GATHER),
    "padding": _set_padding,
    "rhs_batch_dims": _dot_list("rhs_batch_dimensions"),
    "rhs_contracting_dims": _dot_list("rhs_contracting_dimensions"),
    "rhs_group_dims": _list("rhs_group_dimensions", _RAGGED),
    "scatter_dims_to_operand_dims": _list("scatter_dims_to_operand_dims", _SCATTER),
    "scatter_indices_batching_dims": _list("scatter_indices_batching_dims", _SCATTER),
    "slice": _set_slices,
    "slice_sizes": _set_slice_sizes,
    "start_index_map": _list("start_index_map", _GATHER),
    "start_indices_batching_dims": _list("start_indices_batching_dims", _GATHER),
    "update_window_dims": _list("update_window_dims", _SCATTER),
    "window": _set_window,
}
