"""Scores predictions for `.npz` files of TpuGraphs: one file, or the leaderboard's table of a whole split.

Predictions are numbers that order the configurations of a file: lower is faster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from costbench.arrays import F64, I64, AnyFloat
from costbench.artifacts import read_bytes, write_text
from costbench.datasets.tpugraphs.archive import DAMAGE
from costbench.datasets.tpugraphs.folder import TILE_COLLECTION, TpuGraphsFolder
from costbench.datasets.tpugraphs.npz import Labels, read_labels
from costbench.errors import DataError, one_line
from costbench.metrics.tpugraphs import (
    LAYOUT_TOP_K,
    TILE_TOP_K,
    competition_layout_score,
    competition_score,
    competition_tile_score,
    graph_metrics,
)

HEADER = "ID,TopConfigs"
_TILE_CONFIGS = 10
"""Configurations of a kernel in a table, as in the data set's own baseline; the first five count."""
_MAX_PREDICTION_BYTES = 1 << 31
_CONFIG = re.compile(r"[0-9]{1,18}")


def score_file(path: Path, predictions: Path) -> dict[str, float | None]:
    """Returns the metrics of one file: `opa`, `kendall_tau`, `top_1` and so on; None where not defined.

    Slowdowns are fractions. Nothing is defined where runtimes are withheld.

    Args:
        path: a tile or layout `.npz` file.
        predictions: `.npy` file, one number per configuration, lower is faster.

    Raises:
        DataError: naming the file, if one is malformed or they do not fit each other.
    """
    labels = read_labels(path)
    scores = read_predictions(predictions, labels.num_configs)
    top_k = LAYOUT_TOP_K if labels.normalizers is None else TILE_TOP_K
    if labels.runtime is None:
        return dict.fromkeys(("opa", "kendall_tau", *(f"top_{k}" for k in top_k)))
    return graph_metrics(labels.runtime, scores, top_k, labels.normalizers)


def read_predictions(path: Path, num_configs: int) -> F64:
    """Returns one prediction per configuration, float64 [c].

    Raises:
        DataError: naming the file, if it is missing, no `.npy` file of finite numbers, or of another length.
    """
    if not path.is_file():
        raise DataError("no such file", where=path, expected="a .npy file of predictions")
    if path.stat().st_size > _MAX_PREDICTION_BYTES:
        raise DataError(f"{path.stat().st_size} bytes", where=path, expected=f"{num_configs} numbers")
    try:
        with path.open("rb") as handle:
            array = np.lib.format.read_array(handle, allow_pickle=False)
    except DAMAGE as error:
        raise DataError(f"cannot be read: {one_line(error)}", where=path, expected="a .npy file") from error
    if array.dtype.kind not in "fiu":
        raise DataError(f"type {array.dtype}", where=path, expected="numbers")
    if array.shape != (num_configs,):
        raise DataError(
            f"shape {array.shape}", where=path, expected=f"({num_configs},), one per configuration"
        )
    scores = array.astype(np.float64)
    if not np.isfinite(scores).all():
        index = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise DataError(f"value {scores[index]} at {index}", where=path, expected="finite numbers")
    return scores


def top_configs(scores: AnyFloat, collection: str) -> I64:
    """Returns what a line of the table lists: all configurations of a layout, ten of a tile kernel.

    Args:
        scores: [c], lower is faster; equal ones in the order of the file.
        collection: such as `tile:xla`. Its lists are padded with configuration 0, as in TpuGraphs' baseline.
    """
    order = np.argsort(scores, kind="stable").astype(np.int64)
    if collection != TILE_COLLECTION:
        return order
    padding = np.zeros(max(0, _TILE_CONFIGS - len(order)), np.int64)
    return np.concatenate([order[:_TILE_CONFIGS], padding])


