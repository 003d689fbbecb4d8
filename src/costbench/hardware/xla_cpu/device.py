"""The device `xla_cpu`: this processor, by XLA's backend, on one core.

`XlaCpu` measures kernels by themselves, as a `KernelCosts` or one by one; `ProgramRunner` measures whole
programs with fusion configs, whose kernels are then timed where they run. Results of both are compared with
those of the unfused computation on the same inputs.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import F64, I16, I64, Bool
from costbench.artifacts import read_bytes
from costbench.compiler.kernel import Kernel, kernel_module
from costbench.errors import CostbenchError, DataError
from costbench.hardware.xla_cpu.acceptance import MAX_RUN_S, LeftOutError, tolerance_of
from costbench.hardware.xla_cpu.backend import Backend, Executable, Run, largest_difference
from costbench.hardware.xla_cpu.fusing import Membership
from costbench.hardware.xla_cpu.own_default import (
    OWN_EXECUTABLE,
    OWN_FUSED,
    OWN_MODULE,
    compile_own_default,
)
from costbench.hardware.xla_cpu.program import (
    REMADE,
    MachineProgram,
    PlacedKernels,
    count_runs,
    named_bytes,
    row_major,
)
from costbench.hardware.xla_cpu.transposes import transposes_of
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.shape import ElementType, Shape
from costbench.rng import stream

MAX_EVENTS = 60_000
"""Operations of a run above which a program is not measured."""
_QUICK_S, _LONG_S = 0.02, 0.4
_ORDERS = "order of configs"
_MANY_EVENTS = 5_000


@dataclass(frozen=True)
class KernelRow:
    """What a profile says of the kernels with one fingerprint.

    Attributes:
        fingerprint: 16 bytes.
        name: name of the first output, where they first occur.
        instructions: instructions of one of them.
        runs: how often all of them together run in one run of the program.
        runtime_ns: fastest run of one of them.
        spread: median over fastest run, minus 1.
        share: share of the time of all kernels.
    """

    fingerprint: bytes
    name: str
    instructions: int
    runs: int
    runtime_ns: float
    spread: float
    share: float


@dataclass(frozen=True, eq=False)
class CompiledConfig:
    """A program compiled under a fusion config.

    Attributes:
        fused: the config, [m]; for XLA's own default the nearest.
        placed: its kernels.
        executable: what runs.
    """

    fused: I16
    placed: PlacedKernels
    executable: Executable

    def rows(self, runs: ConfigRuns) -> list[KernelRow]:
        """Returns the kernels that were timed, those that take most of a run first."""
        first: dict[bytes, Kernel] = {}
        for kernel, name in zip(self.placed.kernels, self.placed.fingerprints, strict=True):
            first.setdefault(name, kernel)
        counts = count_runs(self.placed)
        totals = {name: counts[name] * min(values) for name, values in runs.kernel_ns.items()}
        everything = sum(totals.values()) or 1.0
        rows = []
        for name in sorted(totals, key=lambda name: (-totals[name], name)):
            kernel, values = first[name], runs.kernel_ns[name]
            fastest = max(min(values), 1.0)
            rows.append(
                KernelRow(
                    name,
                    kernel.instruction(kernel.outputs[0]).name,
                    len(kernel.instructions),
                    counts[name],
                    fastest,
                    float(np.median(values)) / fastest - 1.0,
                    totals[name] / everything,
                )
            )
        return rows


@dataclass(frozen=True, eq=False)
class ConfigRuns:
    """The timed runs of a config.

    Attributes:
        wall_ns: wall time of the whole program in every run without a trace.
        cpu_share: processor time over wall time of all runs.
        kernel_ns: by fingerprint, the mean over places in every traced run.
        operations: by fingerprint, operations of a kernel.
        outside_ns: time of the operations of no kernel, smallest of the traced runs.
    """

    wall_ns: list[int]
    cpu_share: float
    kernel_ns: dict[bytes, list[float]]
    operations: dict[bytes, int]
    outside_ns: float

    @property
    def runtime_ns(self) -> int:
        """Returns the runtime of the program: the fastest run."""
        return min(self.wall_ns)


@dataclass(frozen=True, eq=False)
class _OwnDefault:
    """What XLA makes of a program by itself; see `MachineProgram.own_fusions`."""

    placed: PlacedKernels
    executable: Executable
    library: frozenset[str]


class ProgramRunner:
    """A program on this processor.

    Args:
        program: the program.
        backend: client of this process, with `backend.GIVEN_FLAGS`.
        seed: seed of inputs and of the order of runs.
        own: folder with XLA's own default (see `own_default`); compiled now if left out.

    Attributes:
        program: the program.
        backend: the client.
        inputs: arguments of the program.

    Raises:
        LeftOutError: if XLA does not compile the program, or its inputs do not fit in memory.
        HloError: if it has an input that cannot be drawn, or a constant without a value.
    """

    def __init__(
        self, program: MachineProgram, backend: Backend, seed: int = 0, own: Path | None = None
    ) -> None:
        self.program, self.backend, self._seed = program, backend, seed
        self.data = program.to_bytes()
        self.inputs = _inputs(backend, program, seed)
        if own is None:
            with tempfile.TemporaryDirectory() as folder:
                self._own = self._compile_own(Path(folder))
        else:
            self._own = self._compile_own(own)

    @property
    def library(self) -> frozenset[str]:
        """Returns the names of reductions that XLA gives to a library."""
        return self._own.library

    @cached_property
    def own_default(self) -> CompiledConfig:
        """Returns the program with XLA's own fusions."""
        fused = self.program.nearest_config(self._own.placed.kernels)
        return CompiledConfig(fused, self._own.placed, self._own.executable)

    def _compile_own(self, folder: Path) -> _OwnDefault:
        compile_own_default(self.data, folder, self.program.name)
        placed, operations, library = self.program.own_fusions(read_bytes(folder / OWN_MODULE))
        data = read_bytes(folder / OWN_EXECUTABLE) if (folder / OWN_EXECUTABLE).exists() else b""
        if data:
            loaded = self.backend.from_bytes(data)
        else:
            loaded = self.backend.compile_fused(self.data, read_bytes(folder / OWN_FUSED))
        return _OwnDefault(placed, Executable(loaded, operations, read_from=data), library)

    @cached_property
    def reference(self) -> list[Any]:
        """Returns the results of the unfused program."""
        unfused = self.compile(np.zeros_like(self.program.space.default))
        return self.backend.run(unfused.executable.loaded, self.inputs)

    def compile(self, fused: I16) -> CompiledConfig:
        """Compiles the program under a config [m].

        Raises:
            HloError: if XLA refuses it.
        """
        placed = self.program.kernels(fused)
        membership = self.program.membership(placed.kernels, self.library)
        return CompiledConfig(fused, placed, self.backend.compile(self.data, membership))

    def difference(self, outputs: Sequence[Any]) -> float:
        """Returns the difference of results from the unfused program's, see `largest_difference`."""
        return largest_difference(outputs, self.reference)

    def check(self, config: CompiledConfig, name: str) -> None:
        """Runs a config once and compares its results with those of the unfused program.

        Args:
            config: the config.
            name: whose fusions they are, for errors.

        Raises:
            DataError: if they differ by more than `tolerance_of` the program.
        """
        difference = self.difference(self.backend.run(config.executable.loaded, self.inputs))
        tolerance = tolerance_of(self.program.module)
        if difference > tolerance:
            raise DataError(
                f"fusions change results by {difference:.2g} of their norm",
                where=self.program.name,
                field=name,
                expected=f"at most {tolerance:g}",
            )

    def measure(self, configs: Sequence[CompiledConfig], draw: str = "") -> list[ConfigRuns]:
        """Times whole programs and their kernels in this process; see `time_configs`.

        Args:
            configs: the configs.
            draw: name of the draw of orders.

        Raises:
            LeftOutError: if a run takes too long, or has too many operations.
        """
        timed = [TimedConfig(config.placed.fingerprints, config.executable) for config in configs]
        rng = stream(self._seed, _ORDERS, self.program.name, draw)
        return time_configs(self.backend, self.inputs, timed, rng, self.program.name)

    def measure_apart(self, configs: Sequence[CompiledConfig]) -> list[ConfigRuns]:
        """Times them as `measure` does, in a new process that compiles nothing.

        Where arrays lie after a compilation has made kernels up to ten times slower.

        Raises:
            LeftOutError: if a run takes too long, has too many operations, or the process is ended.
            HloError: if a config holds an operation of which XLA cannot keep the executable.
        """
        kept = [
            (
                config.placed.fingerprints,
                config.executable.read_from or self.backend.to_bytes(config.executable.loaded),
                dict(config.executable.kernels),
            )
            for config in configs
        ]
        module, name = module_to_bytes(self.program.module), self.program.name
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            timed = process.submit(_time_kept, module, name, kept, self._seed, self.backend.core)
            try:
                return timed.result()
            except BrokenProcessPool as error:
                problem = "the process that times it was ended"
                raise LeftOutError(problem, where=name, expected="memory for the program") from error


