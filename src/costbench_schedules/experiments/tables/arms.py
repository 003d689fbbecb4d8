"""The ways of searching that autotvm2018 compares, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from costbench_schedules.models.spec import ScheduleModelSpec

Earlier = Literal["", "workloads", "target"]


@dataclass(frozen=True)
class Arm:
    """A way of searching.

    Attributes:
        strategy: a name of `costbench.search.strategies.STRATEGIES`; empty where a model guides the search.
        measurements: of a trial.
        model: that guides the search.
        changes: fields of `GuidedSpec` that differ from the settings.
        earlier: what a global model is fitted to before the search (section 4): other `workloads` on the same
            target, workloads on another `target`, or nothing.
    """

    strategy: str = ""
    measurements: int = 1
    model: ScheduleModelSpec = field(default_factory=ScheduleModelSpec)
    changes: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    earlier: Earlier = ""


def _trees(representation: str = "relation", **settings: object) -> ScheduleModelSpec:
    return ScheduleModelSpec("gbt", representation, **settings)  # type: ignore[arg-type]


def _bootstrapped(acquisition: str) -> Arm:
    return Arm(model=_trees(objective="regression", models=5, acquisition=acquisition))


ARMS: Mapping[str, Arm] = {
    # Figure 4
    "random": Arm("random"),
    "random-x2": Arm("random", 2),
    "genetic": Arm("genetic"),
    "genetic-x2": Arm("genetic", 2),
    "gbt-rank": Arm(model=_trees()),
    "treegru-rank": Arm(model=ScheduleModelSpec("treegru", "tree")),
    "treegru-context-rank": Arm(model=ScheduleModelSpec("treegru_context", "tree")),
    # Networks of the tile task, which the paper did not have.
    "gnn-rank": Arm(model=ScheduleModelSpec("gnn", "tree")),
    "lstm-rank": Arm(model=ScheduleModelSpec("lstm", "tree")),
    # Figure 5
    "gbt-regression": Arm(model=_trees(objective="regression")),
    "treegru-regression": Arm(model=ScheduleModelSpec("treegru", "tree", "regression")),
    # Figure 6: with lambda = 1 there is nothing to choose from.
    "gbt-rank-plain": Arm(model=_trees(), changes=MappingProxyType({"candidates": 1, "alpha": 0.0})),
    "gbt-rank-lambda4": Arm(model=_trees(), changes=MappingProxyType({"candidates": 4})),
    # Figure 7
    "gbt-mean": _bootstrapped("mean"),
    "gbt-ei": _bootstrapped("ei"),
    "gbt-ucb": _bootstrapped("ucb"),
    # Figures 8 and 9
    "gbt-config": Arm(model=_trees("config")),
    "gbt-flattened": Arm(model=_trees("flattened")),
    "transfer-config": Arm(model=_trees("config"), earlier="workloads"),
    "transfer-flattened": Arm(model=_trees("flattened"), earlier="workloads"),
    "transfer-relation": Arm(model=_trees(), earlier="workloads"),
    "transfer-target": Arm(model=_trees(), earlier="target"),
}
"""By name; reports know them under the same names."""

SCRATCH: Mapping[str, str] = {
    "transfer-config": "gbt-config",
    "transfer-flattened": "gbt-flattened",
    "transfer-relation": "gbt-rank",
    "transfer-target": "gbt-rank",
}
"""Arms with an earlier model -> the same without one."""
TIMED = ("gbt-rank", "treegru-rank", "gnn-rank", "lstm-rank")
"""Arms whose models' wall times are taken."""