def write_submission(path: Path, rankings: Iterable[tuple[str, Sequence[int] | I64]]) -> None:
    """Writes the leaderboard's table: `ID,TopConfigs`, a line per graph.

    Args:
        path: path of the CSV file.
        rankings: id (`tile:xla:<graph>`, `layout:xla:random:<graph>`) and configurations, best first.

    Raises:
        DataError: if an id occurs twice, or the file cannot be written.
    """
    lines, known = [HEADER], set()
    for name, ranking in rankings:
        if name in known:
            raise DataError("occurs twice", where=path, field=name, expected="one line per graph")
        known.add(name)
        lines.append(f"{name},{';'.join(map(str, ranking))}")
    write_text(path, "\n".join([*lines, ""]))


def submission_of(folder: TpuGraphsFolder, predictions: Path, split: str) -> list[tuple[str, I64]]:
    """Returns the lines of the table for all graphs of a split, in the order of collections and names.

    Args:
        folder: the data set.
        predictions: folder with `<collection>/<graph>.npy`, colons in the collection replaced by hyphens.
        split: `test` for the leaderboard.

    Raises:
        DataError: naming the file, if predictions of a graph are missing or do not fit it.
    """
    lines = []
    for collection in folder.collections():
        for path in folder.graphs(collection, split):
            labels = read_labels(path)
            scores = read_predictions(
                predictions / collection.replace(":", "-") / f"{path.stem}.npy", labels.num_configs
            )
            lines.append((f"{collection}:{path.stem}", top_configs(scores, collection)))
    if not lines:
        raise DataError("no graphs", where=folder.root, expected=f"files of the split {split}")
    return lines


def read_submission(path: Path) -> dict[str, list[int]]:
    """Returns the configurations of each graph, by id.

    Raises:
        DataError: naming the file and the line, if it is not such a table.
    """
    try:
        header, *lines = read_bytes(path).decode("utf-8").splitlines() or [""]
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", where=path, expected=HEADER) from error
    if header.strip() != HEADER:
        raise DataError(f"header {header[:80]!r}", where=path, expected=HEADER)
    rankings: dict[str, list[int]] = {}
    for number, line in enumerate(lines, start=2):
        name, comma, listed = line.partition(",")
        parts = listed.strip().split(";")
        if not comma or not all(map(_CONFIG.fullmatch, parts)):
            raise DataError(f"{line[:80]!r}", where=path, field=f"line {number}", expected="ID,0;1;2")
        if name in rankings:
            raise DataError(
                f"{name} occurs twice", where=path, field=f"line {number}", expected="each id once"
            )
        rankings[name] = [int(part) for part in parts]
    return rankings


def score_submission(
    path: Path, folder: TpuGraphsFolder, split: str
) -> dict[str, float | dict[str, float | None] | None]:
    """Returns the competition's score of a table, on a split whose runtimes are known.

    A collection's score is the mean over its graphs: of 2 - (best of the first five) / (best of all) for tile
    kernels, of Kendall's tau for layouts; `score` is the mean over collections.

    Args:
        path: the table.
        folder: the data set.
        split: such as `valid`.

    Raises:
        DataError: naming the id, if a graph has no line or a line lists other configurations.
    """
    table = read_submission(path)
    scores: dict[str, list[float]] = {}
    for collection in folder.collections():
        for source in folder.graphs(collection, split):
            labels, name = read_labels(source), f"{collection}:{source.stem}"
            if labels.runtime is None:
                raise DataError("runtimes are withheld", where=source, expected="a split with runtimes")
            if name not in table:
                raise DataError("missing", where=path, field=name, expected="a line for every graph")
            try:
                scores.setdefault(collection, []).append(_score(labels, labels.runtime, table[name]))
            except DataError as error:
                raise error.recast(DataError, where=path, field=name) from error
    if not scores:
        raise DataError("no graphs", where=folder.root, expected=f"files of the split {split}")
    means = {name: competition_score({name: values}) for name, values in scores.items()}
    collections = {name: _defined(value) for name, value in means.items()}
    return {"score": _defined(competition_score(scores)), "collections": collections}


def _score(labels: Labels, runtime: I64, chosen: list[int]) -> float:
    if labels.normalizers is None:
        return competition_layout_score(runtime, chosen)
    return competition_tile_score(runtime, chosen, labels.normalizers)


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value