@dataclass(frozen=True, eq=False)
class TimedConfig:
    """What is needed to time a config: fingerprints of its kernels, and what runs."""

    fingerprints: Sequence[bytes]
    executable: Executable


def time_configs(
    backend: Backend, inputs: list[Any], configs: Sequence[TimedConfig], rng: np.random.Generator, where: str
) -> list[ConfigRuns]:
    """Times whole programs and their kernels; the runs of the configs are interleaved.

    Every sweep visits all configs in an order drawn at random, without and with a trace.

    Args:
        backend: client of this process.
        inputs: arguments of the program.
        configs: the configs.
        rng: source of the orders.
        where: name of the program, for errors.

    Raises:
        LeftOutError: if a run takes longer than `MAX_RUN_S` or has more than `MAX_EVENTS` operations.
    """
    executables = [config.executable for config in configs]
    warm = [backend.time(executable.loaded, inputs, 1)[0] for executable in executables]
    typical_s = float(np.median([run.cpu_ns for run in warm])) * 1e-9
    [[probe]] = backend.trace(executables[:1], inputs, 1)
    events = sum(count for _, count in probe.operations.values())
    if events > MAX_EVENTS or typical_s > MAX_RUN_S:
        expected = f"at most {MAX_RUN_S:g} s and {MAX_EVENTS:,} operations"
        problem = f"a run takes {typical_s:.1f} s and has {events:,} operations"
        raise LeftOutError(problem, where=where, expected=expected)
    visits, sweeps = _repeats(typical_s, events)
    plain: list[list[Run]] = [[] for _ in configs]
    traced: list[list[Run]] = [[] for _ in configs]
    for _ in range(sweeps):
        order = rng.permutation(len(configs)).tolist()
        for index in order:
            plain[index] += backend.time(executables[index].loaded, inputs, visits)
        runs = backend.trace([executables[index] for index in order], inputs, visits)
        for index, runs_of_config in zip(order, runs, strict=True):
            traced[index] += runs_of_config
    return [
        runs_of(config.fingerprints, config.executable.kernels, *runs)
        for config, *runs in zip(configs, plain, traced, strict=True)
    ]


