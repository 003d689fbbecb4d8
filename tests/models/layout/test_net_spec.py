from __future__ import annotations

from typing import Any

import pytest

from costbench.models.layout.net_spec import LayoutNetSpec


@pytest.mark.parametrize(
    "values",
    [
        {"hidden": 0},
        {"encoder_layers": 0},
        {"head_layers": -1},
        {"prune_hops": -1},
        {"pooling": ()},
        {"pooling": ("mean", "mean")},
        {"set_size": 0},
    ],
)
def test_impossible_values_are_named(values: dict[str, Any]) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        LayoutNetSpec(**values)


def test_a_network_without_messages_has_no_hops() -> None:
    assert LayoutNetSpec(encoder="none").hops == 0
    assert LayoutNetSpec(encoder_layers=4).hops == 4


def test_only_the_statistics_say_which_nodes_are_read() -> None:
    assert LayoutNetSpec().pools_all_nodes
    assert not LayoutNetSpec(pooling=("configurable-max",)).pools_all_nodes
