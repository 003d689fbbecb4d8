"""How many (kernel, tile) samples a second the simulated machine prices, against pricing tile by tile.

Over the kernels of some programs: tile spaces listed, tiles drawn, priced, and measured, timed one by one and
together. The baseline prices one tile at a time with the same code, on as many tiles as it manages in a few
seconds; the ratio of the two rates says what pricing the tiles of a kernel in one call brings. Also timed:
the compiler's own choice of a tile and its measurement, which is all that a fused kernel needs.

    python -m benchmarks.simulation_throughput
    python -m benchmarks.simulation_throughput --programs alexnet_b128_train_f32 --tiles 20000 --json out.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from costbench.arrays import I64
from costbench.artifacts import write_json
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import compile_program, unique_kernels
from costbench.compiler.tile_space import TileSpace, tile_space
from costbench.hardware.device import Device
from costbench.hardware.simulator import simulate, simulate_nest
from costbench.hlo.reader import module_from_bytes
from costbench.rng import stream
from costbench.target import Target, load_target

PROGRAMS = (
    "alexnet_b128_train_f32",
    "dlrm_b2048_train_f32",
    "resnet_v1_18_cifar_b128_train_f32",
    "small_bert_L2_H128_b64_train_bf16",
    "unet2d_b8_train_f32",
)
FOLDER = Path(__file__).resolve().parents[1] / "data" / "programs"


@dataclass(frozen=True)
class Throughput:
    """Rates in (kernel, tile) samples per second of processor time.

    Attributes:
        num_kernels: unique kernels of the programs.
        num_samples: (kernel, tile) pairs priced.
        lower_ms_per_kernel: from a kernel to its tile space.
        draw_ms_per_kernel: legal tiles listed or drawn.
        measure_ms_per_kernel: priced, with noise, failures and the minimum of three.
        choose_ms_per_kernel: for freshly lowered kernels: the compiler's tile chosen, and measured once.
        simulated_per_second: pricing alone.
        end_to_end_per_second: lowering, drawing and measuring.
        tile_by_tile_per_second: the baseline.
        ratio: of pricing alone to the baseline.
    """

    num_kernels: int
    num_samples: int
    lower_ms_per_kernel: float
    draw_ms_per_kernel: float
    measure_ms_per_kernel: float
    choose_ms_per_kernel: float
    simulated_per_second: float
    end_to_end_per_second: float
    tile_by_tile_per_second: float
    ratio: float


def kernels_of(names: Sequence[str]) -> list[Kernel]:
    """Returns the unique kernels of some programs of the corpus."""
    kernels: dict[str, Kernel] = {}
    for name in names:
        data = (FOLDER / f"{name}.hlo.pb.zst").read_bytes()
        for unique in unique_kernels(compile_program(module_from_bytes(data, where=name), name)):
            kernels.setdefault(unique.fingerprint, unique.kernel)
    for kernel in kernels.values():
        _ = kernel.fingerprint, kernel.body.users  # known to whoever generates data
    return list(kernels.values())


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Returns the least processor time of a few runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def throughput(
    kernels: Sequence[Kernel], target: Target, tiles: int, repeats: int, baseline_s: float = 3.0
) -> Throughput:
    """Times every step over all kernels."""
    spaces = [tile_space(kernel, target.architecture) for kernel in kernels]

    def draw() -> list[I64]:
        return [s.sample(stream(0, "tiles", i), tiles) for i, s in enumerate(spaces)]

    tile_ids = draw()
    work = [(s.nest, s.extents(ids)) for s, ids in zip(spaces, tile_ids, strict=True)]
    device, model = Device(target), AnalyticalModel(target.architecture)
    fingerprints = [kernel.fingerprint for kernel in kernels]

    def choose(fresh: Sequence[TileSpace]) -> None:
        chosen = [model.choose(space) for space in fresh]
        device.measure_kernels([space.nest for space in fresh], chosen, fingerprints)

    choose(spaces)
    for nest, extents in work:
        device.measure_nest(nest, extents[:1])  # nobody waits for the compiler in what is timed
    num_samples = sum(len(ids) for ids in tile_ids)
    lower_s = seconds(lambda: [tile_space(kernel, target.architecture) for kernel in kernels], repeats)
    draw_s = seconds(draw, repeats)
    simulate_s = seconds(lambda: [simulate_nest(nest, e, target) for nest, e in work], repeats)
    measure_s = seconds(lambda: [device.measure_nest(nest, e) for nest, e in work], repeats)
    lowered = [[tile_space(kernel, target.architecture) for kernel in kernels] for _ in range(repeats)]
    choose_s = seconds(lambda: choose(lowered.pop()), repeats)
    baseline = tile_by_tile(spaces, tile_ids, target, baseline_s)
    per_kernel = 1e3 / len(kernels)
    return Throughput(
        num_kernels=len(kernels),
        num_samples=num_samples,
        lower_ms_per_kernel=lower_s * per_kernel,
        draw_ms_per_kernel=draw_s * per_kernel,
        measure_ms_per_kernel=measure_s * per_kernel,
        choose_ms_per_kernel=choose_s * per_kernel,
        simulated_per_second=num_samples / simulate_s,
        end_to_end_per_second=num_samples / (lower_s + draw_s + measure_s),
        tile_by_tile_per_second=baseline,
        ratio=num_samples / simulate_s / baseline,
    )


def tile_by_tile(
    spaces: Sequence[TileSpace], tile_ids: Sequence[I64], target: Target, limit_s: float
) -> float:
    """Samples per second when every tile is priced by a call of its own, kernels taking turns."""
    rng = stream(0, "baseline")
    start, count = time.process_time(), 0
    while time.process_time() - start < limit_s:
        index = int(rng.integers(len(spaces)))
        tiles = spaces[index].decode(rng.choice(tile_ids[index], 1))
        simulate(spaces[index].nest.kernel, tiles, target)
        count += 1
    return count / (time.process_time() - start)


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, times, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", nargs="+", default=PROGRAMS, help="names of programs of the corpus")
    parser.add_argument("--tiles", type=int, default=1_000_000, help="tiles drawn per kernel")
    parser.add_argument("--chip", default="tpu_v3", help="chip, by name or file")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the fastest counts")
    parser.add_argument("--json", type=Path, help="where results are written")
    options = parser.parse_args(arguments)

    rates = throughput(
        kernels_of(options.programs), load_target(options.chip), options.tiles, options.repeats
    )
    print(f"{rates.num_kernels} kernels, {rates.num_samples} tiles, milliseconds per kernel:")
    print(
        f"  lowering {rates.lower_ms_per_kernel:.3f}, drawing tiles {rates.draw_ms_per_kernel:.3f}, ", end=""
    )
    print(f"measuring {rates.measure_ms_per_kernel:.3f}")
    print(f"  choosing and measuring one tile {rates.choose_ms_per_kernel:.3f}")
    print(f"tiles priced a second:                   {rates.simulated_per_second:>12,.0f}")
    print(f"lowered, drawn and measured a second:    {rates.end_to_end_per_second:>12,.0f}")
    print(f"baseline, tile by tile, a second:        {rates.tile_by_tile_per_second:>12,.0f}")
    print(f"pricing a kernel's tiles at once is {rates.ratio:,.0f} times as fast as one by one")
    if options.json is not None:
        write_json(options.json, asdict(rates))


if __name__ == "__main__":
    main(sys.argv[1:])
