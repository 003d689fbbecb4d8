"""Trains and evaluates one network on an imported data set that a command names, outside the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from costbench.arrays import I64
from costbench.artifacts import digest_bytes, read_json, write_json
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.datasets.storage import Shard
from costbench.datasets.tpugraphs.folder import SPLITS, TILE_COLLECTION, TpuGraphsFolder, convert_once
from costbench.datasets.tpugraphs.npz import convert_layout_npz, holds_tiles
from costbench.errors import DataError, ParamsError
from costbench.experiments.tpugraphs.samples import check_disjoint
from costbench.features.feature_shards import FeatureShard
from costbench.metrics.measures import mean_without_nan
from costbench.metrics.tpugraphs import (
    LAYOUT_TOP_K,
    TILE_TOP_K,
    graph_metrics,
    ordered_pairs,
    pooled_accuracy,
)
from costbench.models.checkpoint import load_checkpoint
from costbench.models.layout.model import MODEL_FILE, load_layout_model
from costbench.models.learned import LearnedCostModel
from costbench.models.spec import Execution
from costbench.params import load_yaml, parse
from costbench.training.fit import fit
from costbench.training.kernel_source import KernelSource
from costbench.training.layout.fit import fit_layout
from costbench.training.layout.source import hold_out_configs
from costbench.training.lightning_run import MetricLogger
from costbench.training.spec import AnySpec, FitResult, HoldOutSpec, LayoutTrainSpec, TrainSpec

TRAINING_FILE = "training.json"
_FOLDER = "tpugraphs:"
_FILE = "a layout .npz or layout graph"
_TILES = f"a network of tile sizes learns from a folder, {_FOLDER}DIR"


@dataclass(frozen=True)
class ImportedData:
    """A data set as the command line names it.

    Attributes:
        name: `tpugraphs:DIR`, or a file: a layout `.npz` of TpuGraphs or a layout graph.
        collection: name of a collection of a folder; None if it has one layout collection only.
        cache: folder of converted graphs.

    Raises:
        DataError: if the name is empty, or a folder without `tpugraphs:`.
    """

    name: str
    collection: str | None
    cache: Path

    def __post_init__(self) -> None:
        if not self.name.removeprefix(_FOLDER):
            raise DataError("names nothing", field="--data", expected=f"{_FOLDER}DIR, or {_FILE}")
        if not self.is_folder and self.collection is not None:
            raise DataError("has no effect with a file", field="--collection", expected="to be left out")
        if not self.is_folder and Path(self.name).is_dir():
            raise DataError("is a folder", where=self.name, expected=f"{_FOLDER}{self.name}, or a file")

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder with splits of its own."""
        return self.name.startswith(_FOLDER)

    def graphs(self, split: str) -> list[Path]:
        """Returns the layout graphs of a split of a folder, or the one that is named; converted if need be.

        Raises:
            DataError: naming the file, if it is missing or malformed; if a folder has no such split, or
                several collections and none is named.
        """
        if not self.is_folder:
            return [_convert(Path(self.name), self.cache)]
        folder = self.folder()
        graphs = folder.graphs(self.chosen(folder), split)
        if not graphs:
            problem = f"holds no graph of split {split}"
            raise DataError(problem, where=folder.root, expected="train, valid or test")
        return [folder.layout_path(path) for path in graphs]

    def folder(self) -> TpuGraphsFolder:
        """Returns the folder; its converted graphs have a place of their own in the cache."""
        root = Path(self.name.removeprefix(_FOLDER))
        return TpuGraphsFolder(root, self.cache / digest_bytes(str(root.resolve()).encode())[:16])

    def chosen(self, folder: TpuGraphsFolder) -> str:
        """Returns the collection that is named, or the only one.

        Raises:
            DataError: if there are several and none is named.
        """
        collections = folder.collections()
        if self.collection is None and len(collections) > 1:
            expected = f"--collection, one of {', '.join(collections)}"
            problem = f"holds {len(collections)} collections"
            raise DataError(problem, where=folder.root, field="collection", expected=expected)
        return self.collection or collections[0]

    def tiles(self) -> TpuGraphsFolder | None:
        """Returns the folder if its tile collection is meant, else None."""
        if not self.is_folder:
            return None
        folder = self.folder()
        return folder if self.chosen(folder) == TILE_COLLECTION else None


