"""One kernel from HLO to the number that it adds to a table; `docs/tour.md` explains each step.

python examples/follow_a_kernel.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.program import PreparedProgram
from costbench.compiler.tile_space import tile_space
from costbench.features.decision_features import decision_features
from costbench.features.graph_tensors import ProgramFeatureCache, kernel_graph
from costbench.hardware.device import Device
from costbench.hardware.simulator import simulate
from costbench.hlo.reader import read_module
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.selection import tile_size_ape
from costbench.rng import stream
from costbench.target import load_target

PROGRAM = Path(__file__).resolve().parents[1] / "data" / "programs" / "convdraw_b16_infer_f32.hlo.pb.zst"


def main() -> None:
    """Prints what each stage makes of the kernel."""
    target = load_target("tpu_v2")

    module = read_module(PROGRAM)
    program = PreparedProgram(module, "convdraw_b16_infer_f32")
    kernels = program.unique_kernels
    print(f"program: {module.num_instructions} instructions, {len(kernels)} different kernels")

    # The kernel with most instructions that has a matrix product or convolution.
    unique = max(kernels, key=lambda one: one.kernel.num_nodes)
    kernel = unique.kernel
    print(f"kernel {unique.fingerprint[:8]}: {kernel.num_nodes} nodes, runs {unique.runs_per_program} times")

    space = tile_space(kernel, target.architecture)
    chosen = space.sample(stream(0, "tour"), 200)
    tiles = space.decode(chosen)
    print(f"tile sizes: {space.size} points, {len(chosen)} of the legal ones drawn")

    measured = Device(target, seed=0).measure(kernel, tiles)
    print(f"{measured.failed.sum()} of them failed to compile, near the limit of the scratchpad")
    tiles = space.decode(chosen[~measured.failed])
    runtime_ns = measured.runtime_ns[~measured.failed]
    breakdown = simulate(kernel, tiles, target)
    print(f"simulated {breakdown.runtime_ns.min():.0f} to {breakdown.runtime_ns.max():.0f} ns")
    print(f"measured  {runtime_ns.min()} to {runtime_ns.max()} ns (with noise, minimum of three runs)")

    graph = kernel_graph(kernel, ProgramFeatureCache())
    decisions = decision_features(space.nest, tiles)
    print(
        f"features: nodes {graph.node_features.shape}, edges {graph.edges.shape}, "
        f"decisions {decisions.shape}, kernel {graph.static_features.shape}"
    )

    cost = AnalyticalModel(target.architecture).predict(kernel, tiles)
    picked, best = int(np.argmin(cost)), int(np.argmin(runtime_ns))
    print(f"the analytical model picks {runtime_ns[picked]} ns, the best is {runtime_ns[best]} ns")
    print(f"Kendall's tau {kendall_tau(cost, runtime_ns):.3f}")
    ape = tile_size_ape([runtime_ns[picked]], [runtime_ns[best]], [unique.runs_per_program])
    print(f"Tile-Size APE of a program of this kernel alone: {ape:.2f}%")


if __name__ == "__main__":
    main()
