"""Networks as lists of tensor operators: `networks.yaml`, which says where each comes from."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from costbench.errors import choose
from costbench.params import load_yaml, parse
from costbench_schedules.operators.operators import Operator, parse_operator


@dataclass(frozen=True)
class Network:
    """A network's distinct operators.

    Attributes:
        source: source of their sizes.
        executions: number of executions of each operator in one run of the network, by a description for
            `parse_operator`, in the order of their first layers.
    """

    source: str
    executions: Mapping[str, int]

    def __post_init__(self) -> None:
        if not self.executions or min(self.executions.values()) < 1:
            raise ValueError("executions have to be of one operator or more, and at least 1 each")

    @property
    def operators(self) -> tuple[Operator, ...]:
        """Returns the operators."""
        return tuple(parse_operator(text) for text in self.executions)


@cache
def networks() -> Mapping[str, Network]:
    """Returns the networks by name, in the order of crop2024, Table 2."""
    path = Path(str(importlib.resources.files("costbench_schedules.operators") / "networks.yaml"))
    entries = load_yaml(path)
    return {str(name): parse(Network, value, where=f"{path.name}:{name}") for name, value in entries.items()}


def workload_name(operator: Operator) -> str:
    """Returns a name of an operator that can name a file.

    >>> workload_name(parse_operator("matmul:m=64,n=32,k=16"))
    'matmul-64x32x16'
    """
    return f"{operator.name}-" + "x".join(str(value) for value in operator.parameters.values())


def operators_of(names: Iterable[str]) -> list[Operator]:
    """Returns the distinct operators of some networks, those of fewest operations first.

    Raises:
        ChoiceError: for an unknown network.
    """
    operators = {
        operator.text: operator
        for name in names
        for operator in choose(networks(), name, "network").operators
    }
    return sorted(operators.values(), key=lambda operator: (operator.flops, operator.text))