def _convert(path: Path, cache: Path) -> Path:
    if path.suffix.lower() != ".npz":
        return path
    if not path.is_file():
        raise DataError("no such file", where=path, expected=_FILE)
    if holds_tiles(path):
        raise DataError("is a kernel with tile sizes", where=path, expected=f"{_FILE}; {_TILES}")
    digest = digest_bytes(str(path.resolve()).encode())[:16]
    graph = cache / "files" / digest / f"{path.stem}.arrow"
    convert_once(
        graph, [path], lambda: convert_layout_npz(path, graph, name=path.stem, collection="layout:given")
    )
    return graph


def train_on(
    data: ImportedData,
    settings: Path | None,
    out: Path,
    seed: int,
    threads: int = 1,
    logger: MetricLogger | None = None,
) -> tuple[str, FitResult]:
    """Trains a network: on a folder's `train` samples, or on most configs of one layout graph.

    Args:
        data: data set to train on; a folder's split `valid` chooses the epoch.
        settings: YAML file of a `LayoutTrainSpec`, of a `TrainSpec` for tiles; the defaults if None.
        out: folder of the model; that of a layout network also records what it was trained on
            (`training.json`).
        seed: seed of the training.
        threads: number of threads; several wait for each other where anything else runs.
        logger: receives the metrics of every epoch.

    Returns:
        Name of the validation metric, and the result.

    Raises:
        DataError, ParamsError: naming file and field, for data or settings that cannot be used, and for
            settings with another `seed` or `execution.threads` than is given; naming the program, if one of
            a folder is in two splits.
    """
    if data.is_folder:
        folder = data.folder()
        programs = {split: folder.programs(data.chosen(folder), split) for split in SPLITS}
        check_disjoint(programs, folder.root)
    tiles = data.tiles()
    if tiles is not None:
        tile_spec = _settings(TrainSpec(), settings, seed, threads)
        train, validation = (KernelSource(_shards(tiles, split)) for split in ("train", "valid"))
        return tile_spec.monitor, fit(tile_spec, train, validation, out, logger=logger)
    spec = _settings(LayoutTrainSpec(), settings, seed, threads)
    graphs = data.graphs("train")
    held_out_graphs = data.graphs("valid") if data.is_folder else []
    division = None if held_out_graphs else {**asdict(spec.hold_out), "seed": seed}
    trained: dict[str, str] = {}
    configurable = 0
    for graph in (_open_labelled(data, path) for path in graphs):
        trained[graph.name] = _runtimes_digest(graph)
        configurable += len(graph.node_config_ids)
    if not configurable:
        problem = "no graph has a configurable node"
        raise DataError(problem, where=data.name, field="node_config_ids", expected="one or more")
    facts = {"graphs": trained, "held_out": division, "monitor": spec.monitor}
    path = out / TRAINING_FILE
    if not path.is_file() or read_json(path) != facts:
        # A model of another division, which a training that is stopped would leave beside this one.
        (out / MODEL_FILE).unlink(missing_ok=True)
        write_json(path, facts)
    return spec.monitor, fit_layout(spec, graphs, held_out_graphs, out, logger=logger)


def _open_labelled(data: ImportedData, path: Path) -> LayoutGraph:
    """Opens a graph of the data. Raises: DataError, as the user named the data, if it has no runtimes."""
    graph = open_layout_graph(path)
    if not graph.is_labelled:
        problem = f"graph {graph.name} has no runtimes"
        raise DataError(problem, where=data.name, field="config_runtime", expected="runtimes of its configs")
    return graph


def _runtimes_digest(graph: LayoutGraph) -> str:
    """Returns a digest of a graph's runtimes, by which it is known under another name."""
    return digest_bytes(np.ascontiguousarray(graph.runtime_ns).tobytes())[:16]


def _settings(spec: AnySpec, settings: Path | None, seed: int, threads: int) -> AnySpec:
    if settings is not None:
        default, spec = spec, parse(type(spec), load_yaml(settings), where=settings)
        for field, value, unset, option, given in (
            ("seed", spec.seed, default.seed, "--seed", seed),
            ("execution.threads", spec.execution.threads, default.execution.threads, "--threads", threads),
        ):
            if value not in (unset, given):
                problem = f"is {value}, but {option} {given} counts"
                raise ParamsError(problem, where=settings, field=field, expected=f"{option} {value}")
    return replace(spec, seed=seed, execution=replace(spec.execution, threads=threads))


