"""Stage `autotune`: cost models in the compiler and in its autotuners, and what programs gain."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from costbench.artifacts import digest_bytes, digest_file, read_json, remove_stale_temporaries, write_json
from costbench.errors import DataError, ParamsError
from costbench.execution.workers import Backend, run_each
from costbench.experiments.autotuning.fusion import FusionCurve
from costbench.experiments.autotuning.programs import Autotuned, autotune
from costbench.experiments.autotuning.work_items import AutotuneParams, Piece, PieceFinder
from costbench.experiments.evaluation.scoring import ALL_KERNELS, BEST
from costbench.experiments.identity import (
    StageIdentity,
    code_digest,
    git_revision,
    identify,
    read_identity,
    write_identity,
)
from costbench.experiments.stages.entry import start_logging
from costbench.experiments.tracking.runs import KIND, Provenance, tracked_run, tracking_uri
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.metrics.rows import MetricRow, RowOrigin, write_rows
from costbench.params import digest, load_section, parse
from costbench.target import load_target

_log = logging.getLogger(__name__)
ROWS_FILE, SEARCH_FILE = "rows.jsonl", "search.json"
_PIECES = "pieces"
_EXPERIMENT = "costbench/autotune"


@dataclass(frozen=True)
class Entry:
    """Metrics of one arm, variant and seed, as a piece's file holds them."""

    model: str
    variant: str
    seed: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class PieceFile:
    """What is kept of a piece.

    Attributes:
        key: all that it follows from.
        entries: metrics.
        curves: of fusion searches.
    """

    key: str
    entries: tuple[Entry, ...]
    curves: tuple[FusionCurve, ...]


@dataclass(frozen=True)
class Wanted:
    """A piece, where it is kept, and what it follows from."""

    piece: Piece
    path: Path
    key: str


def run(params: Path) -> None:
    """Tune what is missing, then write `rows.jsonl` and `search.json`.

    Raises:
        CostbenchError: for wrong parameters, stages that have not finished, damaged files.
    """
    workspace = load_workspace(params)
    section = load_section(params, "autotune", AutotuneParams)
    folder = workspace.stage("autotune")
    identity = _identity(section, workspace)
    wanted = _wanted(section, workspace)
    _clear(folder / _PIECES, {one.path for one in wanted})
    made = _made(wanted, workspace.jobs)
    revision = git_revision(workspace.root)
    rows = [row for one in wanted for row in _rows(one.piece, made[one.piece.name], identity, revision)]
    write_rows(folder / ROWS_FILE, rows)
    write_json(folder / SEARCH_FILE, [curve for one in wanted for curve in _curves(one.piece, made)])
    write_identity(folder, identity)
    _track(workspace, rows, Provenance(identity.params_digest, identity.data_digest, revision))


def tune_piece(wanted: Wanted) -> PieceFile:
    """Tune one program and keep the result.

    Raises:
        CostbenchError: for a program or model that cannot be used, or a file that cannot be written.
    """
    start_logging()  # in a worker process nobody has
    found = _file_of(wanted.key, autotune(wanted.piece.task))
    write_json(wanted.path, asdict(found))
    return found


def _file_of(key: str, tuned: Autotuned) -> PieceFile:
    entries = tuple(Entry(*names, metrics) for names, metrics in tuned.metrics.items())
    return PieceFile(key, entries, tuned.curves)


def _made(wanted: Sequence[Wanted], jobs: int) -> dict[str, PieceFile]:
    """All pieces by name, those that are kept and those that are made now."""
    kept = {one.piece.name: found for one in wanted if (found := _kept(one)) is not None}
    missing = {one.piece.name: one for one in wanted if one.piece.name not in kept}
    _log.info("%d wanted: %d kept, %d to do", len(wanted), len(kept), len(missing))
    done = 0

    def tell(name: str, found: PieceFile) -> None:
        nonlocal done
        done += 1
        _log.info("[%d/%d] %s: %s", done, len(missing), name, _told(found))

    return kept | run_each(tune_piece, missing, Backend(jobs=jobs), tell)


def _kept(wanted: Wanted) -> PieceFile | None:
    if not wanted.path.exists():
        return None
    try:
        found = parse(PieceFile, read_json(wanted.path), where=wanted.path)
    except (DataError, ParamsError):
        return None
    return found if found.key == wanted.key else None


