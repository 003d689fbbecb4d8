"""Stage `register`: registers the best trained model of each task in MLflow under the alias `champion`.

Cells are compared by their validation metric, so the stage needs no test results. `champions.json` lists the
chosen models; version numbers and run identifiers are kept in the registry alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from costbench.artifacts import seal, write_json
from costbench.datasets.splits import check_split
from costbench.experiments.parameter_file import load_params
from costbench.experiments.tracking.queries import CellFilter
from costbench.experiments.tracking.registry import MODELS, best_candidate, register_champion
from costbench.experiments.tracking.runs import OFF, tracking_uri
from costbench.experiments.workspace import load_workspace

_log = logging.getLogger(__name__)
CHAMPIONS_FILE = "champions.json"


@dataclass(frozen=True)
class RegisterParams:
    """Section `register`: the split and chip on which a task's models are compared.

    Attributes:
        split: split of the stage `split`, `fold1` and so on for a fold.
        chip: chip of the stage `features`, by name.
    """

    split: str
    chip: str

    def __post_init__(self) -> None:
        check_split(self.split, "split")


def run(params: Path) -> None:
    """Registers the best model of each task that has one, and writes `champions.json`.

    Raises:
        CostbenchError: for wrong parameters, or a store that cannot be used.
    """
    profile = load_params(params)
    workspace = load_workspace(profile)
    section = profile.section("register", RegisterParams)
    uri = tracking_uri()
    if uri == OFF:
        _log.info("tracking is off: no champions")
    champions = {}
    for task in MODELS if uri != OFF else ():
        best = best_candidate(uri, CellFilter(task, section.split, section.chip, profile=workspace.name))
        if best is None:
            _log.info("%s: no tracked model on %s, %s: no champion", task, section.split, section.chip)
            continue
        registered = register_champion(uri, best)
        _log.info("%s: version %s: %s", registered.uri, registered.version, best["name"])
        champions[task] = {
            "model": best["name"],
            "metric": float(best["metric"]),
            "monitor": best["monitor"],
            "key": best["key"],
        }
    write_json(workspace.stage("register") / CHAMPIONS_FILE, champions)
    seal(workspace.stage("register"), "`costbench register`")
