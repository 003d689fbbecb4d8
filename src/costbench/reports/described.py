"""The tasks as reports describe them: those of tiles that were imported have an error of their own.

How often a kernel runs is not in TpuGraphs' files, so all imported kernels of a program count alike, and its
Tile-Size APE is not defined. What takes its place is the error of the paper that published them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costbench.metrics.measures import error_measure
from costbench.tasks import LEARNED, Labels, Task, labels_of

OWN = "own"
"""The split of an imported data set, which comes with it."""

_TILE = LEARNED["tile"]
_IMPORTED: Mapping[str, Task] = {
    _TILE.name: replace(
        _TILE,
        measures=(error_measure("kernel_top_1", "top1", "Top-1 slowdown (%)"), *_TILE.measures[1:]),
        labels=replace(
            labels_of(_TILE.name),
            error="Top-1 slowdown",
            short_error="Top-1 slowdown",
            definition="Top-1 slowdown: how much slower a kernel is at the tile size that a model ranks "
            "first than at the fastest of those measured (tpugraphs2023, section 5.1), mean over a program's "
            "kernels. Kendall's τ: tau-b between predicted and measured runtimes of a kernel's tile sizes, "
            "mean over kernels.",
        ),
    )
}
"""Those that differ over imported samples."""


def described(task: str, split: str) -> Task:
    """Returns a learned task with the measures and labels that it has on a split."""
    return _IMPORTED.get(task, LEARNED[task]) if split == OWN else LEARNED[task]


def labels_on(task: str, split: str) -> Labels:
    """Returns the labels of a learned task on a split."""
    labels = described(task, split).labels
    assert labels is not None, f"{task} is learned, so it has labels"
    return labels
