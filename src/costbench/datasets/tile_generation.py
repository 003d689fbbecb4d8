"""Making tile shards: a program compiled, its kernels' tiles enumerated, sampled and measured.

A shard is one program on one chip. It depends on nothing but the program, the chip and the parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from costbench.artifacts import digest_bytes
from costbench.compiler.footprint import scratchpad_bytes
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import UniqueKernel, compile_program, unique_kernels
from costbench.compiler.tile_sizes import TileSizes
from costbench.compiler.tiling import TileSpace, tile_space
from costbench.datasets.generation import ShardSummary, write_compiled_program
from costbench.datasets.kernel_columns import kernel_columns, offsets_of
from costbench.datasets.record_types import TILE, TILE_GENERATOR_VERSION
from costbench.datasets.storage import Shard, write_shard
from costbench.datasets.tile_kernels import compiled_program_path, shard_path
from costbench.errors import DataError, UnsupportedKernelError
from costbench.hardware.device import Device
from costbench.hlo.reader import module_from_bytes
from costbench.params import digest
from costbench.rng import stream
from costbench.target import Architecture, Target

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Price = Callable[[Kernel, TileSizes], FloatArray]
"""A compiler's own tile model: cost of each tile size of a kernel, lower is better."""
PriceOn = Callable[[Architecture], Price]
"""That model for a chip; it travels to worker processes."""

_MAX_DEFAULT_CANDIDATES = 20_000


@dataclass(frozen=True)
class TileParams:
    """How many tiles of how many kernels are measured.

    Attributes:
        max_tiles_per_kernel: tile sizes sampled per kernel, the compiler's default among them.
        max_kernels_per_program: unique kernels kept per program, largest share of runtime first; 0 for all.
        seed: of sampling and of the device's noise.
    """

    max_tiles_per_kernel: int = 1000
    max_kernels_per_program: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_tiles_per_kernel < 2:
            raise ValueError("max_tiles_per_kernel: at least 2 are needed to compare")
        if self.max_kernels_per_program < 0:
            raise ValueError("max_kernels_per_program: at least 0")


