"""Evidence as the stages leave it: one split, one chip, the programs of conftest."""

from __future__ import annotations

from pathlib import Path

from costbench.artifacts import write_json, write_text

_ALL = {"kernels": 10, "leaked_kernels": 1, "runtime_ns": 1000, "leaked_runtime_ns": 250}
LEAK = {**_ALL, "share_of_kernels": 0.1, "share_of_runtime": 0.25}
CARD = {
    "programs": 3,
    "applications": 3,
    "kernels": 30,
    "unique_kernels": 28,
    "configs": 600,
    "failed": 2,
    "device_seconds": 1.5,
    "distributions": {"tile_space_size": {"min": 2, "p10": 3, "median": 20, "p90": 50, "max": 99}},
}


def write_evidence(folder: Path) -> tuple[Path, Path, Path]:
    """Leakage audit, card and one training curve; their paths."""
    audits, card, history = folder / "leakage.json", folder / "card.json", folder / "history.csv"
    write_json(audits, {"random": {"tpu_v2": {"split": "random", "test": LEAK, "by_program": {"rnn": LEAK}}}})
    write_json(card, {"tpu_v2": CARD})
    write_text(history, "epoch,val_tau,loss\n0,0.25,1.0\n1,,0.5\n2,0.5,0.25\n")
    return audits, card, history
