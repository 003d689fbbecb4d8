"""Gives the stages `train` and `evaluate` the samples of an imported data set, for experiments that name one.

Files of TpuGraphs are converted once, below the output folder of a profile. An experiment sees those of its
collections through links that are placed as the stage `features` places its shards, so whatever reads feature
shards reads these. Their split is the data set's own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from costbench.artifacts import digest_bytes
from costbench.datasets.layout_graphs import open_layout_graph, write_layout_graph
from costbench.datasets.splits import Split, TrainingPrograms
from costbench.datasets.storage import Shard
from costbench.datasets.tpugraphs.folder import COLLECTIONS, TILE_COLLECTION, TpuGraphsFolder, convert_once
from costbench.datasets.tpugraphs.npz import convert_layout_npz
from costbench.errors import DataError
from costbench.experiments.grid.experiment import OWN, Experiment, ImportedGrid
from costbench.experiments.workspace import Workspace

_log = logging.getLogger(__name__)
_FOLDER = "given"  # below the output folder of a profile
_TRAIN, _VALID, _TEST = "train", "valid", "test"


@dataclass(frozen=True)
class ImportedSamples:
    """The imported samples of one experiment.

    Attributes:
        source: the data set; its shards are kept for all experiments of the profile.
        collections: those of the experiment's task that it asks for, or all.
        features: folder of links to their shards, laid out as that of the stage `features`.
        task: name of the task.
        chip: name under which results are listed.
    """

    source: TpuGraphsFolder
    collections: tuple[str, ...]
    features: Path
    task: str
    chip: str

    def digest(self) -> str:
        """Returns a digest of the names and sizes of the files of all splits, 16 hexadecimal digits."""
        splits = product(self.collections, (_TRAIN, _VALID, _TEST))
        files = (path for collection, split in splits for path in self.source.graphs(collection, split))
        return _digest_listing(self.source.root, files)

    def training_programs(self) -> TrainingPrograms:
        """Returns the programs of `train` and, for validation, of `valid`; their shards are linked.

        Raises:
            DataError: naming the file, if one is malformed; if a split is empty, a program is in two or a
                program has no runtimes.
        """
        shards = self._link_shards((_TRAIN, _VALID))
        for split, by_program in shards.items():
            for paths in by_program.values():
                for path in paths:
                    if not _is_labelled(path):
                        where = self.source.root
                        problem = f"no runtimes of {path.stem} of split {split}"
                        raise DataError(problem, where=where, expected="labelled files for training")
        return TrainingPrograms(tuple(sorted(shards[_TRAIN])), tuple(sorted(shards[_VALID])))

    def tested_programs(self) -> Split:
        """Returns the training programs and those to test on; the shards of all splits are linked.

        Tested are the programs of `test` whose runtimes are known, those of `valid` where there are none.

        Raises:
            DataError: as `training_programs`.
        """
        shards = self._link_shards((_TRAIN, _VALID, _TEST))
        tests = shards[_TEST]
        tested = sorted(name for name, paths in tests.items() if all(map(_is_labelled, paths)))
        if tested and len(tested) < len(tests):
            _log.info("%s: %d programs of test have no runtimes", self.source.root, len(tests) - len(tested))
        if not tested:
            tested = sorted(shards[_VALID])
            why = "has no runtimes" if tests else "is not there"
            _log.info(
                "%s: split test %s; evaluated on valid, by which epochs were chosen", self.source.root, why
            )
        return Split(OWN, tuple(sorted(shards[_TRAIN])), (), tuple(tested))

    def _link_shards(self, splits: Iterable[str]) -> dict[str, dict[str, list[Path]]]:
        """Makes the shards, and links to them and to no others; returns them by split and program."""
        shards: dict[str, dict[str, list[Path]]] = {}
        links: dict[Path, Path] = {}
        base = self.features / self.task / self.chip
        for split in splits:
            programs = shards.setdefault(split, {})
            for collection in self.collections:
                folder = base if collection == TILE_COLLECTION else base / collection.replace(":", "-")
                for shard in _convert_shards(self.source, collection, split):
                    programs.setdefault(shard.stem, []).append(shard)
                    links[folder / shard.name] = shard
            if not programs and split != _TEST:
                problem = f"no file of split {split} in {', '.join(self.collections)}"
                raise DataError(problem, where=self.source.root, expected="a graph or more")
        check_disjoint(shards, self.source.root)
        _make_links(base, links)
        return shards


def open_imported_samples(experiment: Experiment, workspace: Workspace) -> ImportedSamples | None:
    """Returns the samples of an experiment over an imported data set; None for one over the profile's own.

    Raises:
        DataError: if the folder does not exist or lacks a collection, or the task has none in it.
    """
    grid = experiment.grid
    if not isinstance(grid, ImportedGrid):
        return None
    root = workspace.root / grid.folder
    field = f"experiments.{experiment.name}"
    if not root.is_dir():
        raise DataError("no such folder", where=root, field=f"{field}.data", expected="tpugraphs:DIR")
    folder = workspace.out / _FOLDER
    cache = folder / "shards" / digest_bytes(str(root.resolve()).encode())[:16]
    source = TpuGraphsFolder(root, cache)
    possible = [name for name in COLLECTIONS if name.split(":")[0] == grid.task]
    present = [name for name in possible if name in source.collections()]
    collections = grid.collections or tuple(present)
    missing = [name for name in collections if name not in present]
    if missing or not collections:
        problem = f"holds no {missing[0]}" if missing else f"holds no collection of task {grid.task}"
        expected = ", ".join(present or possible) or "task tile or layout"
        raise DataError(problem, where=root, field=f"{field}.collections", expected=expected)
    features = folder / experiment.name / "features"
    return ImportedSamples(source, tuple(sorted(set(collections))), features, grid.task, grid.chips[0])


def listing_digest(entry: Mapping[str, object], root: Path) -> str:
    """Returns a digest of the names and sizes of all files of the folder that an entry names.

    Args:
        entry: entry of an experiment, unparsed.
        root: root of the repository.

    Returns:
        16 hexadecimal digits; empty where the entry names no folder, or one that is not there, which only the
        stage of the experiment itself minds.
    """
    folder = root / str(entry.get("data", "")).partition(":")[2]
    if "data" not in entry or not folder.is_dir():
        return ""
    return _digest_listing(folder, sorted(path for path in folder.rglob("*.npz") if path.is_file()))


def _digest_listing(root: Path, files: Iterable[Path]) -> str:
    """Returns a digest of names below `root` and sizes, in order."""
    lines = [f"{path.relative_to(root).as_posix()} {path.stat().st_size}" for path in files]
    return digest_bytes("\n".join(lines).encode())[:16]


def _convert_shards(source: TpuGraphsFolder, collection: str, split: str) -> Iterable[Path]:
    if collection == TILE_COLLECTION:
        yield from source.tile_shards(split)
        return
    for path in source.graphs(collection, split):
        made = source.cache / collection.replace(":", "-") / split / f"{path.stem}.arrow"
        convert_once(made, [path], partial(_convert, path, made, collection))
        yield made


def _convert(path: Path, made: Path, collection: str) -> None:
    """Writes a layout graph with the application that stages ask for: the data set names none, so its own."""
    plain = made.with_suffix(".plain")
    try:
        convert_layout_npz(path, plain, name=path.stem, collection=collection)
        write_layout_graph(made, open_layout_graph(plain), {"application": path.stem})
    finally:
        plain.unlink(missing_ok=True)


def _is_labelled(shard: Path) -> bool:
    """Returns whether the runtimes of a layout graph, or of any kernel of a tile shard, are known."""
    opened = Shard.open(shard)
    kernels = opened.metadata.get("labelled")
    return any(kernels) if isinstance(kernels, list) else opened.num_configs > 0


def check_disjoint(programs_of_splits: Mapping[str, Collection[str]], root: Path) -> None:
    """Raises DataError, naming program and splits, if a program of the folder `root` is in two of them."""
    splits: dict[str, str] = {}
    for split, programs in programs_of_splits.items():
        for name in programs:
            other = splits.setdefault(name, split)
            if other != split:
                problem = f"program {name} in splits {other} and {split}"
                raise DataError(problem, where=root, expected="programs of one split; see `collections`")


def _make_links(base: Path, links: Mapping[Path, Path]) -> None:
    """Makes relative links, so that a moved output folder stays whole, and removes others below `base`."""
    for path in base.rglob("*.arrow") if base.is_dir() else ():
        if path not in links:
            path.unlink()
    for link, shard in links.items():
        target = os.path.relpath(shard, link.parent)
        if link.is_symlink() and link.readlink() == Path(target):
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(target)
