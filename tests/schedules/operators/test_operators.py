from __future__ import annotations

import numpy as np
import pytest

from costbench.errors import ChoiceError, DataError
from costbench_schedules.operators.operators import WORKLOADS, Operator, parse_operator
from costbench_schedules.operators.reference import expected_output, inputs_of, largest_error


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_operators_whose_text_is_read_again(name: str) -> None:
    operator = parse_operator(name)
    assert parse_operator(operator.text) == operator
    assert operator.tensors[operator.output] == tuple(axis.extent for axis in operator.spatial)


def test_convolutions_of_resnet_do_the_work_of_their_shapes() -> None:
    # Output 112 x 112 x 64 from 7 x 7 x 3, and 56 x 56 x 64 from 3 x 3 x 64.
    assert parse_operator("C1").flops == 2 * 112 * 112 * 64 * 7 * 7 * 3
    assert parse_operator("C2").flops == 231_211_008
    assert parse_operator("C12").tensors["output"] == (1, 7, 7, 512)
    assert parse_operator("matmul-512").flops == 2 * 512**3


def naive(operator: Operator, inputs: list[np.ndarray]) -> np.ndarray:
    """The sum, point by point."""
    arrays = dict(zip(operator.inputs, inputs, strict=True))
    result = np.zeros(operator.tensors[operator.output])
    for point in np.ndindex(*(axis.extent for axis in operator.axes)):
        values = dict(zip((axis.name for axis in operator.axes), point, strict=True))
        product = 1.0
        for access in operator.accesses[:-1]:
            index = [sum(values[name] * k for name, k in dim) for dim in access.strides]
            source, before = operator.padding.get(access.tensor, (access.tensor, (0,) * len(index)))
            index = [i - pad for i, pad in zip(index, before, strict=True)]
            inside = all(0 <= i < size for i, size in zip(index, arrays[source].shape, strict=True))
            product *= arrays[source][tuple(index)] if inside else 0.0
        result[tuple(values[axis.name] for axis in operator.spatial)] += product
    return result


@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=3,n=4,k=5",
        "batch_matmul:b=2,m=3,n=4,k=5",
        "dense:n=2,ci=3,co=4",
        "conv2d:h=5,w=4,ci=2,co=3,kh=3,kw=3,stride=2,pad=1",
        "depthwise_conv2d:h=4,w=4,c=3,kh=3,kw=2,pad=1",
        "grouped_conv2d:h=4,w=5,g=3,ci=2,co=2,kh=3,kw=2,stride=2,pad=1",
    ],
)
def test_reference_is_the_sum_of_products(text: str) -> None:
    operator = parse_operator(text)
    inputs = inputs_of(operator)
    expected = naive(operator, [array.astype(np.float64) for array in inputs])
    np.testing.assert_allclose(expected_output(operator, inputs), expected, atol=1e-12)


def test_groups_of_a_convolution_are_convolutions_of_their_channels() -> None:
    sizes = "h=5,w=4,ci=3,co=2,kh=3,kw=3,stride=1,pad=1"
    grouped, plain = parse_operator("grouped_conv2d:g=2," + sizes), parse_operator("conv2d:" + sizes)
    data, weight = inputs_of(grouped)
    output = expected_output(grouped, [data, weight])
    for group in range(2):
        own = expected_output(plain, [data[..., group, :], weight[..., group, :]])
        np.testing.assert_allclose(output[..., group, :], own)


def test_error_is_relative_and_infinite_for_what_was_never_written() -> None:
    expected = np.array([4.0, -8.0])
    assert largest_error(np.array([4.0, -7.0]), expected) == 0.125
    assert largest_error(np.array([np.nan, -8.0]), expected) == np.inf


def test_inputs_depend_on_the_operator_alone() -> None:
    operator = parse_operator("dense:n=2,ci=3,co=4")
    first, second = inputs_of(operator), inputs_of(operator)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert [array.shape for array in first] == [(2, 3), (4, 3)]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("matmul:m=4,n=4", "k"),
        ("matmul:m=4,n=4,k=0", "k"),
        ("matmul:m=4,n=4,k=4,k=5", "k"),
        ("matmul:m=4,n=4,k=4,z=1", "z"),
        ("matmul:m=four,n=4,k=4", "m"),
        ("conv2d:h=2,w=9,ci=1,co=1,kh=3,kw=3", "y"),
    ],
)
def test_impossible_parameters_are_named(text: str, field: str) -> None:
    with pytest.raises(DataError) as error:
        parse_operator(text)
    assert error.value.field == field


def test_unknown_names_list_what_is_known() -> None:
    with pytest.raises(ChoiceError, match="C12"):
        parse_operator("C13")
    with pytest.raises(ChoiceError, match="batch_matmul"):
        parse_operator("convolution:h=3")
