"""Compares fusions of a program with XLA's own by running all of them anew, interleaved, in new processes.

The processes have the flags that users have. XLA's own default is compiled as users get it, the others
through the hook from the modules that a search kept. A first process does that; those that time only load, as
where arrays lie after a compilation has made kernels slower for the life of a process. In every round each
program runs a few times in a row, the fastest of which counts, in an order that turns from round to round; so
what disturbs the machine meets all alike. Several processes are needed: where memory happens to lie, which
stays for the life of a process, can make a program twice as slow. Results are compared with those of XLA's
own default before anything is timed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import read_bytes, read_json, write_bytes, write_json
from costbench.errors import DataError, HloError
from costbench.hardware.xla_cpu.acceptance import tolerance_of
from costbench.hardware.xla_cpu.backend import OWN_FLAGS, Backend, largest_difference
from costbench.hlo.reader import read_module
from costbench.metrics.intervals import paired_bootstrap
from costbench.params import parse
from costbench.rng import stream

OWN = "xla"
"""Name of XLA's own default in a comparison."""
PROGRAM_FILE = "program.hlo.pb"
_FUSED, _COMPILED, _RESULT = ".fused.pb", ".bin", ".runs.json"
_COMPILE = "compile"
_IN_A_ROW = 3
_MIN_ROUNDS, _MAX_ROUNDS = 3, 15
_STARTUP_S = 600.0


@dataclass(frozen=True)
class Comparison:
    """Runs of a program with XLA's own fusions and with others.

    Attributes:
        runtime_ns: by name, the processor time of a run in every process, the median of its rounds; `OWN` is
            among them.
        difference: largest difference of the results from those of XLA's own default, by name.
        tolerance: difference up to which results are equal.
    """

    runtime_ns: Mapping[str, tuple[float, ...]]
    difference: Mapping[str, float]
    tolerance: float

    def gain(self, name: str) -> Gain:
        """Returns how many times as fast as with XLA's own default the program is."""
        default, other = (np.log(np.array(self.runtime_ns[key])) for key in (OWN, name))
        rng = stream(0, "comparison with XLA's own fusions", name)
        interval = paired_bootstrap(default, other, rng)
        estimate, low, high = np.exp([interval.difference, interval.low, interval.high]).tolist()
        return Gain(estimate, low, high)


@dataclass(frozen=True)
class Gain:
    """How many times as fast as with XLA's own default a program is, with a 95% interval over processes.

    Attributes:
        estimate: geometric mean over processes of runtime by default / runtime.
        low: lower end.
        high: upper end.
    """

    estimate: float
    low: float
    high: float

    @property
    def is_faster(self) -> bool:
        """Whether it is faster by more than the noise."""
        return self.low > 1.0

    @property
    def is_slower(self) -> bool:
        """Whether it is slower by more than that."""
        return self.high < 1.0


def compare(
    program: bytes, modules: Mapping[str, bytes], folder: Path, *, processes: int = 5, seconds: float = 60.0
) -> Comparison:
    """Runs a program with XLA's own fusions and with those of modules, in processes of its own.

    Args:
        program: serialised program.
        modules: serialised modules with fusions by name, as `Executable.module`.
        folder: folder that the processes exchange files in; what an earlier comparison left there goes.
        processes: number of processes.
        seconds: time of all processes after which no further round begins; compiling is not counted.

    Raises:
        DataError: if a process fails, or if fusions change results: then they are wrong, however fast.
    """
    for path in (*folder.glob(f"*{_FUSED}"), *folder.glob(f"*{_COMPILED}"), *folder.glob(f"*{_RESULT}")):
        path.unlink()
    write_bytes(folder / PROGRAM_FILE, program)
    for name, module in modules.items():
        write_bytes(folder / f"{name}{_FUSED}", module)
    _run_process(folder, _COMPILE)
    share = seconds / processes
    results = [_timed_process(folder, number, share) for number in range(processes)]
    for result in results:
        for name, difference in result.difference.items():
            if difference > result.tolerance:
                raise DataError(
                    f"changes the results by {difference:.2g} of their norm",
                    where=folder / f"{name}{_FUSED}",
                    expected=f"at most {result.tolerance:g}",
                )
    return Comparison(
        runtime_ns={
            name: tuple(float(np.median(result.runtime_ns[name])) for result in results)
            for name in results[0].runtime_ns
        },
        difference={
            name: max(result.difference[name] for result in results) for name in results[0].difference
        },
        tolerance=results[0].tolerance,
    )


