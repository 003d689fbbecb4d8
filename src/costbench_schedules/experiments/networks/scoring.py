"""How good a model's choices among a network's programs are (crop2024, Table 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.arrays import F64
from costbench.metrics.selection import best_of_top_k, top_k_score
from costbench_schedules.experiments.networks.programs import Candidates, candidates
from costbench_schedules.experiments.networks.rivals import FITTED, TIMES, UNFITTED, Fitted, Task, task_of
from costbench_schedules.metrics.grouped import tau_within_groups
from costbench_schedules.operators.networks import workload_name
from costbench_schedules.operators.operators import parse_operator

TOP = (1, 5)
WHOLE = "network"
"""In place of an operator: all of them."""


@dataclass(frozen=True)
class NetworkTest:
    """One model tested on one network, a work item.

    Attributes:
        model: a name of `rivals.FITTED` or `rivals.UNFITTED`.
        network: by name.
        records: measurements on the target that a learned model is fitted to, at most.
        seed: of the draws and the fit.
        folder: of the recorded programs.
        digest: of `programs.arrow`.
        steps: of the training of networks.
    """

    model: str
    network: str
    records: int
    seed: int
    folder: Path
    digest: str
    steps: int

    @property
    def name(self) -> str:
        """Key of the work item: names its file and its line in the log."""
        return f"{self.network}-{self.model}-{self.records}-s{self.seed}"


def scores(test: NetworkTest) -> dict[str, dict[str, float]]:
    """Returns the metrics of the network under `WHOLE`, and of each of its operators under its name.

    - `top_1_score`, `top_5_score`: sum over operators of executions times the fastest runtime, over the same
      sum of the fastest runtime among the k programs that are predicted fastest;
    - `kendall_tau`: rank correlation of predicted with measured runtimes, of a network the operators' mean;
    - `mape`: of models that predict times, the mean over programs of |predicted - measured| / measured, in %;
    - `records`: target measurements that the model was fitted to;
    - `fitted_tau`: of a network of all operators, see `rivals.Fitted`;
    - `operators`, `programs`: how many were chosen among.

    Nothing is returned if no operator of the network has enough programs.
    """
    programs = candidates(test.folder, test.digest)
    executions = programs.of_network(test.network)
    if not executions:
        return {}
    task = task_of(programs, test.network, test.records, test.seed, test.steps)
    fitted = FITTED[test.model](task) if test.model in FITTED else Fitted(UNFITTED[test.model](task))
    costs, records = fitted.costs, float(len(task.target) if test.model in FITTED else 0)
    parts = {WHOLE: executions}
    parts |= {_name(programs, place): {place: count} for place, count in executions.items()}
    found = {name: _chosen(programs, task, costs, own) for name, own in parts.items()}
    for name, own in parts.items():
        found[name] |= {"records": records, "operators": float(len(own))}
        if test.model in TIMES:
            places = np.isin(programs.groups[task.tested], list(own))
            measured = programs.native_ns[task.tested][places]
            found[name]["mape"] = float(100.0 * np.mean(np.abs(costs[places] - measured) / measured))
    if fitted.fitted_tau is not None:
        found[WHOLE]["fitted_tau"] = fitted.fitted_tau
    return found


def _name(programs: Candidates, place: int) -> str:
    return workload_name(parse_operator(programs.operators[place]))


def _chosen(programs: Candidates, task: Task, costs: F64, executions: Mapping[int, int]) -> dict[str, float]:
    groups, runtime = programs.groups[task.tested], programs.native_ns[task.tested]
    own = [groups == place for place in executions]
    best = [float(runtime[mask].min()) for mask in own]
    weights = [float(count) for count in executions.values()]
    found = {
        f"top_{k}_score": top_k_score(
            [best_of_top_k(costs[mask], runtime[mask], k) for mask in own], best, weights
        )
        for k in TOP
    }
    kept = np.any(own, axis=0)
    found["kendall_tau"] = tau_within_groups(costs[kept], runtime[kept], groups[kept])
    return found | {"programs": float(np.sum(own))}
