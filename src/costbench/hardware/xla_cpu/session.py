"""Measures fusion configs of one program in a process of its own, and keeps what it compiled and measured.

A folder holds the state of a program: XLA's own default, then a pair of files for every config (its kernels
as JSON, its executable), then the results of each round. A later session reads the executables instead of
compiling again, so the second round costs no compilation and may come at any time. What a killed session has
written stays.

Runs of the configs of a program are interleaved: every sweep visits all of them, in an order drawn at
random, so that a disturbance falls on all alike. Kernels are timed inside the whole program, where their
inputs are in the caches in which the kernels before them left them; that is what a program pays.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import I16
from costbench.artifacts import read_bytes, read_json, write_bytes, write_json
from costbench.errors import CostbenchError, DataError, HloError
from costbench.hardware.xla_cpu.backend import (
    GIVEN_FLAGS,
    Backend,
    Executable,
    Run,
    largest_difference,
)
from costbench.hardware.xla_cpu.program import MachineProgram, PlacedKernels
from costbench.hlo.reader import read_module
from costbench.rng import stream

OWN, UNFUSED, DEFAULT, RANDOM = "xla", "unfused", "costbench", "random"
"""Origins of configs: what XLA fuses by itself, nothing fused, the default of `compiler.fusion`, drawn."""
_FIXED = (OWN, UNFUSED, DEFAULT)
FIRST, SECOND = "first", "second"
LEFT_OUT = "left_out.json"
MAX_RUN_S, MAX_EVENTS = 2.0, 60_000
_QUICK_S, _SHORT_S, _LONG_S = 0.02, 0.1, 0.4
_MANY_EVENTS = 5_000
_OWN_TIMEOUT_S = 240
_BARREN = 4
"""Configs in a row without a new kernel after which no more are drawn."""


@dataclass(frozen=True)
class SessionSpec:
    """How much a session does.

    Attributes:
        seconds: processor time of compilations and runs after which no further config is added.
        max_kernels: distinct kernels after which none is added.
        seed: seed of configs, inputs and orders.
    """

    seconds: float
    max_kernels: int = 700
    seed: int = 0


@dataclass(frozen=True)
class MeasuredConfig:
    """A config with an executable; `NNNN.json` in the folder.

    Attributes:
        config: number of the config.
        origin: see `OWN`.
        fused: a digit for every edge of the fusion space.
        fingerprints: fingerprints of the kernels at all places, in hexadecimal digits.
        kernels: computation, inputs, instructions, outputs and trip count of each.
        operations: number of the kernel of each operation, by name.
        num_split: kernels that became several loops.
        compile_seconds: processor time of the compilation.
        difference: largest difference of a result from the unfused program's, see `largest_difference`.
        run_seconds: wall time of the first run; a config above `MAX_RUN_S` is not measured.
    """

    config: int
    origin: str
    fused: str
    fingerprints: list[str]
    kernels: list[list[Any]]
    operations: dict[str, int]
    num_split: int
    compile_seconds: float
    difference: float
    run_seconds: float


@dataclass(frozen=True)
class MeasuredRound:
    """The runs of a config in one round; `NNNN.first.json` and `NNNN.second.json` in the folder.

    Attributes:
        wall_ns: wall time of the whole program in every run without a trace.
        cpu_share: processor time over wall time of all runs.
        kernel_ns: by fingerprint, the mean over places in every traced run.
        operations: by fingerprint, operations of a kernel.
        outside_ns: time of the operations of no kernel, smallest of the traced runs.
        started: when the round was measured, seconds since 1970.
    """

    wall_ns: list[int]
    cpu_share: float
    kernel_ns: dict[str, list[float]]
    operations: dict[str, int]
    outside_ns: float
    started: float


class LeftOutError(CostbenchError):
    """A program that takes too long."""


class Session:
    """A program and its folder.

    Args:
        path: file of the program.
        folder: folder of its state.
        spec: how much is done.
    """

    def __init__(self, path: Path, folder: Path, spec: SessionSpec) -> None:
        self.folder, self.spec = folder, spec
        name = path.name.removesuffix(".hlo.pb.zst")
        self.program = MachineProgram(read_module(path), name)
        self._data = self.program.to_bytes()
        self._own()
        self.backend = Backend(GIVEN_FLAGS)
        self._inputs = self.backend.inputs(self.program.module, spec.seed)
        self._library = frozenset(self._read_own()[2])
        self._reference: list[Any] = []
        self._loaded: dict[int, Executable] = {}

    # ---- configs -----------------------------------------------------------------------------------------

    def _own(self) -> None:
        """Compiles XLA's own default in a process with other flags, unless it is there."""
        if (self.folder / "own.pb").exists():
            return
        write_bytes(self.folder / "program.pb", self._data)
        command = [sys.executable, "-m", "costbench.hardware.xla_cpu.own_default", str(self.folder)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_OWN_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise LeftOutError(f"XLA compiles it for more than {_OWN_TIMEOUT_S} s") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise LeftOutError(f"XLA does not compile it: {lines[-1][:200]}")

    def _read_own(self) -> tuple[PlacedKernels, dict[str, int], frozenset[str]]:
        return self.program.own_fusions(read_bytes(self.folder / "own.pb"))

    def configs(self) -> list[MeasuredConfig]:
        """Returns the configs with an executable, by number."""
        found = []
        for path in sorted(self.folder.glob("[0-9]*.json")):
            if path.name.count(".") == 1:
                content: Any = read_json(path)
                found.append(MeasuredConfig(**content))
        return found

    def extend(self) -> list[int]:
        """Compiles further configs; returns their numbers.

        Raises:
            LeftOutError: if a run takes too long.
        """
        seen = {name for config in self.configs() for name in config.fingerprints}
        numbers = [int(path.name[:4]) for path in self.folder.glob("[0-9]*.*")]
        number, added, barren, spent = max(numbers, default=-1) + 1, [], 0, 0.0
        while (number < len(_FIXED) or (spent < self.spec.seconds and barren < _BARREN)) and (
            len(seen) < self.spec.max_kernels
        ):
            # A compilation that ends the process is not tried again.
            pending = self.folder / f"{number:04d}.failed"
            write_bytes(pending, b"the process ended")
            try:
                config = self._add(number)
            except (HloError, DataError) as error:
                write_bytes(pending, str(error).encode())
            else:
                pending.unlink()
                # Both rounds run it some twenty times.
                spent += config.compile_seconds + 20 * config.run_seconds
                barren = barren + 1 if seen.issuperset(config.fingerprints) else 0
                seen.update(config.fingerprints)
                added.append(number)
            number += 1
        return added

    def _add(self, number: int) -> MeasuredConfig:
        origin = _FIXED[number] if number < len(_FIXED) else RANDOM
        if origin == OWN:
            placed, operations, _ = self._read_own()
            loaded = self.backend.from_bytes(read_bytes(self.folder / "own.bin"))
            executable = Executable(loaded, operations)
            fused = self.program.nearest_config(placed.kernels)
        else:
            fused = self._config(origin, number)
            placed = self.program.kernels(fused)
            membership = self.program.membership(placed.kernels, self._library)
            executable = self.backend.compile(self._data, membership)
        start = time.perf_counter()
        outputs = self.backend.run(executable.loaded, self._inputs)
        run_seconds = time.perf_counter() - start
        if run_seconds > MAX_RUN_S and origin in (OWN, DEFAULT):
            raise LeftOutError(f"a run takes {run_seconds:.1f} s")
        if origin == UNFUSED:
            self._reference = outputs
        config = MeasuredConfig(
            number,
            origin,
            "".join(map(str, fused.tolist())),
            [name.hex() for name in placed.fingerprints],
            [[k.computation, k.inputs, k.instructions, k.outputs, k.trip_count] for k in placed.kernels],
            dict(executable.kernels),
            executable.num_split,
            executable.compile_seconds,
            self._difference(outputs),
            round(run_seconds, 4),
        )
        if origin != OWN:
            write_bytes(self.folder / f"{number:04d}.bin", self.backend.to_bytes(executable.loaded))
        write_json(self.folder / f"{number:04d}.json", asdict(config))
        self._loaded[number] = executable
        return config

    def _config(self, origin: str, number: int) -> I16:
        space = self.program.space
        if origin == UNFUSED:
            return np.zeros_like(space.default)
        if origin == DEFAULT:
            return space.default
        return space.sample(stream(self.spec.seed, "fusion configs", self.program.name, number), 1)[0]

    def _difference(self, outputs: list[Any]) -> float:
        """Returns the difference from the unfused program; -1 where that is not there."""
        if not self._reference:
            path = self.folder / "0001.bin"
            if not path.exists():
                return -1.0
            self._reference = self.backend.run(self.backend.from_bytes(read_bytes(path)), self._inputs)
        return min(largest_difference(outputs, self._reference), 1e30)

    def executable(self, config: MeasuredConfig) -> Executable:
        """Returns the executable of a config, from memory or its file."""
        if config.config not in self._loaded:
            name = "own.bin" if config.origin == OWN else f"{config.config:04d}.bin"
            loaded = self.backend.from_bytes(read_bytes(self.folder / name))
            self._loaded[config.config] = Executable(loaded, config.operations)
        return self._loaded[config.config]

    # ---- timing ------------------------------------------------------------------------------------------

    def measure(self, number: str) -> int:
        """Measures the configs that have no results of a round yet; returns how many.

        Args:
            number: `FIRST` or `SECOND`; the second one measures only what has a first.

        Raises:
            LeftOutError: if a run takes too long, or has too many operations.
        """
        waiting = [
            config
            for config in self.configs()
            if config.run_seconds <= MAX_RUN_S
            and not self._path(config, number).exists()
            and (number == FIRST or self._path(config, FIRST).exists())
        ]
        if not waiting:
            return 0
        started = time.time()
        executables = [self.executable(config) for config in waiting]
        warm = [self.backend.time(executable.loaded, self._inputs, 1)[0] for executable in executables]
        typical_s = float(np.median([run.wall_ns for run in warm])) * 1e-9
        [probe] = self.backend.trace(executables[:1], self._inputs, 1)
        events = sum(count for _, count in probe[0].operations.values())
        if events > MAX_EVENTS or typical_s > MAX_RUN_S:
            raise LeftOutError(f"a run takes {typical_s:.1f} s and has {events} events")
        visits, sweeps = _repeats(typical_s, events)
        plain: list[list[Run]] = [[] for _ in waiting]
        traced: list[list[Run]] = [[] for _ in waiting]
        rng = stream(self.spec.seed, "order of configs", self.program.name, number)
        for _ in range(sweeps):
            order = rng.permutation(len(waiting)).tolist()
            for index in order:
                plain[index] += self.backend.time(executables[index].loaded, self._inputs, visits)
            runs = self.backend.trace([executables[index] for index in order], self._inputs, visits)
            for index, runs_of_one in zip(order, runs, strict=True):
                traced[index] += runs_of_one
        for config, plain_runs, traced_runs in zip(waiting, plain, traced, strict=True):
            result = round_of(config, plain_runs, traced_runs, started)
            write_json(self._path(config, number), asdict(result))
        return len(waiting)

    def _path(self, config: MeasuredConfig, number: str) -> Path:
        return self.folder / f"{config.config:04d}.{number}.json"


def _repeats(typical_s: float, events: int) -> tuple[int, int]:
    """Returns runs in a row and sweeps for programs of a length."""
    if events > _MANY_EVENTS or typical_s > _LONG_S:
        return 1, 3
    if typical_s > _SHORT_S:
        return 2, 5
    return (2, 5) if typical_s > _QUICK_S else (3, 6)


def round_of(
    config: MeasuredConfig, plain: Sequence[Run], traced: Sequence[Run], started: float
) -> MeasuredRound:
    """Returns the results of a config's runs; of every fingerprint the mean over its places."""
    operations_of: dict[int, list[str]] = {}
    for operation, kernel in config.operations.items():
        operations_of.setdefault(kernel, []).append(operation)
    kernel_ns: dict[str, list[float]] = {}
    num_operations: dict[str, int] = {}
    outside = float("inf")
    for run in traced:
        places: dict[str, list[float]] = {}
        for kernel, operations in operations_of.items():
            timed = [run.operations[name] for name in operations if name in run.operations]
            total = sum(total for total, _ in timed)
            if kernel < 0:
                outside = min(outside, total)
            elif timed:
                name = config.fingerprints[kernel]
                places.setdefault(name, []).append(total / max(count for _, count in timed))
                num_operations[name] = max(num_operations.get(name, 0), len(timed))
        for name, values in places.items():
            kernel_ns.setdefault(name, []).append(round(sum(values) / len(values), 1))
    wall = sum(run.wall_ns for run in (*plain, *traced))
    return MeasuredRound(
        [run.wall_ns for run in plain],
        round(sum(run.cpu_ns for run in (*plain, *traced)) / wall, 4),
        kernel_ns,
        num_operations,
        0.0 if outside == float("inf") else outside,
        started,
    )


def main(arguments: Sequence[str]) -> int:
    """Runs a session: second round of what has a first, further configs, their first round.

    Args:
        arguments: file of the program, folder of its state, seconds of compilation.

    Returns:
        0, or 3 for a program that is left out.
    """
    path, folder, seconds = Path(arguments[0]), Path(arguments[1]), float(arguments[2])
    try:
        session = Session(path, folder, SessionSpec(seconds))
        again = session.measure(SECOND)
        added = session.extend() if seconds else []
        first = session.measure(FIRST)
    except LeftOutError as error:
        write_json(folder / LEFT_OUT, {"reason": str(error)})
        return 3
    kernels = len({name for config in session.configs() for name in config.fingerprints})
    sys.stdout.write(
        json.dumps({"again": again, "added": len(added), "first": first, "kernels": kernels}) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
