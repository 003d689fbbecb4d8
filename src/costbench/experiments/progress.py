"""Progress of a stage that makes shards: a bar on a terminal, otherwise one log line per shard."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from costbench.datasets.storage import ShardSummary

_log = logging.getLogger(__name__)


class ShardProgress:
    """Context manager that shows shards done and remaining, samples per second and time left.

    The unit of counting is a (task, program, chip), which has one or more shards.

    Args:
        total: number of units.
        console: where the bar is drawn, if that is a terminal; stderr by default.
        label: name of the stage.
    """

    def __init__(self, total: int, console: Console | None = None, label: str = "generate") -> None:
        console = Console(stderr=True) if console is None else console
        self._total = total
        self._kept: set[tuple[str, str, str]] = set()
        self._made: set[tuple[str, str, str]] = set()
        self._samples = 0
        self._started = time.monotonic()
        self._bar = Bar(
            TextColumn(label),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]} samples/s,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
        )
        self._row = self._bar.add_task("", total=total, rate="–")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if kind is None:
            counts = self._total, len(self._kept), len(self._made), self._samples
            _log.info("%d wanted: %d kept, %d made with %d samples", *counts)

    def kept(self, summary: ShardSummary) -> None:
        """Counts a shard that already existed."""
        self._kept.add(_counted(summary))
        # Kept shards take no time and must not enter the estimate of the time left.
        self._bar.reset(self._row, completed=len(self._kept))
        self._started = time.monotonic()

    def made(self, summary: ShardSummary) -> None:
        """Counts a shard that was made."""
        self._made.add(_counted(summary))
        self._samples += summary.num_samples
        done = len(self._kept) + len(self._made)
        rate = f"{self._samples / max(time.monotonic() - self._started, 1e-9):,.0f}"
        self._bar.update(self._row, completed=done, rate=rate)
        if self._bar.disable:
            _log.info(
                "[%d/%d] %s: %s on %s: %d kernels, %d samples (%s samples/s)",
                done, self._total, summary.task, summary.name, summary.chip,
                summary.num_kernels, summary.num_samples, rate,
            )  # fmt: skip


def _counted(summary: ShardSummary) -> tuple[str, str, str]:
    return summary.task, summary.name, summary.chip
