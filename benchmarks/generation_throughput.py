r"""How fast a data set is made, end to end: compiled, enumerated, sampled, measured and written.

Programs of the corpus go through the same tasks as in the stage `generate`, on workers that have started and
compiled their code before. The floor is what no code could avoid: copying, hashing and writing the bytes of
the finished tile shards; `ratio` is how many times as long making them takes. Memory is the largest peak of
any one process, the parent and all workers looked at.

    python -m benchmarks.generation_throughput --json
    python -m benchmarks.generation_throughput --programs unet2d_b8_train_f32 --steps
    python -m benchmarks.generation_throughput --programs all --tiles-per-kernel 20000 --fusion-configs 0 \
        --target-samples 25000000

With `--target-samples`, programs and then further seeds follow one another until that many samples are
written; nothing but counts is kept in memory from one to the next.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from costbench.artifacts import digest_bytes, write_bytes
from costbench.compiler import program
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.lowering.loop_nest import Lowering
from costbench.compiler.tile_space import TileSpace
from costbench.datasets import generation, tile_generation
from costbench.datasets.fusion_generation import FusionParams, FusionTask
from costbench.datasets.generation import Backend, ShardTask, generate
from costbench.datasets.tile_generation import TileParams, TileTask
from costbench.hardware.device import Device
from costbench.programs.manifest import ProgramEntry, load_manifest, read_program_bytes
from costbench.target import Target, load_target

PROGRAMS = (
    "alexnet_b128_train_f32",
    "dlrm_b2048_train_f32",
    "nmt_b32_infer_f32",
    "resnet50_b64_train_f32",
    "small_bert_L2_H128_b64_train_bf16",
    "unet2d_b8_train_f32",
)
FOLDER = Path(__file__).resolve().parents[1] / "data" / "programs"
_TASKS_PER_ROUND = 8
_SAMPLED_EVERY_S = 0.1
# Where the time of a tile task goes: who does what.
STEPS: dict[str, tuple[ModuleType | type, str]] = {
    "read": (generation, "module_from_bytes"),
    "layouts": (program, "lay_out_program"),
    "fusion": (program, "default_fusions"),
    "kernels": (program, "assemble"),
    "unique": (program, "_unique"),
    "lower": (Lowering, "loop_nest"),
    "enumerate": (tile_generation, "nest_tile_space"),
    "choose": (AnalyticalModel, "choose"),
    "sample": (TileSpace, "sample"),
    "measure": (Device, "measure_nest"),
    "write": (tile_generation, "write_shard"),
    "write program": (generation, "write_compiled_program"),
}


class PeakMemory:
    """The largest memory that any process of this run ever held, in bytes; a context manager.

    The kernel notes each process' peak (VmHWM), so looking now and then misses only processes that begin and
    end between two looks.
    """

    def __init__(self) -> None:
        self.num_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLED_EVERY_S):
            self._look()

    def _look(self) -> None:
        self.num_bytes = max([self.num_bytes, *map(_peak_bytes, _family("self"))])


def _family(process: str) -> Iterator[str]:
    """Returns a process and its descendants."""
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            numbers = children.read_text().split()
        except OSError:  # it ended just now
            continue
        for number in numbers:
            yield from _family(number)


def _peak_bytes(process: str) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


@dataclass(frozen=True)
class Made:
    """What was made in how long.

    Attributes:
        num_samples: written.
        num_kernels: that they belong to.
        num_shards: files.
        num_bytes: in these files.
        seconds: from programs to the last shard.
        floor_seconds: copying, hashing and writing the same bytes.
    """

    num_samples: int
    num_kernels: int
    num_shards: int
    num_bytes: int
    seconds: float
    floor_seconds: float


TaskOf = Callable[[ProgramEntry, bytes, int, Path], ShardTask]
"""The task of a program, for a round and a folder; a round is a seed."""


def make(entries: Sequence[ProgramEntry], task_of: TaskOf, jobs: int, target: int = 0) -> Made:
    """Makes the shards of some programs a few at a time, and with a target further rounds until it is met."""
    samples = kernels = shards = num_bytes = 0
    seconds = floor = 0.0
    for tasks in _batches(entries, task_of, repeated=target > 0):
        start = time.perf_counter()
        summaries = generate(tasks, Backend(jobs=jobs))
        seconds += time.perf_counter() - start
        samples += sum(summary.num_samples for summary in summaries)
        kernels += sum(summary.num_kernels for summary in summaries)
        paths = [path for task in tasks for path in task.paths]
        shards += len(paths)
        num_bytes += sum(path.stat().st_size for path in paths)
        floor += _floor_s(paths)
        if target:
            print(f"{samples:,} samples in {seconds:,.0f} s", file=sys.stderr)
            if samples >= target:
                break
    return Made(samples, kernels, shards, num_bytes, seconds, floor)


def _batches(
    entries: Sequence[ProgramEntry], task_of: TaskOf, *, repeated: bool
) -> Iterator[list[ShardTask]]:
    """Yields a few tasks at a time in a folder that is removed with all shards before the next ones."""
    # Programs of one size together, so that no worker waits long at the end of a batch.
    heaviest_first = sorted(entries, key=lambda entry: -entry.instructions)
    size = _TASKS_PER_ROUND if repeated else len(entries)
    number = 0
    while repeated or number == 0:
        for first in range(0, len(entries), size):
            with tempfile.TemporaryDirectory() as folder:
                yield [
                    task_of(entry, read_program_bytes(FOLDER, entry), number, Path(folder))
                    for entry in heaviest_first[first : first + size]
                ]
        number += 1


def _floor_s(paths: Sequence[Path]) -> float:
    start = time.perf_counter()
    for path in paths:
        data = path.read_bytes()
        digest_bytes(data)
        write_bytes(path.with_suffix(".copy"), data)
    return time.perf_counter() - start


def tile_task(target: Target, tiles: int) -> TaskOf:
    """Returns tile shards with at most `tiles` of each kernel."""

    def task_of(entry: ProgramEntry, data: bytes, number: int, folder: Path) -> ShardTask:
        params = TileParams(max_tiles_per_kernel=tiles, seed=number)
        return TileTask(entry.name, entry.application, data, (target,), params, folder)

    return task_of


def fusion_task(targets: tuple[Target, ...], configs: int) -> TaskOf:
    """Returns fusion shards of `configs` fusion configs per program."""

    def task_of(entry: ProgramEntry, data: bytes, number: int, folder: Path) -> ShardTask:
        params = FusionParams(max_configs=configs, seed=number)
        return FusionTask(entry.name, entry.application, data, targets, params, folder)

    return task_of


def step_seconds(entries: Sequence[ProgramEntry], task_of: TaskOf) -> dict[str, float]:
    """Returns where the time goes, in this process: seconds by step, and `other`."""
    spent: dict[str, float] = {}
    warm_up(task_of, jobs=1)
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        for step, (owner, name) in STEPS.items():
            stack.enter_context(_timed(owner, name, step, spent))
        start = time.perf_counter()
        for entry in entries:
            task_of(entry, read_program_bytes(FOLDER, entry), 0, Path(folder)).make()
        total = time.perf_counter() - start
    return spent | {"other": total - sum(spent.values())}


@contextmanager
def _timed(owner: ModuleType | type, name: str, step: str, spent: dict[str, float]) -> Iterator[None]:
    function = getattr(owner, name)

    def timed(*arguments: object, **named: object) -> object:
        start = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent[step] = spent.get(step, 0.0) + time.perf_counter() - start

    with patch.object(owner, name, timed):
        yield


def choose_programs(names: Sequence[str]) -> list[ProgramEntry]:
    """Programs of the corpus by name, or `all` of them."""
    entries = {entry.name: entry for entry in load_manifest(FOLDER)}
    if list(names) == ["all"]:
        return list(entries.values())
    missing = sorted(set(names) - set(entries))
    if missing:
        raise SystemExit(f"unknown programs: {', '.join(missing)}")
    return [entries[name] for name in names]


def warm_up(task_of: TaskOf, jobs: int) -> None:
    """Starts the workers, and lets each load (or compile) its machine code."""
    smallest = min(load_manifest(FOLDER), key=lambda entry: entry.instructions)
    data = read_program_bytes(FOLDER, smallest)
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / str(number) for number in range(2 * jobs)]
        generate([task_of(smallest, data, 0, subfolder) for subfolder in folders], Backend(jobs=jobs))


def tile_figures(made: Made) -> dict[str, float]:
    """Returns what a run of tile tasks says."""
    return {
        "tile_samples_per_s": made.num_samples / made.seconds,
        "num_samples": made.num_samples,
        "num_kernels": made.num_kernels,
        "bytes_per_sample": made.num_bytes / made.num_samples,
        "seconds": made.seconds,
        "floor_seconds": made.floor_seconds,
        "ratio": made.seconds / made.floor_seconds,
    }


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    commands = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="generation_throughput",
    )
    commands.add_argument("--programs", nargs="+", default=PROGRAMS, help="names of programs, or `all`")
    commands.add_argument(
        "--tiles-per-kernel", type=int, default=20_000, help="tiles sampled per kernel (20,000)"
    )
    commands.add_argument("--target-samples", type=int, default=0, help="go on until so many are written")
    commands.add_argument("--fusion-configs", type=int, default=200, help="per program (200); 0 for none")
    commands.add_argument("--chip", default="tpu_v3", help="chip, by name or file (tpu_v3)")
    commands.add_argument("--jobs", type=int, default=2, help="processes of one thread each (2)")
    commands.add_argument("--steps", action="store_true", help="also say where the time of one process goes")
    commands.add_argument("--json", action="store_true", help="print one flat JSON object")
    return commands


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Returns everything asked for, by name."""
    entries, target = choose_programs(options.programs), load_target(options.chip)
    tiles = tile_task(target, options.tiles_per_kernel)
    with PeakMemory() as peak:
        warm_up(tiles, options.jobs)
        figures = tile_figures(make(entries, tiles, options.jobs, options.target_samples))
        if options.fusion_configs:
            fusions = fusion_task((target,), options.fusion_configs)
            warm_up(fusions, options.jobs)
            fused = make(entries, fusions, options.jobs)
            figures["fusion_kernels_per_s"] = fused.num_kernels / fused.seconds
            figures["fusion_num_kernels"] = fused.num_kernels
            figures["fusion_seconds"] = fused.seconds
            figures["fusion_bytes_per_kernel"] = fused.num_bytes / fused.num_kernels
    figures["peak_rss_mb"] = peak.num_bytes / 1e6
    if options.steps:
        figures |= {f"seconds/{step}": value for step, value in step_seconds(entries, tiles).items()}
    return figures


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, makes, times, prints."""
    options = parser().parse_args(arguments)
    figures = measure(options)
    if options.json:
        print(json.dumps(figures, indent=1, sort_keys=True))
        return
    for name, value in figures.items():
        print(f"{name:24}{value:>16,.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
