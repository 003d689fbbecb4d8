"""Processes of their own that start at once: all come from one that has imported what takes seconds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

_IMPORTED = ["costbench.experiments.sweeps.sweep", "costbench.experiments.stages.train", "mlflow"]


def start(function: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that calls a function of a module and then ends, in the current folder."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    process = context.Process(target=function, args=arguments)
    process.start()
    return process
