"""Networks as operators: their arithmetic is the published one, and their schedules have numbers."""

from __future__ import annotations

import pytest

from costbench.errors import ChoiceError
from costbench_schedules.operators.networks import networks, operators_of, workload_name
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.space import ScheduleSpace


@pytest.mark.parametrize(
    ("network", "billions"),
    [
        # Multiply-adds as torchvision prints them for the weights of these models.
        ("ResNet-50", 4.09),
        ("MobileNet-V2", 0.30),
        ("ResNeXt-50", 4.23),
        # Of 12 layers on 128 tokens: 4 h h + 2 h 4h per token, and 2 * 128 h for attention.
        ("BERT-base", 12 * 128 * (12 * 768**2 + 2 * 128 * 768) / 1e9),
    ],
)
def test_arithmetic_is_that_of_the_network(network: str, billions: float) -> None:
    executions = networks()[network].executions
    flops = sum(count * parse_operator(text).flops for text, count in executions.items())
    assert flops / 2e9 == pytest.approx(billions, abs=0.01)


def test_operators_are_distinct_and_sorted_by_size() -> None:
    operators = operators_of(networks())
    assert len(operators) == 83
    assert len({workload_name(operator) for operator in operators}) == 83
    assert [one.flops for one in operators] == sorted(one.flops for one in operators)
    assert {one.name for one in operators} == {
        *("conv2d", "depthwise_conv2d", "grouped_conv2d", "matmul", "batch_matmul"),
    }
    assert all(ScheduleSpace(operator).size < 2**63 for operator in operators)
    with pytest.raises(ChoiceError, match="ResNet-50"):
        operators_of(["VGG-16"])
