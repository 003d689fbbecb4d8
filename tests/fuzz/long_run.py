"""The long fuzz run: `python -m tests.fuzz.long_run --minutes 10 --seed 1`, with limits of time and memory.

Every mutation may take 20 seconds of CPU and 8 GiB; a defect is printed with its seed and number, and its
file is kept in the folder `--keep`, from where it can go to `tests/fuzz/corpus`.
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
from pathlib import Path
from types import FrameType

from tests.fuzz.readers import READERS, attempt, warm_up

CPU_SECONDS = 20.0
MAX_BYTES = 8 << 30


class TooSlowError(BaseException):
    """A mutation that takes longer than it may; no `Exception`, so that nothing handles it."""


def _too_slow(_signal: int, _frame: FrameType | None) -> None:
    raise TooSlowError


def main() -> int:
    """Runs mutations of all readers in turn until the time is over; returns 1 if any was a defect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--kinds", nargs="*", default=list(READERS), choices=list(READERS))
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz"))
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    signal.signal(signal.SIGVTALRM, _too_slow)
    warm_up()
    end, number = time.monotonic() + 60 * options.minutes, options.first
    counts: Counter[str] = Counter()
    while time.monotonic() < end:
        for kind in options.kinds:
            counts[f"{kind}: {_one(kind, options.seed, number, options.keep)}"] += 1
        number += 1
    for outcome, count in sorted(counts.items()):
        sys.stdout.write(f"{count:8d} {outcome}\n")
    return int(any("defect" in outcome for outcome in counts))


def _one(kind: str, seed: int, number: int, keep: Path) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
        try:
            return attempt(kind, seed, number, folder)
        except (Exception, TooSlowError) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            sys.stdout.write(f"{kind} {seed} {number}: {error!r:.200} at {last.filename}:{last.lineno}\n")
            sys.stdout.flush()
            kept = keep / kind.replace(" ", "_")
            kept.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                shutil.copy(path, kept / f"{seed}_{number}{''.join(path.suffixes)}")
            return "defect"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


if __name__ == "__main__":
    sys.exit(main())
