"""A bar where there is a terminal, lines where there is none."""

from __future__ import annotations

import logging
from io import StringIO

import pytest
from rich.console import Console

from costbench.datasets.storage import ShardSummary
from costbench.experiments.progress import ShardProgress
from tests.sentences import numbers


def _summary(name: str, num_samples: int = 30, task: str = "tile") -> ShardSummary:
    return ShardSummary(task, name, "tpu_v2", 3, num_samples, 0, 0.5)


def test_lines_where_there_is_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    drawn = StringIO()
    with caplog.at_level(logging.INFO), ShardProgress(3, Console(file=drawn)) as progress:
        progress.kept(_summary("a", 1000))
        progress.made(_summary("b"))
        progress.made(_summary("c", 12))
    second, third, last = caplog.messages
    # Number and total, kernels, samples.
    assert numbers(second.replace("/", " "))[:4] == [2, 3, 3, 30]
    assert numbers(third.replace("/", " "))[:4] == [3, 3, 3, 12]
    # Shards, kept, made, samples of those.
    assert numbers(last) == [3, 1, 2, 42]
    assert drawn.getvalue() == ""


def test_a_bar_on_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    drawn = StringIO()
    console = Console(file=drawn, force_terminal=True, width=100)
    with caplog.at_level(logging.INFO), ShardProgress(4, console) as progress:
        progress.kept(_summary("a"))
        progress.made(_summary("b"))
    assert "2/4" in drawn.getvalue()
    assert "samples/s" in drawn.getvalue()
    (message,) = caplog.messages
    assert numbers(message) == [4, 1, 1, 30]


def test_parts_of_a_program_count_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), ShardProgress(2, Console(file=StringIO())) as progress:
        for _ in range(3):
            progress.made(_summary("a", 10, "fusion"))
        progress.made(_summary("a", 10))
    assert [message.split()[0] for message in caplog.messages[:-1]] == ["[1/2]", "[1/2]", "[1/2]", "[2/2]"]


def test_an_error_leaves_no_summary(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(ZeroDivisionError),
        ShardProgress(2, Console(file=StringIO())),
    ):
        raise ZeroDivisionError
    assert caplog.messages == []