def _shards(folder: TpuGraphsFolder, split: str) -> list[Path]:
    shards = list(folder.tile_shards(split))
    if not shards:
        raise DataError(f"holds no kernel of split {split}", where=folder.root, expected=TILE_COLLECTION)
    return shards


@dataclass(frozen=True)
class ScoredGraph:
    """How well a model ranks one graph.

    Attributes:
        graph: name of the graph, for tiles that of the program.
        num_configs: number of configs that count.
        which: `held-out`, or `all`.
        metrics: `opa`, `kendall_tau` and `top_K`, fractions; None where not defined.
    """

    graph: str
    num_configs: int
    which: str
    metrics: Mapping[str, float | None]

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON."""
        numbers = {"graph": self.graph, "num_configs": self.num_configs, "configs": self.which}
        return {**numbers, **self.metrics}

    def line(self) -> str:
        """Returns the metrics as text."""
        parts = [f"{name} {'-' if v is None else f'{v:.4f}'}" for name, v in self.metrics.items()]
        return ", ".join(parts)


def evaluate_on(data: ImportedData, split: str, model: Path, threads: int = 1) -> list[ScoredGraph]:
    """Scores a model, layouts graph by graph and tiles program by program.

    Of a layout graph that the model was trained on, only held-out configs count.

    Raises:
        DataError: naming the file, for data or a model that cannot be used; if a graph has no runtimes.
    """
    tiles = data.tiles()
    if tiles is not None:
        tile_model = load_checkpoint(model, Execution(threads=threads))
        return [_score_tiles(tile_model, path) for path in _shards(tiles, split)]
    loaded = load_layout_model(model, Execution(threads=threads))
    trained, division = _training(model)
    scored = []
    for path in data.graphs(split):
        graph = _open_labelled(data, path)
        rows: I64 = np.arange(graph.num_configs)
        which = "all"
        if division is not None and _runtimes_digest(graph) in trained:
            spec = HoldOutSpec(division["validation"], division["unseen"])
            rows, which = hold_out_configs(graph, spec, int(division["seed"])).unseen, "held-out"
        metrics = graph_metrics(graph.runtime_ns[rows], loaded.predict(graph, rows), LAYOUT_TOP_K)
        scored.append(ScoredGraph(graph.name, len(rows), which, metrics))
    return scored


def _score_tiles(model: LearnedCostModel, path: Path) -> ScoredGraph:
    """Returns the metrics of a tile network on a program, over its kernels that have runtimes.

    `opa` is pooled over the program's kernels; `kendall_tau` and `top_1`, `top_5`, `top_10` are means over
    those of two or more configs.
    """
    shard = FeatureShard(path)
    labelled = Shard.open(path).metadata["labelled"]
    kernels = [index for index in range(len(shard)) if labelled[index]]
    if not kernels:
        raise DataError(
            f"{shard.program} has no runtimes",
            where=path,
            field="config_runtime",
            expected="labelled kernels",
        )
    pairs, of_kernels = [], []
    for kernel in kernels:
        runtime = shard.runtime_ns(kernel).astype(np.float64)
        scores = model.predict_graph(shard.graph(kernel), shard.config_features(kernel))
        pairs.append(ordered_pairs(runtime, scores))
        of_kernels.append(graph_metrics(runtime, scores, TILE_TOP_K))
    values = {"opa": pooled_accuracy(pairs)}
    for name in ("kendall_tau", *(f"top_{k}" for k in TILE_TOP_K)):
        defined = [np.nan if (value := metrics[name]) is None else value for metrics in of_kernels]
        values[name] = mean_without_nan(defined)
    metrics = {name: None if np.isnan(value) else value for name, value in values.items()}
    return ScoredGraph(shard.program, int(shard.num_configs()[kernels].sum()), "all", metrics)


def _training(model: Path) -> tuple[set[str], dict[str, float] | None]:
    """Returns digests of the graphs that a model was trained on, and how their configs were divided."""
    path = model / TRAINING_FILE
    if not path.is_file():
        return set(), None
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("graphs"), dict):
        raise DataError("does not say what was trained on", where=path, expected="graphs, held_out")
    division = content.get("held_out")
    return set(map(str, content["graphs"].values())), division if isinstance(division, dict) else None
