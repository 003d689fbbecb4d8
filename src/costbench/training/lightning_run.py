"""What every training with Lightning shares: its result, its resume point, and Lightning's notes silenced."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from costbench.artifacts import digest_bytes

RESUME_FILE = "resume.ckpt"
_NOTES = (
    ".*does not have many workers.*",
    ".*GPU available but not used.*",
    # Lightning 2.6 calls what torch 2.13 deprecates.
    ".*isinstance.treespec, LeafSpec.*",
)


@dataclass(frozen=True)
class FitResult:
    """A finished training.

    Attributes:
        checkpoint: folder of the best model, for `models.checkpoint.load_checkpoint`; of a layout network for
            `models.layout.checkpoint.load_layout_model`.
        best_metric: the monitored validation metric of that model.
        best_epoch: the epoch of that model, from 0.
        steps: number of training steps.
        seconds: wall time of this call; not part of any result.
        execution: GPU, or matrix library and threads; see `execution.described`.
        computed_by: what computed the network, `compiled` kernels or the `plain` network; empty where there
            is one implementation only.
    """

    checkpoint: Path
    best_metric: float
    best_epoch: int
    steps: int
    seconds: float
    execution: str
    computed_by: str


def resume_file(folder: Path, identity: str) -> Path:
    """Returns the file of a run's resume point; files of other runs in `folder` are removed.

    Args:
        folder: of the run.
        identity: everything that the run depends on.
    """
    path = folder / f"{digest_bytes(identity.encode())[:16]}.{RESUME_FILE}"
    for other in sorted(folder.glob(f"*.{RESUME_FILE}")):
        if other != path:
            other.unlink()
    return path


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's notes on hardware, data loading and torch, which the caller cannot act on."""
    notes = logging.getLogger("pytorch_lightning")
    level = notes.level
    notes.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in _NOTES:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        notes.setLevel(level)
