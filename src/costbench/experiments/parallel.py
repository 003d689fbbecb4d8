"""Independent pieces of work on several processes: a lost worker costs its piece, not the run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from costbench.errors import DataError

_ATTEMPTS = 3
_T = TypeVar("_T")
_R = TypeVar("_R")


def run_each(
    function: Callable[[_T], _R],
    pieces: Mapping[str, _T],
    jobs: int,
    on_done: Callable[[str, _R], None],
) -> dict[str, _R]:
    """`function` of every piece, on `jobs` processes.

    joblib chooses where processes run: `joblib.parallel_config` puts another backend (such as a Dask
    cluster) in place of the local processes.

    Args:
        function: of one piece; arguments and results travel between processes.
        pieces: by name, the longest work first.
        jobs: processes; with 1 the work is done in this one.
        on_done: called for each finished piece, in order of completion.

    Returns:
        results by name, in the order of `pieces`.

    Raises:
        DataError: if workers keep dying.
        CostbenchError: whatever a piece raises.
    """
    found: dict[str, _R] = {}
    for _ in range(_ATTEMPTS):
        missing = {name: piece for name, piece in pieces.items() if name not in found}
        if not missing:
            break
        # A worker whose memory has grown is replaced by a fresh one; loky warns of it, and need not.
        with warnings.catch_warnings(), suppress(TerminatedWorkerError):
            warnings.filterwarnings("ignore", message="A worker stopped")
            for name, result in _results(function, missing, jobs):
                found[name] = result
                on_done(name, result)
    left = [name for name in pieces if name not in found]
    if left:
        raise DataError(f"workers died {_ATTEMPTS} times", where=left[0], expected="enough memory")
    return {name: found[name] for name in pieces}


def _results(function: Callable[[_T], _R], pieces: Mapping[str, _T], jobs: int) -> Iterator[tuple[str, _R]]:
    if jobs == 1 or len(pieces) == 1:
        yield from (_named(function, name, piece) for name, piece in pieces.items())
        return
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(joblib.delayed(_named)(function, name, piece) for name, piece in pieces.items())


def _named(function: Callable[[_T], _R], name: str, piece: _T) -> tuple[str, _R]:
    return name, function(piece)
