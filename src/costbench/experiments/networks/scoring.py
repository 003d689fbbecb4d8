"""How good a model's choices among a network's programs are (crop2024, Table 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.experiments.networks.programs import Candidates, FloatArray, candidates
from costbench.experiments.networks.rivals import FITTED, TIMES, UNFITTED, Task, task_of
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.selection import best_of_top_k, top_k_score

TOP = (1, 5)


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
    """

    model: str
    network: str
    records: int
    seed: int
    folder: Path
    digest: str

    @property
    def name(self) -> str:
        """Key of the work item: names its file and its line in the log."""
        return f"{self.network}-{self.model}-{self.records}-s{self.seed}"


def scores(test: NetworkTest) -> dict[str, float]:
    """Returns the metrics of a test; nothing if no operator of the network has enough programs.

    - `top_1_score`, `top_5_score`: sum over operators of executions times the fastest runtime, over the same
      sum of the fastest runtime among the k programs that are predicted fastest;
    - `kendall_tau`: mean over operators of the rank correlation of predicted with measured runtimes;
    - `mape`: of models that predict times, the mean over programs of |predicted - measured| / measured, in %;
    - `records`: target measurements that the model was fitted to;
    - `operators`, `programs`: how many were chosen among.
    """
    programs = candidates(test.folder, test.digest)
    executions = programs.of_network(test.network)
    if not executions:
        return {}
    task = task_of(programs, test.network, test.records, test.seed)
    costs = {**FITTED, **UNFITTED}[test.model](task)
    found = _chosen(programs, task, costs, executions)
    if test.model in TIMES:
        measured = programs.native_ns[task.tested]
        found["mape"] = float(100.0 * np.mean(np.abs(costs - measured) / measured))
    fitted = len(task.target) if test.model in FITTED else 0
    return found | {"records": float(fitted), "operators": float(len(executions))}


def _chosen(
    programs: Candidates, task: Task, costs: FloatArray, executions: Mapping[int, int]
) -> dict[str, float]:
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
    taus = [kendall_tau(costs[mask], runtime[mask]) for mask in own]
    # A constant prediction ranks nothing.
    found["kendall_tau"] = float(np.mean(np.nan_to_num(taus)))
    return found | {"programs": float(len(task.tested))}
