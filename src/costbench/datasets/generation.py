"""Making the tile data set: programs compiled, tiles enumerated, sampled and measured, one shard at a time.

A shard is one program on one chip. It depends on nothing but the program, the chip and the parameters, so
shards are made side by side, in any order, and a shard that is already there for the same inputs is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import joblib
import numpy as np
import numpy.typing as npt
import zstandard
from joblib.externals.loky.process_executor import TerminatedWorkerError

from costbench.artifacts import digest_bytes, write_bytes
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import CompiledProgram, UniqueKernel, compile_program, unique_kernels
from costbench.compiler.tile_sizes import TileSizes
from costbench.compiler.tiling import TileSpace, tile_space
from costbench.datasets.record_types import TILE_GENERATOR_VERSION
from costbench.datasets.storage import Shard, write_shard
from costbench.errors import DataError
from costbench.hardware.device import Device
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.writer import module_to_bytes
from costbench.params import digest
from costbench.rng import stream
from costbench.target import Architecture, Target

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Price = Callable[[Kernel, TileSizes], FloatArray]
"""A compiler's own tile model: cost of each tile size of a kernel, lower is better."""
PriceOn = Callable[[Architecture], Price]

_MAX_DEFAULT_CANDIDATES = 20_000
_ATTEMPTS = 3
_ZSTD_LEVEL = 10


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
class ShardTask:
    """One shard to make.

    Attributes:
        name: of the program.
        application: that the program belongs to.
        program: bytes of its HLO module, plain or zstd.
        target: the chip.
        params: of the tile task.
        folder: that the data set is written to.
    """

    name: str
    application: str
    program: bytes
    target: Target
    params: TileParams
    folder: Path

    @property
    def path(self) -> Path:
        """Where the shard is written."""
        return self.folder / "tile" / self.target.name / f"{self.name}.shard"

    @property
    def compiled_path(self) -> Path:
        """Where the compiled program, to which the shard's kernels refer, is written."""
        return self.folder / "programs" / f"{self.name}.hlo.pb.zst"

    @property
    def key(self) -> str:
        """Digest of all inputs: a shard that carries it need not be made again."""
        parts = (digest_bytes(self.program), digest(self.target), digest(self.params), TILE_GENERATOR_VERSION)
        return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:32]

    def is_done(self) -> bool:
        """Whether the shard is there, whole, and of the same inputs."""
        try:
            return self.compiled_path.exists() and Shard.open(self.path).metadata.get("key") == self.key
        except DataError:
            return False


@dataclass(frozen=True)
class ShardSummary:
    """What a shard holds.

    Attributes:
        name: of the program.
        chip: it ran on.
        num_kernels: unique kernels with at least two tile sizes.
        num_samples: (kernel, tile) pairs that ran.
        num_failed: compiles that failed.
        device_seconds: accelerator time charged.
    """

    name: str
    chip: str
    num_kernels: int
    num_samples: int
    num_failed: int
    device_seconds: float


def generate_tiles(
    tasks: Sequence[ShardTask],
    price_on: PriceOn,
    *,
    jobs: int,
    on_done: Callable[[ShardSummary], None] | None = None,
) -> tuple[ShardSummary, ...]:
    """Makes all shards that are not there yet.

    Work goes through joblib, so `joblib.parallel_config` chooses the backend. A killed worker costs its
    shard, which is made again.

    Args:
        tasks: the shards wanted.
        price_on: the compiler's tile model for a chip; its best tile is the default decision.
        jobs: processes of one thread each.
        on_done: called for every finished shard, in order of completion.

    Returns:
        summaries in the order of `tasks`.

    Raises:
        DataError: if workers keep dying.
        CostbenchError: whatever a shard raises.
    """
    found: dict[Path, ShardSummary] = {}
    for task in tasks:
        if task.is_done():
            found[task.path] = _summary(task)
            if on_done is not None:
                on_done(found[task.path])
    for _ in range(_ATTEMPTS):
        missing = [task for task in tasks if task.path not in found]
        if not missing:
            break
        try:
            for path, summary in _run(missing, price_on, jobs):
                found[path] = summary
                if on_done is not None:
                    on_done(summary)
        except TerminatedWorkerError:
            continue
    left = [task.path for task in tasks if task.path not in found]
    if left:
        raise DataError("workers died repeatedly while making it", where=left[0], expected="enough memory")
    return tuple(found[task.path] for task in tasks)


