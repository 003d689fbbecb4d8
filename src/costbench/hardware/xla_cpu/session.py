"""Measures fusion configs of one program in a process of its own, and keeps what it compiled and measured.

A folder holds the state of a program: XLA's own default, then a pair of files for every config (its kernels
as JSON, its executable), then the results of each round. A later session reads the executables instead of
compiling again, so the second round costs no compilation and may come at any time. What a killed session has
written stays.

`python -m costbench.hardware.xla_cpu.session PROGRAM FOLDER SECONDS [CORE]` runs one session: further configs
for so many seconds, or, for 0, the second round of what has a first, then the first of what has none. No
session compiles and measures: where arrays lie after a compilation made kernels up to ten times slower.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import I16
from costbench.artifacts import read_bytes, read_json, write_bytes, write_json
from costbench.errors import DataError, HloError
from costbench.hardware.xla_cpu.acceptance import MAX_RUN_S, LeftOutError
from costbench.hardware.xla_cpu.backend import GIVEN_FLAGS, Backend, Executable
from costbench.hardware.xla_cpu.device import (
    CompiledConfig,
    ConfigRuns,
    ProgramRunner,
)
from costbench.hardware.xla_cpu.program import MachineProgram, PlacedKernels
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from costbench.rng import stream

OWN, UNFUSED, DEFAULT, RANDOM = "xla", "unfused", "costbench", "random"
"""Origins of configs: what XLA fuses by itself, nothing fused, the default of `compiler.fusion`, drawn."""
_FIXED = (OWN, UNFUSED, DEFAULT)
FIRST, SECOND = "first", "second"
LEFT_OUT = "left_out.json"
PROGRAM_SUFFIX = ".hlo.pb.zst"
EXIT_LEFT_OUT = 3
_BARREN = 4
"""Configs in a row without a new kernel after which no more are drawn."""
_RUNS_OF_BOTH_ROUNDS = 20


@dataclass(frozen=True)
class SessionSpec:
    """How much a session does.

    Attributes:
        seconds: processor time of compilations and runs after which no further config is added.
        max_kernels: distinct kernels after which none is added.
        seed: seed of configs, inputs and orders.
        core: core that is measured on; None for the last that the process may use.
    """

    seconds: float
    max_kernels: int = 700
    seed: int = 0
    core: int | None = None


@dataclass(frozen=True)
class KeptConfig:
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
        difference: difference of the results from the unfused program's; -1 where that was not there yet.
        run_seconds: processor time of the first run; a config above `MAX_RUN_S` is not measured.
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

    @property
    def bits(self) -> I16:
        """Returns the config, [m]."""
        return np.array(list(self.fused), dtype=np.int16)


@dataclass(frozen=True)
class KeptRound:
    """The runs of a config in a round; `NNNN.first.json`, `NNNN.second.json`; see `ConfigRuns`.

    Attributes:
        wall_ns: wall time of every run without a trace.
        cpu_share: processor time over wall time.
        kernel_ns: traced runs by fingerprint in hexadecimal digits.
        operations: operations of a kernel by fingerprint.
        outside_ns: time of the operations of no kernel.
        started: when the round was measured, seconds since 1970.
    """

    wall_ns: list[int]
    cpu_share: float
    kernel_ns: dict[str, list[float]]
    operations: dict[str, int]
    outside_ns: float
    started: float


def kept_configs(folder: Path) -> list[KeptConfig]:
    """Returns the configs with an executable in the folder of a program, by number.

    Raises:
        DataError: if a file is damaged.
    """
    return [_kept(path, KeptConfig) for path in sorted(folder.glob("[0-9][0-9][0-9][0-9].json"))]


def kept_round(folder: Path, config: int, number: str) -> KeptRound | None:
    """Returns the results of a config in round `FIRST` or `SECOND`; None for none yet.

    Raises:
        DataError: if the file is damaged.
    """
    path = _round_path(folder, config, number)
    return _kept(path, KeptRound) if path.exists() else None


def _kept(path: Path, kind: Any) -> Any:
    content: Any = read_json(path)
    try:
        return kind(**content)
    except TypeError as error:
        raise DataError("is no such result", where=path, expected=kind.__name__) from error


def _round_path(folder: Path, config: int, number: str) -> Path:
    return folder / f"{config:04d}.{number}.json"


class Session:
    """A program and its folder.

    Args:
        path: file of the program.
        folder: folder of its state.
        spec: how much is done.
    """

    def __init__(self, path: Path, folder: Path, spec: SessionSpec) -> None:
        self._folder, self._spec = folder, spec
        module = read_module(path)
        opcodes = {opcode for body in module.computations for opcode in body.opcodes}
        if opcodes & {Opcode.CALL, Opcode.FUSION}:
            # Records name instructions of the file, and kernels have those of several computations then.
            raise LeftOutError("has calls or fusions", expected="a program with all of them inlined")
        self._program = MachineProgram(module, path.name.removesuffix(PROGRAM_SUFFIX))
        self._runner = ProgramRunner(self._program, Backend(GIVEN_FLAGS, spec.core), spec.seed, folder)
        self._compiled: dict[int, CompiledConfig] = {}

    # ---- configs -----------------------------------------------------------------------------------------

    def extend(self) -> int:
        """Compiles further configs; returns how many.

        Raises:
            LeftOutError: if a run takes too long.
        """
        seen = {name for config in kept_configs(self._folder) for name in config.fingerprints}
        numbers = [int(path.name[:4]) for path in self._folder.glob("[0-9][0-9][0-9][0-9].*")]
        number, added, barren, spent = max(numbers, default=-1) + 1, 0, 0, 0.0
        while (number < len(_FIXED) or (spent < self._spec.seconds and barren < _BARREN)) and (
            len(seen) < self._spec.max_kernels
        ):
            # A compilation that ends the process is not tried again.
            failed = self._folder / f"{number:04d}.failed"
            write_bytes(failed, b"the process ended")
            try:
                config = self._add(number)
            except HloError as error:
                write_bytes(failed, str(error).encode())
            else:
                failed.unlink()
                spent += config.compile_seconds + _RUNS_OF_BOTH_ROUNDS * config.run_seconds
                barren = barren + 1 if seen.issuperset(config.fingerprints) else 0
                seen.update(config.fingerprints)
                added += 1
            number += 1
        return added

    def _add(self, number: int) -> KeptConfig:
        origin = _FIXED[number] if number < len(_FIXED) else RANDOM
        runner = self._runner
        compiled = runner.own_default if origin == OWN else runner.compile(self._config(origin, number))
        start = time.process_time()
        outputs = runner.backend.run(compiled.executable.loaded, runner.inputs)
        run_seconds = time.process_time() - start
        if run_seconds > MAX_RUN_S and origin in (OWN, DEFAULT):
            raise LeftOutError(f"a run takes {run_seconds:.1f} s")
        if origin == UNFUSED:
            runner.reference = outputs
        config = KeptConfig(
            number,
            origin,
            "".join(map(str, compiled.fused.tolist())),
            [name.hex() for name in compiled.placed.fingerprints],
            [
                [k.computation, k.inputs, k.instructions, k.outputs, k.trip_count]
                for k in compiled.placed.kernels
            ],
            dict(compiled.executable.kernels),
            compiled.executable.num_split,
            compiled.executable.compile_seconds,
            -1.0 if origin == OWN else min(runner.difference(outputs), 1e30),
            round(run_seconds, 4),
        )
        if origin != OWN:
            # Without it a later session compiles the config again.
            with suppress(HloError):
                path = self._folder / f"{number:04d}.bin"
                write_bytes(path, runner.backend.to_bytes(compiled.executable.loaded))
        write_json(self._folder / f"{number:04d}.json", asdict(config))
        self._compiled[number] = compiled
        return config

    def _config(self, origin: str, number: int) -> I16:
        space = self._program.space
        if origin == UNFUSED:
            return np.zeros_like(space.default)
        if origin == DEFAULT:
            return space.default
        drawn: I16 = space.sample(stream(self._spec.seed, "fusion configs", self._program.name, number), 1)[0]
        return drawn

    def _executable(self, config: KeptConfig) -> CompiledConfig:
        """Returns a config with its executable, from memory or its file, or compiled again."""
        if config.config not in self._compiled:
            self._compiled[config.config] = self._reload(config)
        return self._compiled[config.config]

    def _reload(self, config: KeptConfig) -> CompiledConfig:
        path = self._folder / f"{config.config:04d}.bin"
        if config.origin == OWN:
            return self._runner.own_default
        if not path.exists():
            return self._runner.compile(config.bits)
        loaded = self._runner.backend.from_bytes(read_bytes(path))
        fingerprints = tuple(map(bytes.fromhex, config.fingerprints))
        return CompiledConfig(
            config.bits, PlacedKernels((), fingerprints), Executable(loaded, config.operations)
        )

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
            for config in kept_configs(self._folder)
            if config.run_seconds <= MAX_RUN_S
            and not _round_path(self._folder, config.config, number).exists()
            and (number == FIRST or _round_path(self._folder, config.config, FIRST).exists())
        ]
        if not waiting:
            return 0
        started = time.time()
        measured = self._runner.measure([self._executable(config) for config in waiting], number)
        for config, runs in zip(waiting, measured, strict=True):
            write_json(_round_path(self._folder, config.config, number), asdict(_round_of(runs, started)))
        return len(waiting)


def _round_of(runs: ConfigRuns, started: float) -> KeptRound:
    return KeptRound(
        runs.wall_ns,
        runs.cpu_share,
        {name.hex(): values for name, values in runs.kernel_ns.items()},
        {name.hex(): count for name, count in runs.operations.items()},
        runs.outside_ns,
        started,
    )


def main(arguments: Sequence[str]) -> int:
    """Runs a session.

    Args:
        arguments: file of the program, folder of its state, seconds of compilations and runs, core if any.

    Returns:
        0, or `EXIT_LEFT_OUT` for a program that is left out; `LEFT_OUT` in the folder says why.
    """
    path, folder, seconds = Path(arguments[0]), Path(arguments[1]), float(arguments[2])
    core = int(arguments[3]) if len(arguments) > 3 else None
    try:
        session = Session(path, folder, SessionSpec(seconds, core=core))
        added = session.extend() if seconds else 0
        again, first = (0, 0) if seconds else (session.measure(SECOND), session.measure(FIRST))
    except (LeftOutError, HloError) as error:
        write_json(folder / LEFT_OUT, {"reason": error.problem})
        return EXIT_LEFT_OUT
    kernels = len({name for config in kept_configs(folder) for name in config.fingerprints})
    sys.stdout.write(json.dumps({"again": again, "added": added, "first": first, "kernels": kernels}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
