"""Settings of a CPU refuse what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from costbench.errors import ParamsError
from costbench.models.spec import Execution, InputSizes, LayoutNetSpec, NetSpec
from costbench.params import parse


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden", 0),
        ("opcode_embedding", 0),
        ("encoder_layers", 0),
        ("max_neighbors", 0),
        ("node_final_layers", -1),
        ("kernel_layers", -1),
        ("module_layers", -1),
        ("dropout", 1.0),
        ("columns", []),
        ("columns", ["max", "max"]),
        ("aggregation", "median"),
        ("decision_features", "edge"),
        ("static_features", "late"),
        ("directed", "maybe"),
        ("residual", "learned"),
        ("estimate", "expert"),
        ("gat_heads", 0),
        ("lstm_layers", 0),
        ("lstm_width", 0),
        ("transformer_layers", 0),
        ("transformer_heads", 0),
        ("transformer_width", -1),
    ],
)
def test_impossible_values_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ParamsError, match=field):
        parse(NetSpec, {field: value}, where="params.yaml")


def test_a_hybrid_names_a_known_quality() -> None:
    hybrid = parse(NetSpec, {"residual": "analytical", "estimate": "expert"}, where="params.yaml")
    assert hybrid.estimate == "expert"
    with pytest.raises(ParamsError, match=r"estimate is 'xla', must be empty, or .* one of roofline, tiles"):
        parse(NetSpec, {"residual": "analytical", "estimate": "xla"}, where="params.yaml")


def test_joined_features_enter_where_the_spec_says() -> None:
    sizes = InputSizes(node=140, decision=24, static=4)
    early = NetSpec(decision_features="node", static_features="off")
    assert (sizes.joined(early, "node"), sizes.joined(early, "kernel")) == (24, 0)
    late = NetSpec(decision_features="kernel", static_features="node")
    assert (sizes.joined(late, "node"), sizes.joined(late, "kernel")) == (4, 24)
    both = NetSpec(decision_features="kernel", static_features="kernel")
    assert (sizes.joined(both, "node"), sizes.joined(both, "kernel")) == (0, 28)


@pytest.mark.parametrize(
    ("field", "user"),
    [("gat_heads", {"encoder": "gat"}), ("transformer_heads", {"reduction": "transformer"})],
)
def test_heads_divide_the_width_where_they_are_used(field: str, user: dict[str, str]) -> None:
    with pytest.raises(ParamsError, match=f"{field} is 3, must divide hidden, 64"):
        parse(NetSpec, {field: 3, "hidden": 64, **user}, where="params.yaml")
    assert getattr(parse(NetSpec, {field: 3, "hidden": 64}, where="params.yaml"), field) == 3


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


def test_a_processor_needs_a_thread() -> None:
    with pytest.raises(ValueError, match="threads is 0, must be at least 1"):
        Execution(threads=0)
