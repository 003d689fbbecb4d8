"""Evidence as the stages leave it: one split, one chip, the programs of conftest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costbench.artifacts import write_json, write_text

_ALL = {"kernels": 10, "leaked_kernels": 1, "runtime_ns": 1000, "leaked_runtime_ns": 250}
LEAK = {**_ALL, "share_of_kernels": 0.1, "share_of_runtime": 0.25}
_QUANTILES = {"min": 2, "p10": 3, "median": 20, "p90": 50, "max": 99, "mean": 25.5}
SHAPE = {"bins_per_decade": 1, "first": 0, "counts": [10, 20], **_QUANTILES}
CARD = {
    "programs": 3,
    "applications": 2,
    "kernels": 30,
    "unique_kernels": 28,
    "configs": 600,
    "failed": 2,
    "fast_kernels": 12,
    "tried_configs": 1500,
    "device_seconds": 1.5,
    "by_application": {
        "RNN": {"programs": 2, "kernels": 20, "configs": 500},
        "SSD": {"programs": 1, "kernels": 10, "configs": 100},
    },
    "distributions": {"tile_space_size": SHAPE, "runtime_spread": SHAPE, "nodes_per_kernel": SHAPE},
}
COUNTS = {
    "train": {"programs": 1, "kernels": 18, "samples": 400},
    "validation": {"programs": 0, "kernels": 0, "samples": 0},
    "test": {"programs": 1, "kernels": 10, "samples": 150},
    "dropped": {"programs": 1, "kernels": 2, "samples": 50},
}


@dataclass(frozen=True)
class EvidenceFiles:
    """Paths of the files written."""

    audits: Path
    counts: Path
    card: Path
    history: Path


def write_evidence(folder: Path, tasks: tuple[str, ...] = ("tile",)) -> EvidenceFiles:
    """Leakage audit, counts of sets, card and one training curve."""
    files = EvidenceFiles(
        *(folder / name for name in ("leakage.json", "counts.json", "card.json", "history.csv"))
    )
    report = {"split": "random", "test": LEAK, "by_program": {"rnn": LEAK}}
    write_json(files.audits, {task: {"random": {"tpu_v2": report}} for task in tasks if task != "layout"})
    write_json(files.counts, {task: {"random": {"tpu_v2": COUNTS}} for task in tasks})
    write_json(files.card, {task: {"tpu_v2": CARD} for task in tasks})
    write_text(files.history, "epoch,val_tau,loss\n0,0.25,1.0\n1,,0.5\n2,0.5,0.25\n")
    return files
