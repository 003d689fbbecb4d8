"""Changes random bits of files that a run left or the repository holds, and runs a stage that reads them.

`python -m tests.pipelines.stage_flips WORKPLACE --flips 500` does it where the smoke profile has run,
and prints how many ended how; each time all files are as before. After a bit is changed, a stage may

- refuse: one line names the file and the command that makes it again;
- make again: the file and all results are what they were;
- pass over: the file is not among those that it reads, and all results are what they were.

Anything else is a defect: a result that differs, a traceback, a message of several lines.
"""

from __future__ import annotations

import argparse
import filecmp
import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import chdir
from importlib import import_module
from pathlib import Path

from costbench.errors import CostbenchError
from costbench.execution.workers import BackendFlags
from costbench.rng import stream

PARAMS = Path("profiles/smoke/params.yaml")
OUT = Path("out/smoke")
REFUSED, MADE_AGAIN, PASSED_OVER = "refused", "made again", "passed over"
_STAGES, _FLAGS = "costbench.experiments.stages", BackendFlags(jobs=1)
_REPORT, _SCHEDULES = "costbench.reports.stage", "costbench_schedules.stage"
_WALL_TIMES = ("machine", "optuna.db", "wall_times.json", "overhead.json", "overhead.md")
"""Names of files and folders whose contents differ between runs that are equal."""


def _experiment(path: Path) -> str:
    """Returns the experiment that a file of the stages `train` and `evaluate` belongs to."""
    parts = path.relative_to(OUT).parts
    return parts[2] if parts[0] == "machine" else parts[1]


READERS: Mapping[str, tuple[str, ...]] = {
    f"{OUT}/generate/programs/*.zst": ("generate", "features"),
    f"{OUT}/generate/tile/*/*.arrow": ("generate", "split", "features", "evaluate:main-tile"),
    f"{OUT}/generate/fusion/*/*.arrow": ("generate", "split", "features"),
    f"{OUT}/generate/layout/*/*.arrow": ("generate", "split", "features"),
    f"{OUT}/generate/*/*/*.json": ("generate",),
    f"{OUT}/generate/*.json": ("generate", "features"),
    f"{OUT}/split/*.json": ("split", "evaluate:main-tile", "report"),
    f"{OUT}/features/tile/*/*.arrow": ("features", "evaluate:main-tile"),
    f"{OUT}/features/fusion/*/*.arrow": ("features", "evaluate:main-fusion"),
    f"{OUT}/features/layout/*/*/*.arrow": ("features", "evaluate:tpugraphs-layout"),
    f"{OUT}/features/programs/*.json": ("features", "autotune"),
    f"{OUT}/features/notes/*/*.json": ("features",),
    f"{OUT}/features/identity.json": ("features", "train:main-tile"),
    f"{OUT}/sweep/*": ("sweep", "report", "train:tuned-tile"),
    f"{OUT}/optuna.db": ("sweep",),
    f"{OUT}/train/*/*/*model.json": ("train:", "evaluate:", "register"),
    f"{OUT}/train/*/*/weights.pt": ("train:", "evaluate:", "register"),
    f"{OUT}/train/*/*/*.json": ("train:", "evaluate:", "report"),
    f"{OUT}/train/*/*/history.csv": ("train:", "report"),
    f"{OUT}/train/*/identity.json": ("train:", "evaluate:"),
    f"{OUT}/evaluate/*/*.json*": ("evaluate:", "report"),
    f"{OUT}/evaluate/*/programs/*.json": ("evaluate:",),
    f"{OUT}/machine/*/*/*.json": ("report", "train:", "evaluate:"),
    f"{OUT}/machine/*.json": ("report",),
    f"{OUT}/autotune/*.json*": ("autotune", "report"),
    f"{OUT}/autotune/work_items/*.json": ("autotune",),
    f"{OUT}/schedules/**/*.json*": ("schedules", "report"),
    f"{OUT}/register/champions.json": ("register",),
    f"{OUT}/register/*/*.*": ("register",),
    f"{OUT}/inputs/**/*.json": ("inputs",),
    f"{OUT}/results.parquet": ("report",),
    f"{OUT}/reports/**/*.*": ("report",),
    f"{OUT}/**/costbench.sha256": ("report", "features", "evaluate:main-tile", "autotune", "schedules"),
    "data/programs/*.zst": ("generate", "autotune"),
    "data/programs/manifest.json": ("generate", "split"),
    "data/schedules/*/C*.arrow": ("schedules",),
    "data/schedules/**/*.*": ("schedules", "report"),
    "data/networks/*.*": ("schedules", "report"),
    "data/*/costbench.sha256": ("generate", "schedules"),
}
"""Kinds of files, and the stages that read them or write them; `train:` is the file's own experiment."""


def run_stage(stage: str, path: Path) -> None:
    """Runs a stage, for an experiment or for that of a file. Raises: CostbenchError, as the stage does."""
    name, is_of_experiment, experiment = stage.partition(":")
    module = {"report": _REPORT, "schedules": _SCHEDULES}.get(name, f"{_STAGES}.{name}")
    run: Callable[..., None] = import_module(module).run
    if is_of_experiment:
        run(PARAMS, experiment or _experiment(path), _FLAGS)
    elif name == "sweep":
        run(PARAMS, backend_flags=_FLAGS)
    elif name in ("report", "inputs", "split", "register"):
        run(PARAMS)
    else:
        run(PARAMS, _FLAGS)


