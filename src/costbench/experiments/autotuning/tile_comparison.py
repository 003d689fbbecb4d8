"""Tile sizes in the compiler and in the autotuner, on one program (lpm2021, sections 7.1 and 7.2, figure 4).

Exhaustive search measures every legal tile size of every kernel, which the simulated machine does in seconds.
Models score candidates: every legal tile size as well, or a sample where a network would take too long.
Candidates are measured once and scored by all models once; what each way of choosing would have measured,
found and been charged is computed from these tables. The default is the tile size that the compiler's own
model chooses; speed-ups are over the program with default tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.program import PreparedProgram, UniqueKernel
from costbench.compiler.tile_space import MAX_LISTED, TileSpace, nest_tile_space
from costbench.errors import DataError
from costbench.experiments.evaluation.program import ByModel
from costbench.hardware.device import Device
from costbench.models.cost_model import CostModel
from costbench.rng import stream

EXHAUSTIVE, SAMPLE, ALTERNATING, RANDOM = "exhaustive", "sample", "alternating", "random"
COMPILER, ALL = "compiler", "all"
_MEASURED_AT_ONCE = 65_536


@dataclass(frozen=True)
class AutotuneTileParams:
    """Settings of the comparison of tile autotuners.

    Attributes:
        top_k: tile sizes measured per kernel.
        max_tiles_per_kernel: candidates that models rank, legal tile sizes drawn at random; 0 for all, of a
            kernel with more than `max_exhaustive_tiles` for as many.
        max_exhaustive_tiles: tile sizes that exhaustive search lists; of a kernel with more, legal or not, it
            measures the candidates only.
        alternating: the two models whose best candidates the arm of that name takes in turn.
        random_seeds: seeds of the random choices that are averaged over.
        compile_s: seconds charged per tile size besides its runs.
        seed: seed of drawing and of the machine's noise.
    """

    top_k: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    max_tiles_per_kernel: int = 0
    max_exhaustive_tiles: int = 1_000_000
    alternating: tuple[str, str] = ("learned", "analytical")
    random_seeds: tuple[int, ...] = (0, 1, 2)
    compile_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.top_k or min(self.top_k) < 1:
            raise ValueError("top_k: one or more numbers of at least 1")
        if not self.random_seeds:
            raise ValueError("random_seeds: at least one")
        if self.max_tiles_per_kernel < 0 or self.compile_s < 0.0:
            raise ValueError("max_tiles_per_kernel, compile_s: at least 0")
        if not 1 <= self.max_exhaustive_tiles <= MAX_LISTED:
            raise ValueError(f"max_exhaustive_tiles: from 1 to {MAX_LISTED}")


@dataclass(frozen=True)
class MeasuredSpace:
    """What exhaustive search of a kernel measured.

    Attributes:
        num_tiles: tile sizes measured.
        best_ns: runtime of the fastest.
        seconds: charged for all of them.
        complete: whether they are all legal tile sizes, and not a sample of a space that is too large.
    """

    num_tiles: int
    best_ns: float
    seconds: float
    complete: bool = True


@dataclass(frozen=True, eq=False)
class ScoredKernel:
    """A kernel with `n` candidates, tile sizes that are measured and scored by all models.

    Attributes:
        runs: executions of the kernel in one run of the program.
        runtime_ns: float64 [n], infinite where the compile failed.
        seconds: float64 [n], charged for measuring each.
        costs: costs by model, those of each of its networks, float64 [n].
        default: index of the compiler's own choice, or of its next best estimate where that does not compile.
        space: what exhaustive search measured, the candidates among it.
    """

    runs: int
    runtime_ns: F64
    seconds: F64
    costs: Mapping[str, Sequence[F64]]
    default: int
    space: MeasuredSpace

    @property
    def default_ns(self) -> float:
        """Runtime of the compiler's choice in nanoseconds."""
        return float(self.runtime_ns[self.default])


