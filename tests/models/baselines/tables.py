"""Small tables of made-up kernels, and feature shards of a real program with made-up runtimes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import compile_program
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import TileSpace, tile_space
from costbench.features.feature_shards import FeatureShard, write_features
from costbench.features.graph_tensors import program_features
from costbench.hlo.reader import read_module
from costbench.models.baselines.kernel_tables import NUM_FEATURES, KernelTable
from costbench.models.baselines.spec import BaselineSpec, SampleSpec, TreesSpec
from costbench.target import load_target

TREES = TreesSpec(
    max_trees=12, patience=12, learning_rate=0.3, num_leaves=7, min_samples=4, feature_share=0.8, l2=0.0
)
SPEC = BaselineSpec(SampleSpec(100, 8), SampleSpec(100, 8), TREES, ridge=1e-4)
ARCHITECTURE = load_target("tpu_v3").architecture
MODEL = AnalyticalModel(ARCHITECTURE)


def made_up(seed: int, kernels: int = 60, configs: int = 4) -> KernelTable:
    """Kernels of two applications; runtimes follow from the last decision feature and the estimate."""
    draw = np.random.Generator(np.random.PCG64(seed))
    rows = kernels * configs
    features = draw.random((rows, NUM_FEATURES), dtype=np.float32)
    estimate = np.repeat(draw.uniform(2e4, 9e4, kernels), configs)
    static = np.repeat(draw.uniform(0.0, 1e6, (kernels, 4)), configs, axis=0)
    runtime = estimate * np.exp(2.0 * features[:, -1] - features[:, -2])
    return KernelTable(
        features, static, estimate, np.round(runtime), np.full(kernels, configs), np.arange(kernels) % 2
    )


@dataclass(frozen=True)
class Item:
    """A measured kernel."""

    kernel: Kernel
    fingerprint: str
    runs: int
    space: TileSpace
    tile_sizes: TileSizes
    runtime_ns: np.ndarray


def real_shard(
    repository: Path, path: Path, application: str, configs: int, runtime: Callable[[np.ndarray], np.ndarray]
) -> FeatureShard:
    """The kernels of a program with loops; runtimes are a function of the analytical estimates."""
    file = repository / "data" / "programs" / "rnn_char_b64_infer_f32.hlo.pb.zst"
    compiled = compile_program(read_module(file), "rnn")
    items = []
    for index, kernel in enumerate(compiled.kernels):
        space = tile_space(kernel, ARCHITECTURE)
        sizes = space.decode(space.legal_ids()[:configs])
        measured = np.maximum(1, np.round(runtime(MODEL.predict(kernel, sizes)))).astype(np.int64)
        items.append(Item(kernel, f"{index:032x}", index, space, sizes, measured))
    metadata: dict[str, object] = {"program": path.stem, "application": application}
    write_features(path, items, program_features(compiled.kernels[0].module), MODEL, metadata)
    return FeatureShard(path)
