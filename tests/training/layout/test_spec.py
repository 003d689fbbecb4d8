from __future__ import annotations

from typing import Any

import pytest

from costbench.models.layout.net_spec import LayoutNetSpec
from costbench.params import parse
from costbench.training.layout.spec import HoldOutSpec, LayoutTrainSpec, SamplingSpec, SegmentSpec


@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        (SamplingSpec, {"configs": 1}, "configs"),
        (SamplingSpec, {"graphs": 0}, "graphs"),
        (SamplingSpec, {"pool": 1}, "pool"),
        (SegmentSpec, {"nodes": -1}, "nodes"),
        (SegmentSpec, {"dropout": 0.5}, "historical"),
        (HoldOutSpec, {"validation": 0.5, "unseen": 0.5}, "shares"),
        (LayoutTrainSpec, {"epochs": 0}, "epochs"),
        (LayoutTrainSpec, {"margin": 0.0}, "margin"),
        (LayoutTrainSpec, {"validation_configs": 1}, "validation_configs"),
        (LayoutTrainSpec, {"segments": SegmentSpec(historical=True)}, "part_nodes"),
        (
            LayoutTrainSpec,
            {
                "segments": SegmentSpec(historical=True),
                "net": LayoutNetSpec(part_nodes=9, pooling=("max",)),
            },
            "means",
        ),
        (
            LayoutTrainSpec,
            {"segments": SegmentSpec(nodes=9), "net": LayoutNetSpec(encoder="pyg.GCNConv")},
            "segments need",
        ),
    ],
)
def test_impossible_values_are_named(kind: type, values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        kind(**values)


def test_a_parameter_file_can_say_all_of_it() -> None:
    content = {"net": {"encoder": "gcn", "pooling": ["mean"]}, "segments": {"nodes": 5000}, "loss": "listmle"}
    spec = parse(LayoutTrainSpec, content, where="params.yaml")
    assert spec.net.pooling == ("mean",)
    assert spec.segments.nodes == 5000