def score_kernel(
    program: PreparedProgram,
    unique: UniqueKernel,
    device: Device,
    tiles: AnalyticalModel,
    models: Mapping[str, Sequence[CostModel]],
    params: AutotuneTileParams,
) -> ScoredKernel:
    """Returns a kernel of a program with its tile sizes measured and scored by all networks of all models.

    Raises:
        UnsupportedKernelError: for a kernel of which no tile fits the scratchpad.
        DataError: for a kernel of which none of the tile sizes considered compiles.
    """
    space = nest_tile_space(program.lowering.loop_nest(unique.kernel), device.target.architecture)
    rng = stream(params.seed, "autotuning", "tiles", unique.fingerprint)
    default = int(space.number(tiles.choose(space)))
    max_tiles = params.max_tiles_per_kernel or min(space.size, params.max_exhaustive_tiles)
    ids = np.union1d(space.sample(rng, max_tiles), [default]).astype(np.int64)
    sizes = space.decode(ids)
    measured = device.measure_nest(space.nest, space.extents(ids))
    runtime_ns = np.where(measured.failed, np.inf, measured.runtime_ns.astype(np.float64))
    index = int(np.searchsorted(ids, default))
    costs = {
        name: [model.predict(unique.kernel, sizes) for model in networks] for name, networks in models.items()
    }
    compiler: object = tiles
    for name, networks in models.items():
        for model, of_model in zip(networks, costs[name], strict=True):
            if model is compiler:
                # The compiler's own search is not exhaustive: its result ranks first whatever its estimate.
                of_model[index] = np.nextafter(of_model.min(), -np.inf)
    if not np.isfinite(runtime_ns[index]):
        index = next_best(tiles.predict_nest(space.nest, sizes), runtime_ns, unique.fingerprint)
    return ScoredKernel(
        runs=unique.runs_per_program,
        runtime_ns=runtime_ns,
        seconds=measured.run_seconds + params.compile_s,
        costs=costs,
        default=index,
        space=measure_space(space, device, ids, params),
    )


def measure_space(
    space: TileSpace, device: Device, candidates: I64, params: AutotuneTileParams
) -> MeasuredSpace:
    """Measures all legal tile sizes of a kernel and returns the lowest runtime and what was charged.

    Where the space is larger than `params.max_exhaustive_tiles`, `candidates` [n], by number, are measured
    instead.
    """
    complete = space.size <= params.max_exhaustive_tiles
    ids = np.union1d(space.legal_ids(), candidates) if complete else candidates
    best_ns, seconds = np.inf, 0.0
    for start in range(0, len(ids), _MEASURED_AT_ONCE):
        measured = device.measure_nest(space.nest, space.extents(ids[start : start + _MEASURED_AT_ONCE]))
        runtime_ns = np.where(measured.failed, np.inf, measured.runtime_ns.astype(np.float64))
        best_ns = min(best_ns, float(runtime_ns.min()))
        seconds += float(measured.run_seconds.sum())
    return MeasuredSpace(len(ids), best_ns, seconds + len(ids) * params.compile_s, complete)


def next_best(estimates: F64, runtime_ns: F64, kernel: str) -> int:
    """Returns the index of the lowest estimate among the tile sizes that compile."""
    compiles = np.isfinite(runtime_ns)
    if not compiles.any():
        raise DataError(f"none of {len(runtime_ns)} tile sizes compiles", where=f"kernel {kernel}")
    return int(np.argmin(np.where(compiles, estimates, np.inf)))


def tile_metrics(kernels: Sequence[ScoredKernel], params: AutotuneTileParams) -> ByModel:
    """Returns `speedup` over the default, `slowdown` over exhaustive, `num_measured`, `hardware_seconds`.

    They are those of every network's first choice, exhaustive search, all candidates, then every arm at every
    k. Each network of a model has results of its own, by its number; those of random choices are means.
    """
    models = list(kernels[0].costs) if kernels else []
    arms = _arms(kernels, models, params)
    candidates = [np.arange(len(kernel.runtime_ns)) for kernel in kernels]
    best = _choose_exhaustively(kernels)
    default_ns = sum(kernel.runs * kernel.default_ns for kernel in kernels)

    def means(*choices: _Choice) -> dict[str, float]:
        runtime_ns = float(np.mean([choice.runtime_ns for choice in choices]))
        return {
            "speedup": default_ns / runtime_ns,
            "slowdown": runtime_ns / best.runtime_ns - 1.0,
            "num_measured": float(np.mean([choice.num_measured for choice in choices])),
            "hardware_seconds": float(np.mean([choice.seconds for choice in choices])),
        }

    metrics = {
        (name, COMPILER, number): means(_choose_first(kernels, orders))
        for name in models
        for number, orders in enumerate(arms[name])
    }
    metrics[EXHAUSTIVE, ALL, 0] = means(best)
    metrics[SAMPLE, ALL, 0] = means(_choose_fastest(kernels, candidates, None))
    for arm, orders in arms.items():
        repeats = [orders] if arm == RANDOM else [[order] for order in orders]
        metrics |= {
            (arm, f"top{k}", number): means(*(_choose_fastest(kernels, order, k) for order in repeat))
            for number, repeat in enumerate(repeats)
            for k in params.top_k
        }
    return metrics


