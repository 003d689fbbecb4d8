"""The long fuzz run: `python -m tests.fuzz.long_run --seconds 60 --seed 1`, with limits of time and memory.

For each reader it tries the files that were kept, then mutations until its seconds are over. Each may take 10
seconds of CPU and 8 GiB of addresses; a defect is printed with its seed and number, and its file is kept in
the folder `--keep`, from where it can go to `tests/fuzz/corpus`.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

from tests.fuzz.readers import READERS, attempt, corpus_files, outcome, warm_up

CPU_SECONDS = 10.0
MAX_BYTES = 8 << 30
_COMPILE = ("program", "program bytes", "text")
"""Kinds of files that are compiled as programs."""


class TooSlowError(BaseException):
    """A mutation that takes longer than it may; no `Exception`, so that nothing handles it."""


def _too_slow(_signal: int, _frame: FrameType | None) -> None:
    raise TooSlowError


def main() -> int:
    """Runs mutations of all readers; returns 1 if any was a defect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--kinds", nargs="*", default=list(READERS), choices=list(READERS))
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz"))
    parser.add_argument("--workers", type=int, default=1, help="readers that are run at once")
    options = parser.parse_args()
    has_defects = False
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        run = partial(
            fuzz, seconds=options.seconds, seed=options.seed, first=options.first, keep=options.keep
        )
        for kind, counts in zip(options.kinds, pool.map(run, options.kinds), strict=True):
            has_defects = has_defects or counts["defect"] > 0
            numbers = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            sys.stdout.write(f"{kind:<15} {numbers}\n")
            sys.stdout.flush()
    return int(has_defects)


def fuzz(kind: str, seconds: float, seed: int, first: int, keep: Path) -> Counter[str]:
    """Returns the outcomes of the kept files of a kind and of its mutations from the number `first` on."""
    if kind in _COMPILE:
        warm_up()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    signal.signal(signal.SIGVTALRM, _too_slow)
    counts: Counter[str] = Counter()
    for source in corpus_files(kind):

        def try_kept(folder: Path, source: Path = source) -> str:
            return outcome(READERS[kind][1], Path(shutil.copy(source, folder)))

        counts[_limited(try_kept, kind, source.stem, keep)] += 1
    end, number = time.monotonic() + seconds, first
    while time.monotonic() < end:
        try_mutation = partial(attempt, kind, seed, number)
        counts[_limited(try_mutation, kind, f"{seed}_{number}", keep)] += 1
        number += 1
    return counts


def _limited(call: Callable[[Path], str], kind: str, name: str, keep: Path) -> str:
    """Returns the outcome of a call with an empty folder, whose files are kept if it is a defect."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
        try:
            return call(folder)
        except (Exception, TooSlowError) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            sys.stdout.write(f"{kind} {name}: {error!r:.200} at {last.filename}:{last.lineno}\n")
            sys.stdout.flush()
            kept = keep / kind.replace(" ", "_")
            kept.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                shutil.copy(path, kept / f"{name}{''.join(path.suffixes)}")
            return "defect"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


if __name__ == "__main__":
    sys.exit(main())
