"""Trains and evaluates models on a data set that is given on the command line, outside the pipeline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from costbench.artifacts import digest_bytes, read_json, write_json
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.datasets.tpugraphs.folder import TILE_COLLECTION, TpuGraphsFolder, convert_once
from costbench.datasets.tpugraphs.npz import convert_layout_npz
from costbench.errors import DataError
from costbench.experiments.given_tiles import score_tiles, train_tiles
from costbench.metrics.tpugraphs import LAYOUT_TOP_K, graph_metrics
from costbench.models.execution_spec import Execution
from costbench.models.layout.checkpoint import load_layout_model
from costbench.params import load_yaml, parse
from costbench.training.layout.configs import held_out
from costbench.training.layout.fit import fit_layout
from costbench.training.layout.spec import HoldOutSpec, LayoutTrainSpec

TRAINING_FILE = "training.json"
_FOLDER = "tpugraphs:"


@dataclass(frozen=True)
class GivenData:
    """A data set as the command line names it.

    Attributes:
        name: `tpugraphs:DIR`, or a file: a layout `.npz` of TpuGraphs or a layout graph.
        collection: of a folder; None if it has one layout collection only.
        cache: folder of converted graphs.
    """

    name: str
    collection: str | None
    cache: Path

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder with splits of its own."""
        return self.name.startswith(_FOLDER)

    def graphs(self, split: str) -> list[Path]:
        """Returns the layout graphs of a split of a folder, or the one that is given; converted if need be.

        Raises:
            DataError: naming the file, if it is missing or malformed; if a folder has no such split, or
                several collections and none is named.
        """
        if not self.is_folder:
            return [_converted(Path(self.name), self.cache)]
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


def _converted(path: Path, cache: Path) -> Path:
    if path.suffix != ".npz":
        return path
    if not path.is_file():
        raise DataError("no such file", where=path, expected="a layout .npz or layout graph")
    place = digest_bytes(str(path.resolve()).encode())[:16]
    made = cache / "files" / place / f"{path.stem}.arrow"
    convert_once(
        made, [path], lambda: convert_layout_npz(path, made, name=path.stem, collection="layout:given")
    )
    return made


@dataclass(frozen=True)
class GivenFit:
    """A model trained on a given data set; see `training.lightning_run.FitResult`.

    Attributes:
        checkpoint: folder of the model.
        monitor: name of the validation metric.
        best_metric: its best value.
        best_epoch: the epoch with that value, from 0.
        steps: training steps.
        seconds: wall time.
    """

    checkpoint: Path
    monitor: str
    best_metric: float
    best_epoch: int
    steps: int
    seconds: float


def train_on(data: GivenData, settings: Path | None, out: Path, seed: int, threads: int | None) -> GivenFit:
    """Trains a network: on a folder's `train` graphs, or on most configs of one layout graph.

    Args:
        data: what to train on; a folder's split `valid` chooses the epoch.
        settings: YAML file of a `LayoutTrainSpec`, of a `TrainSpec` for tiles; the defaults if None.
        out: folder of the model, which also records what it was trained on (`training.json`).
        seed: of the training.
        threads: None for as many as there are cores.

    Raises:
        DataError, ParamsError: naming file and field, for data or settings that cannot be used.
    """
    tiles = data.tiles()
    if tiles is not None:
        used, made = train_tiles(tiles, settings, out, seed, threads or _cores())
        return GivenFit(
            made.checkpoint, used.monitor, made.best_metric, made.best_epoch, made.steps, made.seconds
        )
    spec = LayoutTrainSpec()
    if settings is not None:
        spec = parse(LayoutTrainSpec, load_yaml(settings), where=settings)
    spec = replace(spec, seed=seed, execution=replace(spec.execution, threads=threads or _cores()))
    train = data.graphs("train")
    validation = data.graphs("valid") if data.is_folder else []
    fit = fit_layout(spec, train, validation, out)
    division = None if validation else {**asdict(spec.hold_out), "seed": seed}
    names = sorted(open_layout_graph(path).name for path in train)
    write_json(out / TRAINING_FILE, {"graphs": names, "held_out": division, "monitor": spec.monitor})
    return GivenFit(fit.checkpoint, spec.monitor, fit.best_metric, fit.best_epoch, fit.steps, fit.seconds)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class ScoredGraph:
    """How well a model ranks one graph.

    Attributes:
        graph: its name, for tiles that of the program.
        num_configs: configs that count.
        which: `held-out`, or `all`.
        metrics: `opa`, `kendall_tau` and `top_K`, fractions; None where not defined.
    """

    graph: str
    num_configs: int
    which: str
    metrics: Mapping[str, float | None]

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON."""
        return {
            "graph": self.graph,
            "num_configs": self.num_configs,
            "configs": self.which,
            **self.metrics,
        }

    def line(self) -> str:
        """Returns the metrics as text."""
        parts = [f"{name} {'-' if v is None else f'{v:.4f}'}" for name, v in self.metrics.items()]
        return ", ".join(parts)


def evaluate_on(data: GivenData, split: str, model: Path, threads: int | None) -> list[ScoredGraph]:
    """Scores a model, layouts graph by graph and tiles program by program.

    Of a layout graph that the model was trained on, only held-out configs count.

    Raises:
        DataError: naming the file, for data or a model that cannot be used; if a graph has no runtimes.
    """
    tiles = data.tiles()
    if tiles is not None:
        scored = score_tiles(tiles, split, model, threads or _cores())
        return [ScoredGraph(name, count, "all", metrics) for name, (count, metrics) in scored.items()]
    loaded = load_layout_model(model, Execution(threads=threads or _cores()))
    trained = _training(model)
    found = []
    for path in data.graphs(split):
        graph = open_layout_graph(path)
        if not graph.is_labelled:
            raise DataError("has no runtimes", where=path, expected="a labelled graph; see export")
        rows, which = _counting(graph, *trained)
        scores = loaded.predict(graph, rows)
        metrics = graph_metrics(graph.runtime_ns[rows], scores, LAYOUT_TOP_K)
        found.append(ScoredGraph(graph.name, len(rows), which, metrics))
    return found


def _counting(
    graph: LayoutGraph, trained: Sequence[str], division: Mapping[str, float] | None
) -> tuple[np.ndarray, str]:
    if graph.name not in trained or division is None:
        return np.arange(graph.num_configs), "all"
    spec = HoldOutSpec(division["validation"], division["unseen"])
    return held_out(graph, spec, int(division["seed"])).unseen, "held-out"


def _training(model: Path) -> tuple[list[str], dict[str, float] | None]:
    """Returns the graphs that a model was trained on, and how their configs were divided, if they were."""
    path = model / TRAINING_FILE
    if not path.is_file():
        return [], None
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("graphs"), list):
        raise DataError("does not say what was trained on", where=path, expected="graphs, held_out")
    division = content.get("held_out")
    return [str(name) for name in content["graphs"]], division if isinstance(division, dict) else None
