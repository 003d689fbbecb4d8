"""JAX's client for this processor: compiles programs with given fusions, runs and times them on one core.

XLA's passes are those that users have, at their optimisation level; only the pass that decides fusions is
replaced by a hook of jaxlib (`jax.extend.xla`). One process has one client, whose flags are read once: XLA
by itself gives some reductions with what they read to a library, so its own default is compiled in a process
with `OWN_FLAGS`, and programs with given fusions in one with `GIVEN_FLAGS`, in which a library computes
single dots and convolutions, and reductions alone where the fusions say so.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import AnyArray
from costbench.errors import DataError, HloError
from costbench.hardware.xla_cpu.fusing import Fused, Membership, fuse_module
from costbench.hlo.module import HloModule
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import ElementType, Shape
from costbench.installation import install_line
from costbench.rng import stream

OWN_FLAGS = "--xla_cpu_multi_thread_eigen=false"
GIVEN_FLAGS = f"{OWN_FLAGS} --xla_cpu_experimental_ynn_fusion_type=individual_dot,individual_convolution"
DISABLED_PASSES = "fusion,fusion-wrapper,cpu_multi_output_fusion,tree_reduction_rewriter"
"""Passes that decide fusions, and one that takes reductions apart for several cores."""
_SIMPLIFICATION = "simplification after layout assignment"
"""Pass that would drop transposes which XLA itself has made; see `_is_transposed_by_xla`."""
_HOOK = "costbench-fusions"
_ALLOCATOR = {-1: 2**31 - 1, -2: 2**28, -4: 0, -8: 1}
"""glibc's M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX and M_ARENA_MAX: one heap, which never shrinks."""
_MAX_INTEGER = 1000
_DTYPES = {
    ElementType.PRED: "bool", ElementType.S8: "int8", ElementType.S16: "int16", ElementType.S32: "int32",
    ElementType.S64: "int64", ElementType.U8: "uint8", ElementType.U16: "uint16", ElementType.U32: "uint32",
    ElementType.U64: "uint64", ElementType.F16: "float16", ElementType.BF16: "bfloat16",
    ElementType.F32: "float32", ElementType.F64: "float64", ElementType.C64: "complex64",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Executable:
    """A compiled program.

    Attributes:
        loaded: jaxlib's executable.
        kernels: number of the kernel of each operation by name; `fusing.OUTSIDE` for those of none.
        num_split: number of kernels that became several loops.
        compile_seconds: processor time of the compilation; 0 for one that was read.
        module: serialised module with the fusions, as `compile_fused` takes it; empty for one that was read.
        read_from: bytes of one that was read, which XLA cannot serialise again; empty for one compiled here.
    """

    loaded: Any
    kernels: Mapping[str, int]
    num_split: int = 0
    compile_seconds: float = 0.0
    module: bytes = b""
    read_from: bytes = b""


@dataclass(frozen=True, eq=False)
class Run:
    """One timed run of a program.

    Attributes:
        wall_ns: wall time.
        cpu_ns: processor time of the process meanwhile.
        operations: nanoseconds and number of executions of every operation by name; empty without a trace.
    """

    wall_ns: int
    cpu_ns: int
    operations: Mapping[str, tuple[float, int]] = field(default_factory=dict)


class Backend:
    """The client of this process, on one core.

    Args:
        flags: `OWN_FLAGS` or `GIVEN_FLAGS`; must be those of the process' first backend.
        core: number of the core that the process runs on; None for the last that it may use.

    Raises:
        DataError: if jaxlib is not installed.
    """

    def __init__(self, flags: str = GIVEN_FLAGS, core: int | None = None) -> None:
        require_jax()
        self.core = core
        chosen = core_to_use(core)
        if chosen is not None:
            os.sched_setaffinity(0, {chosen})
        keep_memory()
        os.environ.update(XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
        import jax

        self._jax: Any = jax
        self._jax.config.update("jax_cpu_enable_async_dispatch", False)
        self._jax.config.update("jax_enable_x64", True)
        # jaxlib's type stubs leave these modules out.
        self._jaxlib: Any = import_module("jaxlib._jax")
        self._hlo: Any = import_module("jaxlib._hlo")
        self._hook: Any = import_module("jax.extend.xla")
        self._client: Any = import_module("jaxlib.xla_client")
        self._device = jax.local_devices(backend="cpu")[0]

    # ---- compiling ---------------------------------------------------------------------------------------

    def compile_own(self, program: bytes) -> Any:
        """Returns jaxlib's executable of a program with XLA's own fusions."""
        return self.compile_own_fused(program)[0]

    def compile_own_fused(self, program: bytes) -> tuple[Any, bytes]:
        """Returns the same, and the module with XLA's fusions, as `compile_fused` takes it."""
        modules: list[bytes] = []
        self._hook.register_hlo_module_transformation(modules.append, name=_HOOK, platforms="cpu")
        try:
            loaded = self._compile(program, self._client.CompileOptions())
        finally:
            self._hook.clear_hlo_module_transformation(_HOOK, platforms="cpu")
        return loaded, modules[0]

    def compile(self, program: bytes, membership: Membership) -> Executable:
        """Returns a program with given fusions.

        Raises:
            HloError: if XLA refuses it.
        """
        fused: list[Fused] = []
        problems: list[Exception] = []

        def fuse(module: bytes) -> bytes | None:
            try:
                fused.append(fuse_module(module, membership))
            except Exception as error:  # jaxlib would end the process
                problems.append(error)
                return None
            return bytes(fused[-1].module.SerializeToString())

        passes = DISABLED_PASSES
        if _is_transposed_by_xla(hlo_pb2.HloModuleProto.FromString(program)):
            passes = f"{passes},{_SIMPLIFICATION}"
        start = time.process_time()
        loaded = self._compile_through(program, fuse, passes)
        if problems:
            raise problems[0]
        seconds = time.process_time() - start
        module = bytes(fused[0].module.SerializeToString())
        return Executable(loaded, fused[0].kernels, fused[0].num_split, seconds, module)

    def compile_fused(self, program: bytes, module: bytes) -> Any:
        """Returns jaxlib's executable of a program with the fusions of a module that `compile` made of it.

        Raises:
            HloError: if XLA refuses it.
        """
        return self._compile_through(program, lambda _: module)

    def _compile_through(
        self, program: bytes, hook: Callable[[bytes], bytes | None], passes: str = DISABLED_PASSES
    ) -> Any:
        """Compiles a program whose module a hook replaces where XLA would fuse."""
        options = self._client.CompileOptions()
        options.env_option_overrides = [("xla_disable_hlo_passes", passes)]
        self._hook.register_hlo_module_transformation(hook, name=_HOOK, platforms="cpu")
        try:
            return self._compile(program, options)
        finally:
            self._hook.clear_hlo_module_transformation(_HOOK, platforms="cpu")

    def _compile(self, program: bytes, options: Any) -> Any:
        devices = self._jaxlib.DeviceList((self._device,))
        try:
            module = self._jaxlib.mlir.xla_computation_to_mlir_module(self._hlo.XlaComputation(program))
            return self._device.client.compile_and_load(module, devices, options)
        except self._jax.errors.JaxRuntimeError as error:
            raise HloError(f"XLA refuses the module: {str(error).splitlines()[0]}") from error

    def module_of(self, loaded: Any) -> bytes:
        """Returns the serialised module that an executable was compiled from."""
        return bytes(loaded.hlo_modules()[0].as_serialized_hlo_module_proto())

    def text_of(self, module: bytes) -> str:
        """Returns a serialised module as text."""
        return str(self._hlo.HloModule.from_serialized_hlo_module_proto(module).to_string())

    def to_bytes(self, loaded: Any) -> bytes:
        """Returns an executable as bytes for this machine and version.

        Raises:
            HloError: if it holds an operation of which XLA cannot say that.
        """
        try:
            return bytes(loaded.serialize())
        except self._jax.errors.JaxRuntimeError as error:
            raise HloError(f"XLA cannot keep the executable: {str(error).splitlines()[0]}") from error

    def from_bytes(self, data: bytes) -> Any:
        """Returns an executable of `to_bytes`."""
        devices = self._jaxlib.DeviceList((self._device,))
        return self._device.client.deserialize_executable(data, devices, None)

    # ---- running -----------------------------------------------------------------------------------------

    def inputs(self, module: HloModule, seed: int = 0) -> list[Any]:
        """Returns arrays for the parameters of a program, drawn as `input_array` says."""
        body = module.entry_computation
        rng = stream(seed, "inputs", module.name)
        arrays = []
        for position in body.parameters:
            inst = body.instructions[position]
            try:
                array = input_array(inst.shape, rng)
            except HloError as error:
                raise error.recast(HloError, where=module.name, field=inst.name) from error
            arrays.append(self._jax.device_put(array, self._device))
        return arrays

    def run(self, loaded: Any, arrays: Sequence[Any]) -> list[Any]:
        """Runs a program and returns its results, which are complete.

        Raises:
            HloError: if it fails.
        """
        try:
            results = loaded.execute_sharded(arrays).disassemble_into_single_device_arrays()
            outputs = [shards[0] for shards in results]
            for output in outputs:
                output.block_until_ready()
        except self._jax.errors.JaxRuntimeError as error:
            raise HloError(f"XLA cannot run the module: {str(error).splitlines()[0]}") from error
        return outputs

    def time(self, loaded: Any, arrays: Sequence[Any], count: int) -> list[Run]:
        """Times runs without a trace."""
        runs = []
        for _ in range(count):
            wall, cpu = time.perf_counter_ns(), time.process_time_ns()
            outputs = self.run(loaded, arrays)
            runs.append(Run(time.perf_counter_ns() - wall, time.process_time_ns() - cpu))
            del outputs
        return runs

    def trace(self, executables: Sequence[Executable], arrays: Sequence[Any], count: int) -> list[list[Run]]:
        """Runs every executable `count` times in a row and times their operations.

        Returns:
            the runs of each executable.
        """
        options = self._jax.profiler.ProfileOptions()
        options.python_tracer_level, options.host_tracer_level = 0, 2
        with tempfile.TemporaryDirectory() as folder:
            self._jax.profiler.start_trace(folder, profiler_options=options)
            try:
                timed = [self.time(executable.loaded, arrays, count) for executable in executables]
            finally:
                self._jax.profiler.stop_trace()
            [path] = Path(folder).rglob("*.xplane.pb")
            runs = self._operations(path)
        flat = [run for runs_of_one in timed for run in runs_of_one]
        if len(runs) != len(flat):
            raise DataError(f"a trace of {len(runs)} runs", expected=str(len(flat)))
        joined = [Run(run.wall_ns, run.cpu_ns, ops) for run, ops in zip(flat, runs, strict=True)]
        return [joined[start : start + count] for start in range(0, len(joined), count)]

    def _operations(self, path: Path) -> list[dict[str, tuple[float, int]]]:
        """Returns the time and number of executions of the operations of every run in a trace, in order."""
        data = self._jax.profiler.ProfileData.from_file(str(path))
        runs: dict[tuple[int, int], dict[str, tuple[float, int]]] = {}
        starts: dict[tuple[int, int], float] = {}
        for plane in data.planes:
            for line in plane.lines:
                for event in line.events:
                    stats = dict(event.stats)
                    if "hlo_op" not in stats:
                        continue
                    run = (stats.get("program_id", 0), stats["run_id"])
                    total, number = runs.setdefault(run, {}).get(stats["hlo_op"], (0.0, 0))
                    runs[run][stats["hlo_op"]] = (total + event.duration_ns, number + 1)
                    starts[run] = min(starts.get(run, event.start_ns), event.start_ns)
        return [runs[run] for run in sorted(runs, key=starts.__getitem__)]


def require_jax() -> None:
    """Raises DataError if JAX or jaxlib is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("jax", "jaxlib")):
        raise DataError("JAX is not installed", expected=install_line("jax"))


def keep_memory() -> None:
    """Makes the allocator of this process keep memory that was freed, where it is glibc's.

    By default it returns large blocks to the system, or keeps them, by what the process did before: runs of
    one program then differ by up to a half between processes, as new pages have to be zeroed.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _ALLOCATOR.items():
            mallopt(option, value)


def core_to_use(core: int | None) -> int | None:
    """Returns the core to measure on: the given one, or else the last that this process may use.

    Returns:
        number of the core; None where the system binds no processes to cores.

    Raises:
        DataError: for a core that the process may not use.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    if core is not None and core not in allowed:
        expected = "one of " + ", ".join(map(str, sorted(allowed)))
        raise DataError(f"no core {core}", field="--core", expected=expected)
    return max(allowed) if core is None else core


def input_array(shape: Shape, rng: np.random.Generator) -> AnyArray:
    """Returns values for an input: results stay finite in programs of any depth.

    Integers are uniform below 1,000 (scalars are 0: counters of steps and loops), truth values even. Floats
    are positive: uniform in [0, 2 / n) with n the product of all extents but the last, as weights of a layer
    are, in [0.5, 1.5) for vectors and scalars, as scales and variances are.

    Raises:
        HloError: for an element type without values here.
    """
    import ml_dtypes  # noqa: F401, registers bfloat16

    if shape.element_type not in _DTYPES:
        raise HloError(
            f"an input of type {shape.element_type.name}", expected="integers, floats or truth values"
        )
    dtype = np.dtype(_DTYPES[shape.element_type])
    if dtype.kind == "b":
        return rng.random(shape.dimensions) < 0.5
    if dtype.kind in "iu":
        high = min(_MAX_INTEGER, np.iinfo(dtype).max)
        values = rng.integers(0, high, size=shape.dimensions, dtype=dtype) if shape.rank else 0
        return np.asarray(values, dtype=dtype)
    uniform = rng.random(shape.dimensions, dtype=np.float32)
    scaled = (
        uniform * (2.0 / max(1, int(np.prod(shape.dimensions[:-1])))) if shape.rank > 1 else uniform + 0.5
    )
    return np.asarray(scaled).astype(dtype)


def _is_transposed_by_xla(module: hlo_pb2.HloModuleProto) -> bool:
    """Returns whether XLA puts transposes of its own into a program.

    It does around running sums along another axis than the last, and around convolutions with groups of the
    batch, such as gradients of the weights of grouped ones. Where they are not hidden in its own fusions, the
    simplification after layout assignment takes them for bitcasts (jaxlib 0.10.2): results are others then.
    """
    for inst in (inst for body in module.computations for inst in body.instructions):
        if inst.opcode == "convolution" and inst.batch_group_count > 1:
            return True
        if inst.opcode == "reduce-window":
            axes = [axis for axis, window in enumerate(inst.window.dimensions) if window.size > 1]
            if len(axes) == 1 and axes[0] < len(inst.window.dimensions) - 1:
                return True
    return False


def largest_difference(first: Sequence[Any], second: Sequence[Any]) -> float:
    """Returns the largest difference of a result from its reference, relative to the reference.

    max over results of ||a - b|| / ||b||, with Euclidean norms over the finite elements; infinite where one
    is finite and the other is not.
    """
    largest = 0.0
    for a_array, b_array in zip(first, second, strict=True):
        a, b = (np.asarray(array).astype(np.float64).ravel() for array in (a_array, b_array))
        finite = np.isfinite(b)
        if (np.isfinite(a) != finite).any():
            return float("inf")
        difference = float(np.linalg.norm(a[finite] - b[finite]))
        if difference:
            scale = float(np.linalg.norm(b[finite]))
            largest = max(largest, difference / scale if scale else float("inf"))
    return largest