def _time_kept(
    program: bytes,
    name: str,
    kept: Sequence[tuple[Sequence[bytes], bytes, Mapping[str, int]]],
    seed: int,
    core: int | None,
) -> list[ConfigRuns]:
    """Times executables that another process has compiled."""
    backend = Backend(core=core)
    module = module_from_bytes(program, where=name)
    configs = [
        TimedConfig(fingerprints, Executable(backend.from_bytes(data), kernels))
        for fingerprints, data, kernels in kept
    ]
    rng = stream(seed, _ORDERS, name, "")
    return time_configs(backend, backend.inputs(module, seed), configs, rng, name)


def _repeats(typical_s: float, events: int) -> tuple[int, int]:
    """Returns runs in a row and sweeps for programs of a length."""
    if events > _MANY_EVENTS or typical_s > _LONG_S:
        return 1, 3
    return (2, 5) if typical_s > _QUICK_S else (3, 6)


def runs_of(
    fingerprints: Sequence[bytes], kernels: Mapping[str, int], plain: Sequence[Run], traced: Sequence[Run]
) -> ConfigRuns:
    """Returns the results of runs; of every fingerprint the mean over the places of its kernels.

    Args:
        fingerprints: fingerprints of the kernels.
        kernels: number of the kernel of each operation, by name.
        plain: runs without a trace.
        traced: runs with one.
    """
    operations_of: dict[int, list[str]] = {}
    for operation, kernel in kernels.items():
        operations_of.setdefault(kernel, []).append(operation)
    kernel_ns: dict[bytes, list[float]] = {}
    num_operations: dict[bytes, int] = {}
    outside_ns: list[float] = []
    for run in traced:
        times: dict[bytes, list[float]] = {}
        for kernel, operations in operations_of.items():
            timed = [run.operations[name] for name in operations if name in run.operations]
            total = sum(total for total, _ in timed)
            if kernel < 0:
                outside_ns.append(total)
            elif timed:
                name = fingerprints[kernel]
                times.setdefault(name, []).append(total / max(count for _, count in timed))
                num_operations[name] = max(num_operations.get(name, 0), len(timed))
        for name, values in times.items():
            kernel_ns.setdefault(name, []).append(round(sum(values) / len(values), 1))
    everything = [*plain, *traced]
    share = sum(run.cpu_ns for run in everything) / max(1, sum(run.wall_ns for run in everything))
    wall_ns = [run.wall_ns for run in plain]
    return ConfigRuns(wall_ns, round(share, 4), kernel_ns, num_operations, min(outside_ns, default=0.0))


