"""What one worker process of a test session makes for all of them."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def common_folder(factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of a test session, below which its workers have folders of their own."""
    base = factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@contextmanager
def first_to_make(name: str, folder: Path) -> Iterator[bool]:
    """Whether the caller is the first that makes `name`; others wait until the block of the first ends.

    A block that raises has made nothing: the next caller is the first again.

    Args:
        name: name of what is made.
        folder: common folder of the workers.
    """
    done = folder / f"{name}.done"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not done.exists()
        done.touch()
