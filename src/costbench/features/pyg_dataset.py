"""Measured kernels as a PyTorch Geometric data set, for networks that are not costbench's own.

A data set reads kernels one at a time from memory-mapped feature shards, so its memory does not grow with its
size, and it goes through `torch_geometric.loader.DataLoader` with any number of workers. Features are
unscaled; `ScaleFeatures` and `SampleDecisions` are PyG transforms that most trainings want. Node features,
decision features and edge directions are those of costbench's own networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Data, Dataset
from torch_geometric.transforms import BaseTransform

from costbench.arrays import I64
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.datasets.splits import read_split
from costbench.errors import DataError, ParamsError, choose
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.features.normalizer import MinMaxFit, Transform
from costbench.features.packed_kernels import FeatureExtremes
from costbench.hlo.opcode import Opcode

SetName = Literal["train", "validation", "test"]
NUM_OPCODES = int(max(Opcode)) + 1
"""Rows of an embedding of opcodes."""

_SETS = ("train", "validation", "test")
_PER_DECISION = ("config_features", "runtime_ns", "analytical_ns", "kernel_of_decision")


class KernelData(Data):  # type: ignore[misc]  # PyG ships no types
    """One kernel with its measured decisions, or a batch of them.

    Batching lays kernels end to end. The number of decisions differs between kernels, so they are
    concatenated as nodes are; `kernel_of_decision` tells which kernel each belongs to, as `batch` does for
    nodes.

    For K kernels with N nodes, M edges and C decisions together (K = 1 unless batched):

    Attributes:
        x: float32 [N, 140], node features (`features/node_features.csv`), unscaled.
        opcode: int64 [N], codes of `Opcode`, less than `NUM_OPCODES`.
        edge_index: int64 [2, M], producer above consumer.
        config_features: float32 [C, 28], features of the decisions: the 24 of tpugraphs2023's tile sizes
            (`features/tile_features.csv`), then 4 of the loops they make (`features/loop_features.csv`).
        runtime_ns: int64 [C], measured, in nanoseconds.
        analytical_ns: float64 [C], the compiler's own estimate, in nanoseconds.
        kernel_of_decision: int64 [C], indices of kernels in the batch.
        static_features: float32 [K, 4], FLOPs, bytes read, bytes written and special-function evaluations.
        runs: int64 [K], executions in one run of the program.
        program: name of the program; a list of K in a batch, as the next three.
        application: application family of the program.
        fingerprint: 32 hexadecimal digits, equal for equal kernels of different programs.
        kernel: int, index of the kernel among those of its program; int64 [K] in a batch.
    """

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns what batching adds to an attribute for each kernel before this one."""
        return 1 if key == "kernel_of_decision" else super().__inc__(key, value, *args, **kwargs)