def _inputs(backend: Backend, program: MachineProgram, seed: int) -> list[Any]:
    """Returns the arguments of a program, which have to fit in memory."""
    body = program.module.entry_computation
    needed = sum(body.instructions[position].shape.num_bytes for position in body.parameters)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        problem = f"inputs of {needed / 2**30:,.1f} GiB"
        expected = f"at most the memory of this machine, {there / 2**30:.1f} GiB"
        raise LeftOutError(problem, where=program.name, expected=expected)
    return backend.inputs(program.module, seed)


# ---- kernels by themselves -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KernelMeasurement:
    """Measurements of n kernels by themselves.

    Attributes:
        runtime_ns: fastest run, at least 1, int64 [n]; 0 where it failed.
        failed: whether XLA refused a kernel, bool [n].
        run_seconds: time of compilation and runs that a kernel is charged, float64 [n].
        spread: median over minimum, minus 1, float64 [n]; 0 where it failed.
    """

    runtime_ns: I64
    failed: Bool
    run_seconds: F64
    spread: F64

    @property
    def seconds(self) -> float:
        """Returns the time charged for all."""
        return float(self.run_seconds.sum())


class XlaCpu:
    """This processor as a device for kernels; a `KernelCosts`.

    Kernels that are measured together are independent operations of one module, compiled once. A kernel that
    XLA removes, since it moves no data, takes 1 ns.

    Args:
        backend: client of this process.
        seed: seed of the inputs.
        repeats: timed runs.
    """

    def __init__(self, backend: Backend, seed: int = 0, repeats: int = 10) -> None:
        self._backend, self._seed, self._repeats = backend, seed, repeats

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns measured nanoseconds, float64 [n]; infinite where a kernel failed."""
        measured = self.measure(kernels)
        return np.where(measured.failed, np.inf, measured.runtime_ns.astype(np.float64))

    def measure(self, kernels: Sequence[Kernel]) -> KernelMeasurement:
        """Compiles and runs kernels, and compares their results with the unfused computation.

        Raises:
            DataError: if fusing changes results by more than `tolerance_of` the kernels.
        """
        if not kernels:
            return _stack([])
        try:
            return self._measure(kernels)
        except CostbenchError:
            if len(kernels) == 1:
                raise
        parts = [kernels[: len(kernels) // 2], kernels[len(kernels) // 2 :]]
        return _join([self._measure_or_fail(part) for part in parts])

    def _measure_or_fail(self, kernels: Sequence[Kernel]) -> KernelMeasurement:
        start = time.perf_counter()
        try:
            return self.measure(kernels)
        except CostbenchError:
            seconds = time.perf_counter() - start
            return _stack([(0, seconds, 0.0) for _ in kernels])

    def _measure(self, kernels: Sequence[Kernel]) -> KernelMeasurement:
        start = time.perf_counter()
        module, owner = standalone_module(kernels)
        data, inputs = named_bytes(module), self._backend.inputs(module, self._seed)
        transposes = transposes_of(module)
        fused = self._backend.compile(data, Membership(owner, transposes=transposes))
        unfused = self._backend.compile(data, Membership({}, transposes=transposes))
        outputs, expected = (self._backend.run(e.loaded, inputs) for e in (fused, unfused))
        difference = largest_difference(outputs, expected)
        tolerance = tolerance_of(module)
        if difference > tolerance:
            problem = f"fusing changes results by {difference:.2g}"
            raise DataError(problem, where=module.name, expected=f"at most {tolerance}")
        [runs] = self._backend.trace([fused], inputs, self._repeats)
        numbers = [number.to_bytes(4, "big") for number in range(len(kernels))]
        timed = runs_of(numbers, fused.kernels, [], runs).kernel_ns
        if len(kernels) == 1:
            # XLA may have made operations of it that have no name; all are the kernel's.
            timed[numbers[0]] = [sum(total for total, _ in run.operations.values()) for run in runs]
        seconds = (time.perf_counter() - start) / len(kernels)
        parts = []
        for number, kernel in zip(numbers, kernels, strict=True):
            if number not in timed:
                parts.append(self._measure_or_fail([kernel]))
                continue
            fastest, median = min(timed[number]), float(np.median(timed[number]))
            spread = median / fastest - 1.0 if fastest else 0.0
            parts.append(_stack([(max(1, round(fastest)), seconds, spread)]))
        return _join(parts)


def _stack(rows: Sequence[tuple[int, float, float]]) -> KernelMeasurement:
    runtime_ns = np.array([row[0] for row in rows], dtype=np.int64)
    seconds, spread = (np.array([row[i] for row in rows], dtype=np.float64) for i in (1, 2))
    return KernelMeasurement(runtime_ns, runtime_ns == 0, seconds, spread)


def _join(parts: Sequence[KernelMeasurement]) -> KernelMeasurement:
    names = ("runtime_ns", "failed", "run_seconds", "spread")
    return KernelMeasurement(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def standalone_module(kernels: Sequence[Kernel]) -> tuple[HloModule, dict[str, int]]:
    """Returns a module that computes kernels independently, and the number of the kernel of each instruction.

    Its parameters are the inputs of all kernels; it returns all of their outputs. Names are those of
    `named_bytes`.
    """
    computations: list[HloComputation] = []
    entry: list[Instruction] = []
    outputs: list[int] = []
    owner_of: dict[int, int] = {}
    num_parameters = 0
    for number, kernel in enumerate(kernels):
        module = row_major(kernel_module(kernel))
        base, first = len(computations), len(entry)
        for index, body in enumerate(module.computations):
            if index != module.entry:
                computations.append(_shift_callees(body, base))
        body = module.entry_computation
        is_tuple = len(kernel.outputs) > 1
        for position, inst in enumerate(body.instructions[: -1 if is_tuple else None]):
            shifted = replace(
                inst,
                operands=tuple(first + operand for operand in inst.operands),
                control_predecessors=tuple(first + other for other in inst.control_predecessors),
                called=tuple(base + callee for callee in inst.called),
                parameter_number=inst.parameter_number + num_parameters,
            )
            entry.append(shifted)
            if inst.opcode not in REMADE:
                owner_of[first + position] = number
        results = body.root_instruction.operands if is_tuple else (body.root,)
        outputs += [first + result for result in results]
        num_parameters += len(kernel.inputs)
    shape = Shape(ElementType.TUPLE, tuple_shapes=tuple(entry[position].shape for position in outputs))
    entry.append(Instruction("results", Opcode.TUPLE, shape, tuple(outputs)))
    computations.append(HloComputation("kernels", tuple(entry), len(entry) - 1))
    module = HloModule("kernels", tuple(computations), len(computations) - 1)
    offset = module.offsets[module.entry]
    return module, {f"i{offset + position}": number for position, number in owner_of.items()}


def _shift_callees(body: HloComputation, base: int) -> HloComputation:
    instructions = tuple(
        replace(inst, called=tuple(base + callee for callee in inst.called)) for inst in body.instructions
    )
    return replace(body, instructions=instructions)