def _run(tasks: Sequence[ShardTask], price_on: PriceOn, jobs: int) -> Iterator[tuple[Path, ShardSummary]]:
    if jobs == 1 or len(tasks) == 1:
        for task in tasks:
            yield task.path, make_tile_shard(task, price_on)
        return
    # Long shards first, so that none is left over at the end.
    longest_first = sorted(tasks, key=lambda task: (-len(task.program), str(task.path)))
    parallel = joblib.Parallel(
        n_jobs=jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1
    )
    yield from parallel(joblib.delayed(_make)(task, price_on) for task in longest_first)


def _make(task: ShardTask, price_on: PriceOn) -> tuple[Path, ShardSummary]:
    return task.path, make_tile_shard(task, price_on)


def make_tile_shard(task: ShardTask, price_on: PriceOn) -> ShardSummary:
    """Compiles, enumerates, samples, measures and writes one shard.

    Raises:
        HloError: if the program cannot be read.
        UnsupportedKernelError: for a kernel that cannot be lowered or priced; none is skipped silently.
    """
    module = module_from_bytes(task.program, where=task.name)
    compiled = compile_program(module, task.name)
    _write_compiled(task, compiled)
    device = Device(task.target, task.params.seed)
    price = price_on(task.target.architecture)
    samples = [
        sample
        for unique in unique_kernels(compiled)
        if (sample := _sample_kernel(unique, device, price, task)) is not None
    ]
    samples = _most_important(samples, task.params.max_kernels_per_program)
    metadata = _metadata(task, samples)
    write_shard(task.path, _columns(samples), metadata)
    return _summary(task)


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
    unique: UniqueKernel, device: Device, price: Price, task: ShardTask
) -> _KernelSample | None:
    """Measured tiles of a kernel, the default among them; None where there is nothing to choose."""
    kernel = unique.kernel
    space = tile_space(kernel, device.target.architecture)
    if space.size < 2:
        return None
    rng = stream(task.params.seed, "tiles", unique.fingerprint)
    ids, default = _ids_with_default(space, kernel, price, rng, task.params.max_tiles_per_kernel)
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
    columns: dict[str, npt.NDArray[np.generic]] = {
        "kernel_computation": np.array([k.computation for k in kernels], dtype=np.int32),
        "kernel_fingerprint": np.array(
            [list(bytes.fromhex(s.unique.fingerprint)) for s in samples], dtype=np.uint8
        ).reshape(len(samples), 16),
        "kernel_runs": np.array([s.unique.runs_per_program for s in samples], dtype=np.int64),
        "kernel_space_size": np.array([s.space_size for s in samples], dtype=np.int64),
        "kernel_default_ns": np.array([s.default_ns for s in samples], dtype=np.int64),
        "config_offsets": _offsets(len(s.ids) for s in samples),
        "config_tile": _joined([s.ids for s in samples], np.dtype(np.int64)),
        "config_runtime_ns": _joined([s.runtime_ns for s in samples], np.dtype(np.int64)),
    }
    for part in ("inputs", "instructions", "outputs"):
        lists = [np.array(getattr(k, part), dtype=np.int32) for k in kernels]
        columns[f"kernel_{part}_offsets"] = _offsets(len(positions) for positions in lists)
        columns[f"kernel_{part}"] = _joined(lists, np.dtype(np.int32))
    return columns


def _offsets(lengths: Iterable[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(list(lengths), dtype=np.int64)]).astype(np.int64)


def _joined(
    arrays: Sequence[npt.NDArray[np.generic]], dtype: np.dtype[np.generic]
) -> npt.NDArray[np.generic]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)


def _metadata(task: ShardTask, samples: Sequence[_KernelSample]) -> dict[str, object]:
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


def _summary(task: ShardTask) -> ShardSummary:
    shard = Shard.open(task.path)
    metadata = shard.metadata
    return ShardSummary(
        name=task.name,
        chip=task.target.name,
        num_kernels=len(shard["kernel_runs"]),
        num_samples=len(shard["config_tile"]),
        num_failed=int(str(metadata["num_failed"])),
        device_seconds=float(str(metadata["device_seconds"])),
    )


def _write_compiled(task: ShardTask, compiled: CompiledProgram) -> None:
    data = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(module_to_bytes(compiled.module))
    if not task.compiled_path.exists() or task.compiled_path.read_bytes() != data:
        write_bytes(task.compiled_path, data)