Orders = list[I64]
"""For every kernel, its tile sizes in the order in which they are measured."""


@dataclass(frozen=True)
class _Choice:
    """A program with chosen tile sizes: its runtime, and what was measured to choose them."""

    runtime_ns: float
    num_measured: int
    seconds: float


def _arms(
    kernels: Sequence[ScoredKernel], models: Sequence[str], params: AutotuneTileParams
) -> dict[str, list[Orders]]:
    arms: dict[str, list[Orders]] = {
        name: [
            [np.argsort(kernel.costs[name][number], kind="stable") for kernel in kernels]
            for number in range(len(kernels[0].costs[name]))
        ]
        for name in models
    }
    if set(params.alternating) <= set(models):
        # Of a model with fewer networks than the other, such as the analytical one, they come in turn.
        both = [arms[name] for name in params.alternating]
        arms[ALTERNATING] = [
            [alternating(*pair) for pair in zip(*(orders[i % len(orders)] for orders in both), strict=True)]
            for i in range(max(map(len, both)))
        ]
    arms[RANDOM] = [
        [
            stream(seed, "autotuning", "random tiles", number).permutation(len(kernel.runtime_ns))
            for number, kernel in enumerate(kernels)
        ]
        for seed in params.random_seeds
    ]
    return arms


def alternating(first: I64, second: I64) -> I64:
    """Interleaves two orders of the same `n` items and drops repeats: 2n entries become n."""
    interleaved = np.stack([first, second], axis=1).ravel()
    _, first_positions = np.unique(interleaved, return_index=True)
    result: I64 = interleaved[np.sort(first_positions)]
    return result


def _choose_exhaustively(kernels: Sequence[ScoredKernel]) -> _Choice:
    """Returns the fastest tile size of every kernel; one with a single tile size is not measured."""
    spaces = [kernel.space for kernel in kernels if kernel.space.num_tiles > 1]
    return _Choice(
        runtime_ns=sum(kernel.runs * kernel.space.best_ns for kernel in kernels),
        num_measured=sum(space.num_tiles for space in spaces),
        seconds=sum(space.seconds for space in spaces),
    )


def _choose_fastest(kernels: Sequence[ScoredKernel], orders: Orders, top_k: int | None) -> _Choice:
    """Takes the fastest of the first k tile sizes of each kernel, or the default where none of them compiles.

    A kernel with one tile size is not measured.
    """
    runtime_ns, count, seconds = 0.0, 0, 0.0
    for kernel, order in zip(kernels, orders, strict=True):
        chosen = order[:top_k]
        fastest = float(kernel.runtime_ns[chosen].min())
        runtime_ns += kernel.runs * (fastest if np.isfinite(fastest) else kernel.default_ns)
        if len(order) > 1:
            count += len(chosen)
            seconds += float(kernel.seconds[chosen].sum())
    return _Choice(runtime_ns, count, seconds)


def _choose_first(kernels: Sequence[ScoredKernel], orders: Orders) -> _Choice:
    """Returns the first tile size of each order that compiles: a compiler that measures nothing takes it."""
    runtime_ns = 0.0
    for kernel, order in zip(kernels, orders, strict=True):
        timed = kernel.runtime_ns[order]
        runtime_ns += kernel.runs * float(timed[np.argmax(np.isfinite(timed))])
    return _Choice(runtime_ns, 0, 0.0)