def _told(found: PieceFile) -> str:
    """Median speed-ups for the log: of 10 tile sizes measured, or else with the largest budget."""
    speedups: dict[str, dict[str, list[float]]] = {}
    for entry in found.entries:
        if "speedup" in entry.metrics:
            by_variant = speedups.setdefault(entry.model, {})
            by_variant.setdefault(entry.variant, []).append(entry.metrics["speedup"])
    shown = {model: "top10" if "top10" in found else list(found)[-1] for model, found in speedups.items()}
    return ", ".join(
        f"{model} {name} {np.median(speedups[model][name]):.3f}" for model, name in shown.items()
    )


def _wanted(section: AutotuneParams, workspace: Workspace) -> list[Wanted]:
    """All pieces, the longest first."""
    finder = PieceFinder(workspace, section.seed)
    pieces = [*finder.pieces("fusion", section.fusion), *finder.pieces("tile", section.tile)]
    pieces.sort(key=lambda piece: (-_effort(piece), piece.name))
    code = code_digest(autotune)
    files = {path for piece in pieces for path in _inputs(piece)}
    digests = {path: digest_file(path) for path in sorted(files)}
    folder = workspace.stage("autotune") / _PIECES
    found = []
    for piece in pieces:
        task = piece.task
        parts = [code, digest(task.params), str(task.seed), piece.name]
        parts += [f"{model} {folder.name}" for model, folder in task.checkpoints.items()]
        parts += [digest(load_target(task.chip)), *(digests[path] for path in _inputs(piece))]
        key = digest_bytes("\0".join(parts).encode())[:32]
        found.append(Wanted(piece, folder / f"{piece.name}.json", key))
    return found


def _inputs(piece: Piece) -> list[Path]:
    """Files that a piece is made from."""
    folders = piece.task.checkpoints.values()
    return [piece.task.file, *(folder / name for folder in folders for name in ("model.json", "weights.pt"))]


def _effort(piece: Piece) -> float:
    """Time that a piece takes, roughly: fusion searches are many, tile sizes go with the kernels."""
    return (1e6 if piece.task.decision == "fusion" else 0.0) + piece.instructions


def _identity(section: AutotuneParams, workspace: Workspace) -> StageIdentity:
    names = sorted({*section.tile.models, *section.fusion.models})
    trained = [read_identity(workspace.stage("train") / name) for name in names]
    before = [read_identity(workspace.stage(name)) for name in ("features", "split")]
    return identify(section, before[0].data_digest, *before, *trained)


def _clear(folder: Path, wanted: set[Path]) -> None:
    """Remove pieces that are not asked for, and what a killed run left."""
    if not folder.is_dir():
        return
    remove_stale_temporaries(folder)
    for path in sorted(folder.iterdir()):
        # What has a temporary's name now is being written by another process.
        if path.name[0] != "." and path not in wanted:
            path.unlink()


def _rows(piece: Piece, found: PieceFile, identity: StageIdentity, revision: str) -> Iterator[MetricRow]:
    task = piece.task
    origin = RowOrigin(
        task=task.decision,
        split=piece.split,
        chip=task.chip,
        application=piece.application,
        program=task.program,
        params_digest=identity.params_digest,
        data_digest=identity.data_digest,
        git_revision=revision,
    )
    return origin.rows(
        ALL_KERNELS, {(one.model, one.variant, one.seed): one.metrics for one in found.entries}
    )


def _curves(piece: Piece, made: Mapping[str, PieceFile]) -> Iterator[dict[str, object]]:
    task = piece.task
    place = {"task": task.decision, "split": piece.split, "chip": task.chip, "program": task.program}
    for curve in made[piece.name].curves:
        columns = asdict(curve)
        yield {**place, "model": columns.pop("arm"), **columns}


def _headline(rows: Iterable[MetricRow]) -> dict[str, float]:
    """Median speed-up over programs (and repeats) of each arm and variant."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.metric == "speedup" and row.model != BEST:
            name = f"{row.task}/{row.split}/{row.chip}/{row.model}/{row.variant}/speedup"
            found.setdefault(name, []).append(row.value)
    return {name: float(np.median(values)) for name, values in sorted(found.items())}


def _track(workspace: Workspace, rows: Sequence[MetricRow], provenance: Provenance) -> None:
    tags = {"profile": workspace.name, KIND: "autotune"}
    folder = workspace.stage("autotune")
    with tracked_run(tracking_uri(), _EXPERIMENT, workspace.name, provenance, tags) as tracked:
        tracked.log_metrics(_headline(rows))
        tracked.log_files([folder / ROWS_FILE, folder / SEARCH_FILE], "autotune")