@dataclass(frozen=True)
class TileTask:
    """One tile shard to make; a `Task` of `costbench.datasets.generation`.

    Attributes:
        name: of the program.
        application: that the program belongs to.
        program: bytes of its HLO module, plain or zstd.
        target: the chip.
        params: of the tile task.
        folder: that the data set is written to.
        price_on: the compiler's tile model for a chip; its best tile is the default decision.
    """

    name: str
    application: str
    program: bytes
    target: Target
    params: TileParams
    folder: Path
    price_on: PriceOn

    @property
    def path(self) -> Path:
        """Where the shard is written."""
        return shard_path(self.folder, self.target.name, self.name)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The one shard."""
        return (self.path,)

    @property
    def weight(self) -> int:
        """Larger programs take longer."""
        return len(self.program)

    @property
    def key(self) -> str:
        """Digest of all inputs: a shard that carries it need not be made again."""
        parts = (digest_bytes(self.program), digest(self.target), digest(self.params), TILE_GENERATOR_VERSION)
        return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:32]

    def is_done(self) -> bool:
        """Whether the shard is there, whole, and of the same inputs."""
        try:
            compiled = compiled_program_path(self.folder, self.name)
            return compiled.exists() and Shard.open(self.path).metadata.get("key") == self.key
        except DataError:
            return False

    def make(self) -> None:
        """Compiles, enumerates, samples, measures and writes the shard.

        Raises:
            HloError: if the program cannot be read.
            UnsupportedKernelError: for a kernel that cannot be lowered or priced; none is skipped silently.
            DataError: if a file cannot be written.
        """
        compiled = compile_program(module_from_bytes(self.program, where=self.name), self.name)
        write_compiled_program(compiled_program_path(self.folder, self.name), compiled.module)
        device = Device(self.target, self.params.seed)
        price = self.price_on(self.target.architecture)
        samples = [
            sample
            for unique in unique_kernels(compiled)
            if (sample := _sample_kernel(unique, device, price, self)) is not None
        ]
        samples = _most_important(samples, self.params.max_kernels_per_program)
        write_shard(self.path, _columns(samples), _metadata(self, samples), TILE)

    def summaries(self) -> tuple[ShardSummary, ...]:
        """What the finished shard holds."""
        shard = Shard.open(self.path)
        return (
            ShardSummary(
                task="tile",
                name=self.name,
                chip=self.target.name,
                num_kernels=len(shard["kernel_runs"]),
                num_samples=len(shard["config_tile"]),
                num_failed=int(str(shard.metadata["num_failed"])),
                device_seconds=float(str(shard.metadata["device_seconds"])),
            ),
        )


@dataclass(frozen=True, eq=False)
class _KernelSample:
    unique: UniqueKernel
    space_size: int
    default_ns: int
    ids: IntArray
    runtime_ns: IntArray
    num_failed: int
    seconds: float


def _sample_kernel(
    unique: UniqueKernel, device: Device, price: Price, task: TileTask
) -> _KernelSample | None:
    """Measured tiles of a kernel, the default among them; None where there is nothing to choose."""
    kernel, params = unique.kernel, task.params
    space = tile_space(kernel, device.target.architecture)
    if space.size < 2:
        return None
    rng = stream(params.seed, "tiles", unique.fingerprint)
    ids, default = _ids_with_default(space, kernel, price, rng, params.max_tiles_per_kernel)
    if len(ids) == 0:
        _check_smallest(space, task)
    if len(ids) < 2:
        return None
    measured = device.measure_nest(space.nest, space.extents(ids))
    kept = ~measured.failed
    if kept.sum() < 2:
        return None
    ids, runtime = ids[kept], measured.runtime_ns[kept]
    # Where the default fails, the compiler falls back to its next choice among what runs.
    at_default = ids == default
    default_ns = (
        int(runtime[at_default][0]) if at_default.any() else _best_priced(space, kernel, price, ids, runtime)
    )
    return _KernelSample(
        unique, space.size, default_ns, ids, runtime, int(measured.failed.sum()), measured.seconds
    )


def _check_smallest(space: TileSpace, task: TileTask) -> None:
    """Raises UnsupportedKernelError for a kernel of which no tile fits the scratchpad."""
    kernel, available = space.nest.kernel, task.target.architecture.scratchpad_bytes
    # Footprints grow with every extent, so the first tile is the smallest.
    needed = int(scratchpad_bytes(space.nest, space.extents(np.zeros(1, dtype=np.int64)))[0])
    if needed > available:
        raise UnsupportedKernelError(
            f"even its smallest tile needs {needed} bytes of scratchpad",
            where=task.name,
            field=f"kernel {kernel.instruction(kernel.outputs[-1]).name} of {kernel.body.name}",
            expected=f"at most the {available} bytes of {task.target.name}",
        )


def _ids_with_default(
    space: TileSpace, kernel: Kernel, price: Price, rng: np.random.Generator, count: int
) -> tuple[IntArray, int]:
    candidates = space.sample(rng, max(count, _MAX_DEFAULT_CANDIDATES))
    if len(candidates) == 0:
        return candidates, -1
    default = int(candidates[np.argmin(price(kernel, space.decode(candidates)))])
    if len(candidates) <= count:
        return candidates, default
    chosen = rng.choice(candidates, count - 1, replace=False)
    return np.union1d(chosen, np.array([default])), default


def _best_priced(space: TileSpace, kernel: Kernel, price: Price, ids: IntArray, runtime: IntArray) -> int:
    return int(runtime[np.argmin(price(kernel, space.decode(ids)))])


def _most_important(samples: list[_KernelSample], limit: int) -> list[_KernelSample]:
    if not limit or len(samples) <= limit:
        return samples
    weight = [-s.default_ns * s.unique.runs_per_program for s in samples]
    kept = sorted(np.argsort(weight, kind="stable")[:limit].tolist())
    return [samples[i] for i in kept]


def _columns(samples: Sequence[_KernelSample]) -> Mapping[str, npt.NDArray[np.generic]]:
    kernels = [s.unique.kernel for s in samples]
    return {
        **kernel_columns(kernels, [s.unique.fingerprint for s in samples]),
        "kernel_runs": np.array([s.unique.runs_per_program for s in samples], dtype=np.int64),
        "kernel_space_size": np.array([s.space_size for s in samples], dtype=np.int64),
        "kernel_default_ns": np.array([s.default_ns for s in samples], dtype=np.int64),
        "config_offsets": offsets_of(len(s.ids) for s in samples),
        "config_tile": _joined([s.ids for s in samples]),
        "config_runtime_ns": _joined([s.runtime_ns for s in samples]),
    }


def _joined(arrays: Sequence[IntArray]) -> IntArray:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _metadata(task: TileTask, samples: Sequence[_KernelSample]) -> dict[str, object]:
    return {
        "key": task.key,
        "task": "tile",
        "program": task.name,
        "application": task.application,
        "program_sha256": digest_bytes(task.program),
        "chip": task.target.name,
        "generator_version": TILE_GENERATOR_VERSION,
        "params": asdict(task.params),
        "num_failed": sum(s.num_failed for s in samples),
        "device_seconds": round(sum(s.seconds for s in samples), 9),
    }