class KernelDataset(Dataset):  # type: ignore[misc]  # PyG ships no types
    """The kernels of one set of a split, as `KernelData`, in the order of the split's programs.

    Args:
        root: output folder of a profile, such as `out/laptop`, whose stages `features` and `split` are done.
        task: `tile` or `fusion`.
        chip: name of a chip, such as `tpu_v3`; None for the first one that the task has features of.
        split: name of a split: `random`, `manual`, or `fold1` and so on.
        part: the set of it to read: `train`, `validation` or `test`.
        transform: applied to every kernel as it is read, as in any PyG data set.
        features: dotted path of further features of nodes, one of `features.nodes`, which follow the others
            in `x`; empty for none.

    Raises:
        ChoiceError: for an unknown set.
        DataError: naming what is missing, if there is no such split, task or chip, or a damaged shard.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        task: str = "tile",
        chip: str | None = None,
        split: str = "random",
        part: SetName = "train",
        transform: Any = None,
        features: str = "",
    ) -> None:
        choose(dict.fromkeys(_SETS, True), part, "set")
        folder = Path(root)
        programs = read_split(folder / "split" / f"{split}.json").sets()[part]
        chips = sorted(path.name for path in (folder / "features" / task).glob("*") if path.is_dir())
        chip = chip or next(iter(chips), "any chip")
        paths = [feature_path(folder / "features", task, chip, program) for program in programs]
        # A task need not have samples of every program.
        self._shards = [FeatureShard(path, features=features) for path in paths if path.is_file()]
        if not self._shards:
            raise DataError(
                f"no features of the task {task} on {chip} for the programs of set {part}",
                where=folder / "features",
                expected="the stage `features` of this task and chip",
            )
        self._starts = np.cumsum([0, *(len(shard) for shard in self._shards)])
        super().__init__(str(folder), transform=transform)

    def len(self) -> int:
        """Returns the number of kernels of the set."""
        return int(self._starts[-1])

    def get(self, idx: int) -> KernelData:
        """Reads one kernel with all of its decisions.

        Raises:
            DataError: for an index that no kernel has.
        """
        if not 0 <= idx < self.len():
            raise DataError(f"kernel {idx}", where=self.root, expected=f"0 to {self.len() - 1}")
        number = int(np.searchsorted(self._starts, idx, side="right")) - 1
        shard, row = self._shards[number], idx - int(self._starts[number])
        graph, runtime_ns = shard.graph(row), shard.runtime_ns(row)
        return KernelData(
            x=torch.from_numpy(graph.node_features),
            opcode=torch.from_numpy(graph.opcodes),
            edge_index=torch.from_numpy(graph.edges),
            config_features=torch.from_numpy(shard.config_features(row)),
            # Copied: torch warns of arrays that must not be written to, such as a mapped file's.
            runtime_ns=torch.from_numpy(runtime_ns.astype(np.int64, copy=True)),
            analytical_ns=torch.from_numpy(shard.analytical_ns(row).astype(np.float64, copy=True)),
            kernel_of_decision=torch.zeros(len(runtime_ns), dtype=torch.int64),
            static_features=torch.from_numpy(graph.static_features)[None],
            runs=torch.tensor([int(shard.runs()[row])]),
            program=shard.program,
            application=shard.application,
            fingerprint=shard.fingerprint(row),
            kernel=row,
        )

    def num_decisions(self) -> I64:
        """Returns the numbers of measured decisions of its kernels, int64 [len].

        `dataset[dataset.num_decisions() > 1]` is the data set of those that rank anything.
        """
        counts = np.concatenate([shard.num_configs() for shard in self._shards])
        return counts[np.asarray(self.indices(), np.int64)]

    def extremes(self) -> Iterator[FeatureExtremes]:
        """Returns the smallest and largest value of every feature, program by program."""
        for shard in self._shards:
            yield shard.columns.extremes()


class ScaleFeatures(BaseTransform):  # type: ignore[misc]  # PyG ships no types
    """Scales features to [0, 1] by the extremes of the training set and drops those constant there.

    Replaces `x`, `config_features` and `static_features` by fewer columns; which ones are kept depends on the
    training set alone, so the same instance goes to all three sets. See `features.normalizer`.

    Args:
        train: the training set, read once, program by program. A subset of it scales as the whole.
        transform: applied to features before scaling; see `normalizer.Transform`.

    Attributes:
        node: scaler of `x`; `node.num_outputs` is the number of columns that are kept.
        config: scaler of `config_features`.
        static: scaler of `static_features`.
    """

    def __init__(self, train: KernelDataset, transform: Transform = "log1p") -> None:
        fits = [MinMaxFit(transform) for _ in range(3)]
        for extremes in train.extremes():
            for fit, values in zip(fits, (extremes.node, extremes.decision, extremes.static), strict=True):
                fit.update(values)
        self.node, self.config, self.static = (fit.finish() for fit in fits)

    def forward(self, data: KernelData) -> KernelData:
        """Returns the kernel with scaled features."""
        data.x = torch.from_numpy(self.node(data.x.numpy()))
        data.config_features = torch.from_numpy(self.config(data.config_features.numpy()))
        data.static_features = torch.from_numpy(self.static(data.static_features.numpy()))
        return data


class SampleDecisions(BaseTransform):  # type: ignore[misc]  # PyG ships no types
    """Draws some of a kernel's decisions without replacement, again each time the kernel is read.

    Kernels have up to thousands of decisions, of which a training step needs a few. Draws come from torch's
    global generator, which `torch.manual_seed` sets and PyG's loader seeds in its workers.

    Args:
        count: decisions to keep at most.

    Raises:
        ParamsError: if it is less than 1.
    """

    def __init__(self, count: int) -> None:
        _require_count(count, "decisions")
        self.count = count

    def forward(self, data: KernelData) -> KernelData:
        """Returns the kernel with `count` of its decisions, or with all where it has no more."""
        indices = torch.randperm(len(data.runtime_ns))[: self.count]
        for name in _PER_DECISION:
            data[name] = data[name][indices]
        return data


def _require_count(count: int, what: str) -> None:
    if count < 1:
        raise ParamsError(f"is {count}", field="count", expected=f"1 or more {what}")


class LayoutDataset(Dataset):  # type: ignore[misc]  # PyG ships no types
    """Layout graphs, each a `torch_geometric.data.Data` with `count` of its configs, drawn when it is read.

    Draws come from torch's global generator, which `torch.manual_seed` sets and PyG's loader seeds in its
    workers, to which graphs travel as their paths. An item has:

    - `x`: float32 [n, 140], TpuGraphs' node features;
    - `opcode`: int64 [n], TpuGraphs' codes, below `pyg_dataset.NUM_OPCODES` for known ones;
    - `edge_index`: int64 [2, m], producer above consumer;
    - `configurable_index`: int64 [nc], the configurable nodes, ascending;
    - `config_features`: float32 [s, nc, 18], layouts of those nodes under each of the s configs;
    - `runtime_ns`: int64 [s], or [0] where runtimes are withheld;
    - `rows`: int64 [s], indices of the configs in the file;
    - `name`: id of the graph.

    Args:
        paths: layout graphs (`datasets.layout_graphs`).
        count: configs of an item, or all of a graph that has fewer.
        rows: for each graph, an array [r] of the configs to draw from; all of them if left out. A row of a
            2-D array belongs to one graph.
        transform: applied to every item as it is read, as in any PyG data set.

    Raises:
        DataError: if there is no graph, or `rows` is not one array of its configs for each.
        ParamsError: if `count` is less than 1.
    """

    def __init__(
        self,
        paths: Sequence[Path | str],
        *,
        count: int = 16,
        rows: Sequence[I64] | I64 | None = None,
        transform: Any = None,
    ) -> None:
        _require_count(count, "configs")
        if not paths or (rows is not None and len(rows) != len(paths)):
            problem = f"{len(paths)} graphs, {len(paths if rows is None else rows)} arrays of rows"
            raise DataError(
                problem, field="paths", expected="one graph or more, and an array of rows for each"
            )
        self._files = _GraphFiles(*paths)
        self._rows = None if rows is None else [np.asarray(part) for part in rows]
        for number, (part, graph) in enumerate(zip(self._rows or (), self._files.graphs, strict=False)):
            if part.ndim != 1 or (part.size and part.dtype.kind not in "iu"):
                problem = f"{part.ndim} dimensions of {part.dtype}"
                raise DataError(problem, field=f"rows[{number}]", expected="one dimension of whole numbers")
            if part.size and not 0 <= part.min() <= part.max() < graph.num_configs:
                problem, last = f"{part.min()} to {part.max()}", graph.num_configs - 1
                raise DataError(
                    problem, where=paths[number], field=f"rows[{number}]", expected=f"0 to {last}"
                )
        self._count = count
        super().__init__(None, transform=transform)

    def len(self) -> int:
        """Graphs of the data set."""
        return len(self._files.graphs)

    def get(self, idx: int) -> Data:
        """Reads one graph with configs drawn from its rows."""
        graph = self._files.graphs[idx]
        rows = np.arange(graph.num_configs) if self._rows is None else self._rows[idx]
        sample = torch.randperm(len(rows))[: self._count].numpy()
        return layout_data(graph, np.sort(rows[sample]).astype(np.int64))


class _GraphFiles:
    """Opened layout graphs, which travel to another process as their paths."""

    def __init__(self, *paths: Path | str) -> None:
        self._paths = paths
        self.graphs = [open_layout_graph(path) for path in paths]

    def __reduce__(self) -> tuple[object, ...]:
        return (_GraphFiles, self._paths)


def layout_data(graph: LayoutGraph, rows: I64) -> Data:
    """Returns a graph with the configs `rows`, with the attributes of `LayoutDataset`."""
    runtime_ns = graph.runtime_ns[rows] if graph.is_labelled else graph.runtime_ns
    return Data(
        # Copied: torch warns of arrays that must not be written to, such as a mapped file's.
        x=torch.from_numpy(graph.node_features.copy()),
        opcode=torch.from_numpy(graph.opcodes.astype(np.int64)),
        edge_index=torch.from_numpy(graph.edges[:, ::-1].T.astype(np.int64)),
        configurable_index=torch.from_numpy(graph.node_config_ids.astype(np.int64)),
        config_features=torch.from_numpy(graph.config_features(rows)),
        runtime_ns=torch.from_numpy(runtime_ns.astype(np.int64, copy=True)),
        rows=torch.from_numpy(np.asarray(rows, np.int64)),
        name=graph.name,
    )