def flip(path: Path, bit: int) -> None:
    """Changes a bit, and not the time of the file."""
    times, data = path.stat(), bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.unlink()  # DVC's copy may be the same file
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def differences(folder: Path, expected: Path) -> list[Path]:
    """Returns the files below a folder, relative to it, that are not byte for byte those of another."""
    names = {
        path.relative_to(root) for root in (folder, expected) for path in root.rglob("*") if path.is_file()
    }
    return [name for name in sorted(names) if not _is_same(folder / name, expected / name)]


def _is_same(path: Path, expected: Path) -> bool:
    if not (path.is_file() and expected.is_file()):
        return False
    facts, other = path.stat(), expected.stat()
    same_time = (facts.st_size, facts.st_mtime_ns) == (other.st_size, other.st_mtime_ns)
    return same_time or filecmp.cmp(path, expected, shallow=False)


def restore(folder: Path, copy: Path) -> None:
    """Makes a folder equal to its copy, contents and times."""
    for name in differences(folder, copy):
        (folder / name).unlink(missing_ok=True)
        if (copy / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(copy / name, folder / name)


def attempt(path: Path, bit: int, stage: str, copy: Path) -> str:
    """Changes a bit, runs a stage, and returns how that ended; the files are then as they were.

    Args:
        path: file, from the root of the workplace, which is the current folder.
        bit: number of the bit.
        stage: name of the stage, maybe with an experiment.
        copy: copy of the folders `out` and `data`.

    Raises:
        AssertionError: where damage was believed, or the message is not what it should be.
        Exception: what the stage raises beside errors for users.
    """
    flip(path, bit)
    damaged = path.read_bytes()
    try:
        return _outcome(path, damaged, stage, copy)
    finally:
        if path.is_file() and path.read_bytes() == damaged:
            flip(path, bit)
        for name in ("out", "data"):
            restore(Path(name), copy / name)


def _outcome(path: Path, damaged: bytes, stage: str, copy: Path) -> str:
    try:
        run_stage(stage, path)
    except CostbenchError as raised:
        error = str(raised)
        assert error.isprintable(), error
        assert len(error) < 500, error
        assert path.name in error, error
        assert " again" in error or "git checkout" in error, error
        return REFUSED
    is_damaged = path.read_bytes() == damaged and (copy / path).read_bytes() != damaged
    changed = [OUT / name for name in differences(OUT, copy / OUT) if not _is_wall_time(name)]
    others = [str(name) for name in changed if not (is_damaged and name == path)]
    assert not others, f"changed: {', '.join(others)}"
    return PASSED_OVER if is_damaged else MADE_AGAIN


def _is_wall_time(name: Path) -> bool:
    return not set(_WALL_TIMES).isdisjoint(name.parts) or "wall_times" in name.name


def kinds_of_files(stages: Collection[str] = ()) -> list[tuple[list[Path], tuple[str, ...]]]:
    """Returns the files of each kind, and those of `stages` (all, if that is empty) that read them."""
    kinds = [
        (_files(pattern), tuple(name for name in readers if not stages or name.partition(":")[0] in stages))
        for pattern, readers in READERS.items()
    ]
    return [(files, readers) for files, readers in kinds if files and readers]


def draw(flips: int, seed: int, stages: Collection[str] = ()) -> Iterator[tuple[Path, int, str]]:
    """Yields files, bits and stages: each kind of file in turn, everything else at random."""
    random = stream(seed, "flips of stages")
    kinds = kinds_of_files(stages)
    for number in range(flips):
        files, readers = kinds[number % len(kinds)]
        path = files[int(random.integers(len(files)))]
        yield path, int(random.integers(8 * path.stat().st_size)), readers[int(random.integers(len(readers)))]


def _files(pattern: str) -> list[Path]:
    paths = (path for path in Path().glob(pattern) if path.is_file() and path.stat().st_size)
    return sorted(path for path in paths if path.suffix != ".md")


def main() -> int:
    """Changes bits in a workplace and prints what came of it; returns 1 if any was a defect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("workplace", type=Path)
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stages", nargs="*", default=[], help="names of the stages that are run (all)")
    parser.add_argument("--first", type=int, default=0, help="number of the first flip")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    counts: Counter[str] = Counter()
    with chdir(options.workplace):
        copy = Path("copy")
        if not copy.exists():
            for name in ("out", "data"):
                shutil.copytree(name, copy / name, symlinks=False)
        for number, (path, bit, stage) in enumerate(draw(options.flips, options.seed, options.stages)):
            if number < options.first:
                continue
            try:
                end = attempt(path, bit, stage, copy)
            except Exception as error:
                end = "defect"
                sys.stdout.write(f"{number} {path} bit {bit} in {stage}: {type(error).__name__}: {error}\n")
            counts[end] += 1
            sys.stderr.write(f"{number} {stage} {path} {end}\n")
            sys.stderr.flush()
            sys.stdout.flush()
    numbers = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    sys.stdout.write(f"{counts.total()} changed bits: {numbers}\n")
    return int(counts["defect"] > 0)


if __name__ == "__main__":
    sys.exit(main())
