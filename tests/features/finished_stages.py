"""The output folder of a profile whose stages `features` and `split` are done, of three small programs."""

from __future__ import annotations

from pathlib import Path

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.datasets.measured_kernels import CompiledPrograms, MeasuredKernels, shard_path
from costbench.datasets.splits import Split, write_split
from costbench.datasets.storage import Shard
from costbench.datasets.tile_generation import TileParams, TileTask
from costbench.features.feature_shards import feature_path, write_features
from costbench.features.graph_tensors import program_features
from costbench.target import load_target

SPLIT = Split(
    "random",
    train=("rnn_char_b64_infer_f32", "wavernn_3_b1_infer_bf16"),
    # No samples exist of the second.
    validation=("mlp_mnist_b128_train_f32", "resnet50_b64_infer_bf16"),
    test=("translate_1_b32_infer_bf16",),
)
_TARGET = load_target("tpu_v3")
_DECISIONS = 12


def write_stages(root: Path, repository: Path) -> None:
    """Measures at most 12 tile sizes of each kernel of the first three programs of `SPLIT` on a TPU v3."""
    write_split(root / "split" / "random.json", SPLIT)
    for name in (*SPLIT.train, SPLIT.validation[0]):
        program = (repository / "data" / "programs" / f"{name}.hlo.pb.zst").read_bytes()
        application, data = name.split("_")[0], root / "generate"
        params = TileParams(_DECISIONS, 5)
        TileTask(name, application, program, (_TARGET,), params, data).make()
        shard = Shard.open(shard_path(data, _TARGET.name, name))
        samples = MeasuredKernels((shard,), CompiledPrograms(data), _TARGET.architecture)
        kernels = [samples.kernel(index) for index in range(len(samples))]
        write_features(
            feature_path(root / "features", "tile", _TARGET.name, name),
            kernels,
            program_features(kernels[0].kernel.module),
            AnalyticalModel(_TARGET.architecture),
            {"task": "tile", "program": name, "application": application, "chip": _TARGET.name},
        )
