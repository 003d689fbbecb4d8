"""Cells that look trained: a tiny network's checkpoint, the file that says so, and a run that tells of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.synthetic_kernels import kernel_samples
from costbench.experiments.grid.cells import Cell
from costbench.experiments.grid.training_run import CellResult
from costbench.experiments.tracking.queries import CellFilter
from costbench.experiments.tracking.registry import Registered, best_candidate, register_champion
from costbench.experiments.tracking.runs import FOLDER, KEY, KIND, Provenance, tracked_run
from costbench.models.checkpoint import save_checkpoint
from costbench.models.graph_batch import FeatureScaling
from costbench.models.learned import LearnedCostNet
from costbench.models.spec import NetSpec

SCALING = FeatureScaling.fit([kernel_samples(seed, nodes, 7) for seed, nodes in enumerate((2, 6))])
SPEC = NetSpec(hidden=8, opcode_embedding=4, encoder_layers=1, columns=("mean",))
PROVENANCE = Provenance("params16", "data16", "abc+changes")
MONITORS = {"tile": "tau", "fusion": "mape"}


def result_of(key: str, metric: float) -> CellResult:
    return CellResult(key, metric, best_epoch=1, steps=20, execution="fp32")


def finish_cell(folder: Path, task: str, key: str, metric: float, seed: int = 0) -> Path:
    """A trained cell's folder."""
    predicts = "score" if task == "tile" else "log_runtime_ns"
    save_checkpoint(folder, LearnedCostNet(SPEC, SCALING.sizes, seed), SCALING, predicts)
    (folder / "done.json").write_text(json.dumps(asdict(result_of(key, metric))))
    (folder / "history.csv").write_text("epoch,step,validation/tau\n1,10,0.25\n2,20,0.5\n")
    return folder


def track_cell(
    uri: str, cell: Cell, folder: Path, key: str, metric: float, *, kernels: int = 60, **more: str
) -> str:
    """The run of a trained cell; its identifier."""
    tags = {
        "task": cell.task, "split": cell.split, "chip": cell.chip, "variant": cell.variant,
        "seed": str(cell.seed), "encoder": "graphsage", "reduction": "column-wise", "profile": "p",
        "experiment": "main", "monitor": MONITORS[cell.task], KIND: "cell", KEY: key, FOLDER: str(folder),
    }  # fmt: skip
    name = f"p/main/{cell.name}"
    with tracked_run(uri, "costbench/train", name, PROVENANCE, {**tags, **more}) as run:
        validation = {"kernels": kernels, "configs": 32}
        settings = {"net": {"hidden": 8}, "loss": "mse", "validation": validation}
        run.log_params({"model": settings})
        run.log_metrics({"best_metric": metric}, 20)
    return run.run_id


def register_best(uri: str, wanted: CellFilter) -> Registered | None:
    """Make the best tracked model the champion of its task."""
    best = best_candidate(uri, wanted)
    return None if best is None else register_champion(uri, best)