def _timed_process(folder: Path, number: int, seconds: float) -> Comparison:
    """Runs a process that times; returns its runtimes round by round."""
    _run_process(folder, str(number), seconds)
    path = folder / f"{number}{_RESULT}"
    return parse(Comparison, read_json(path), where=path, error=DataError)


def _run_process(folder: Path, task: str, seconds: float = 0.0) -> None:
    """Runs a process: `_COMPILE`, or the number of one that times for so many seconds."""
    arguments = [str(folder), task, str(seconds)]
    command = [sys.executable, "-m", "costbench.hardware.xla_cpu.comparison", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_STARTUP_S + 10 * seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DataError("runs do not end", where=folder, expected="a smaller program") from error
    if done.returncode < 0:
        problem = f"ended by signal {-done.returncode}"
        raise DataError(problem, where=folder, expected="memory and time for the program")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise DataError(f"cannot be run: {lines[-1][:200]}", where=folder, expected="a program that XLA runs")


def run_all(backend: Backend, folder: Path, seconds: float) -> Comparison:
    """Runs the program of a folder with XLA's own fusions and with those of its modules, round by round."""
    module, loaded = read_module(folder / PROGRAM_FILE), load_all(backend, folder)
    inputs = backend.inputs(module)
    expected = backend.run(loaded[OWN], inputs)
    difference = {
        name: min(largest_difference(backend.run(executable, inputs), expected), sys.float_info.max)
        for name, executable in loaded.items()
    }
    del expected
    runtimes = _rounds(backend, loaded, inputs, seconds)
    times = {name: tuple(column.tolist()) for name, column in zip(loaded, runtimes.T, strict=True)}
    return Comparison(times, difference, tolerance_of(module))


def load_all(backend: Backend, folder: Path) -> dict[str, Any]:
    """Returns the executables of a folder by name, XLA's own default first."""
    names = [OWN, *sorted(path.name.removesuffix(_FUSED) for path in folder.glob(f"*{_FUSED}"))]
    return {name: _load(backend, folder, name) for name in names}


def _load(backend: Backend, folder: Path, name: str) -> Any:
    """Returns an executable, compiled and kept by the first process, read by later ones."""
    compiled = folder / f"{name}{_COMPILED}"
    if compiled.exists():
        return backend.from_bytes(read_bytes(compiled))
    program = read_bytes(folder / PROGRAM_FILE)
    if name == OWN:
        loaded = backend.compile_own(program)
    else:
        loaded = backend.compile_fused(program, read_bytes(folder / f"{name}{_FUSED}"))
    # Executables with operations that cannot be kept are compiled in every process.
    with suppress(HloError):
        write_bytes(compiled, backend.to_bytes(loaded))
    return loaded


def _rounds(backend: Backend, loaded: Mapping[str, Any], inputs: Sequence[Any], seconds: float) -> F64:
    """Returns the fastest processor time of each program in every round, float64 [rounds, programs]."""
    executables = list(loaded.values())
    for executable in executables:
        backend.time(executable, inputs, 1)
    rows: list[F64] = []
    start = time.perf_counter()
    while len(rows) < _MIN_ROUNDS or (len(rows) < _MAX_ROUNDS and time.perf_counter() - start < seconds):
        row = np.empty(len(executables))
        for place in range(len(executables)):
            index = (place + len(rows)) % len(executables)
            runs = backend.time(executables[index], inputs, _IN_A_ROW)
            row[index] = max(1, min(run.cpu_ns for run in runs))
        rows.append(row)
    return np.array(rows)


def main(arguments: Sequence[str]) -> None:
    """Runs a process; arguments are the folder, `_COMPILE` or the number of the process, and its seconds."""
    folder, task, seconds = Path(arguments[0]), arguments[1], float(arguments[2])
    backend = Backend(OWN_FLAGS)
    if task == _COMPILE:
        load_all(backend, folder)
    else:
        write_json(folder / f"{task}{_RESULT}", asdict(run_all(backend, folder, seconds)))


if __name__ == "__main__":
    main(sys.argv[1:])
