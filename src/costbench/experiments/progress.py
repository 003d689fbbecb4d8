"""How far `generate` is: a bar on a terminal, a line for each shard everywhere else."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from costbench.datasets.generation import ShardSummary

_log = logging.getLogger(__name__)


class ShardProgress:
    """Shards made and to be made, samples per second, time left; a context manager.

    Args:
        total: shards wanted.
        console: where the bar is drawn, if that is a terminal; stderr by default.
    """

    def __init__(self, total: int, console: Console | None = None) -> None:
        console = Console(stderr=True) if console is None else console
        self._total = total
        self._kept = self._made = self._samples = 0
        self._started = time.monotonic()
        self._bar = Bar(
            TextColumn("generate"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("shards, {task.fields[rate]} samples/s,"),
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
            _log.info(
                "%d shards: %d kept, %d made with %d samples",
                self._total,
                self._kept,
                self._made,
                self._samples,
            )

    def kept(self, _: ShardSummary) -> None:
        """A shard was there already."""
        self._kept += 1
        # Kept shards take no time, so they must not count in the time left.
        self._bar.reset(self._row, completed=self._kept)
        self._started = time.monotonic()

    def made(self, summary: ShardSummary) -> None:
        """A shard was made."""
        self._made += 1
        self._samples += summary.num_samples
        rate = self._samples / max(time.monotonic() - self._started, 1e-9)
        self._bar.update(self._row, advance=1, rate=f"{rate:,.0f}")
        if self._bar.disable:
            _log.info(
                "[%d/%d] %s: %s on %s: %d kernels, %d samples (%s samples/s)",
                self._kept + self._made, self._total, summary.task, summary.name, summary.chip,
                summary.num_kernels, summary.num_samples, f"{rate:,.0f}",
            )  # fmt: skip
