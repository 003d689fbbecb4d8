"""Stage `register`: the best trained model of each task becomes its champion.

It is registered in MLflow under the alias `champion`, and copied: DVC carries `out/<profile>/register` to
other clones, where it needs neither MLflow nor the name of a cell. `champions.md`, beside the report and in
git, says what is in there and how to get it. Cells are compared by their validation metric, so the stage
needs no test results. Version numbers and run identifiers are kept in the registry alone.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from costbench.artifacts import read_bytes, read_json, seal, write_bytes, write_json, write_text
from costbench.datasets.splits import check_split
from costbench.errors import DataError
from costbench.experiments.grid.cells import cell_from_name
from costbench.experiments.parameter_file import load_params
from costbench.experiments.tracking.queries import CellFilter
from costbench.experiments.tracking.registry import MODEL_FILES, MODELS, best_candidate, register_champion
from costbench.experiments.tracking.runs import OFF, tracking_uri
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.params import parse
from costbench.store import remove_outdated

_log = logging.getLogger(__name__)
CHAMPIONS_FILE, PAGE_FILE = "champions.json", "champions.md"
_NOTE = "done.json"


@dataclass(frozen=True)
class RegisterParams:
    """Section `register`: the split and chip on which a task's models are compared.

    Attributes:
        split: split of the stage `split`, `fold1` and so on for a fold.
        chip: chip of the stage `features`, by name.
    """

    split: str
    chip: str

    def __post_init__(self) -> None:
        check_split(self.split, "split")


@dataclass(frozen=True)
class Champion:
    """The best model of a task, an entry of `champions.json`.

    Attributes:
        model: profile, experiment and cell, joined by slashes.
        metric: its validation metric.
        monitor: name of that metric.
        key: digest of everything that it was trained from.
    """

    model: str
    metric: float
    monitor: str
    key: str

    def __post_init__(self) -> None:
        cell_from_name(self.cell)

    @property
    def cell(self) -> str:
        """Returns the name of the cell, which is that of the folder with its copy."""
        return PurePosixPath(self.model).name


def run(params: Path) -> None:
    """Registers and copies the best model of each task that has one, and writes `champions.json`.

    Where no run of a task is tracked, such as in a clone that pulled the results of another machine, the
    champion that is there stays, unless its cell was trained again.

    Raises:
        CostbenchError: for wrong parameters, a store that cannot be used, or a model that is damaged.
    """
    profile = load_params(params)
    workspace = load_workspace(profile)
    section = profile.section("register", RegisterParams)
    folder = workspace.stage("register")
    uri = tracking_uri()
    if uri == OFF:
        _log.info("tracking is off: no champions are chosen")
    champions = {
        task: champion
        for task, champion in _read_champions(folder).items()
        if _is_current(task, champion, section, workspace)
    }
    for task in MODELS if uri != OFF else ():
        best = best_candidate(uri, CellFilter(task, section.split, section.chip, profile=workspace.name))
        if best is None:
            ends = f"{champions[task].model} stays" if task in champions else "no champion"
            _log.info("%s: no tracked model on %s, %s: %s", task, section.split, section.chip, ends)
            continue
        registered = register_champion(uri, best)
        _log.info("%s: version %s: %s", registered.uri, registered.version, best["name"])
        champion = Champion(best["name"], float(best["metric"]), best["monitor"], best["key"])
        for name in MODEL_FILES:
            write_bytes(folder / champion.cell / name, read_bytes(Path(best["path"], name)))
        champions[task] = champion
    page = workspace.reports / PAGE_FILE
    if not champions and page.exists():
        _log.warning("%s: names none from now on; `dvc pull %s` before keeps what it named", page, folder)
    remove_outdated(folder, [folder / champion.cell for champion in champions.values()])
    write_json(folder / CHAMPIONS_FILE, {task: asdict(champion) for task, champion in champions.items()})
    seal(folder, "`costbench register` where it was trained, or `dvc checkout`")
    text = "\n".join(_page(champions, section, workspace)) + "\n"
    if not page.is_file() or page.read_text("utf-8", errors="replace") != text:
        # This breaks the seal of the report's folder; `report` depends on the page, and seals again.
        write_text(page, text)


def _read_champions(folder: Path) -> dict[str, Champion]:
    """Returns the champions of an earlier run by task; none where their list is missing or damaged."""
    path = folder / CHAMPIONS_FILE
    with suppress(DataError):
        content = read_json(path)
        if isinstance(content, dict):
            return {
                task: parse(Champion, content[task], where=path, field=task, error=DataError)
                for task in MODELS
                if task in content
            }
    return {}


def _is_current(task: str, champion: Champion, section: RegisterParams, workspace: Workspace) -> bool:
    """Returns whether a champion is the one that was trained, of the split and chip that are compared."""
    cell = cell_from_name(champion.cell)
    copy = workspace.stage("register") / champion.cell
    note = workspace.stage("train").joinpath(*PurePosixPath(champion.model).parts[1:], _NOTE)
    trained: Any = read_json(note) if note.exists() else {"key": champion.key}
    return (
        (cell.task, cell.split, cell.chip) == (task, section.split, section.chip)
        and trained["key"] == champion.key
        and all((copy / name).exists() for name in MODEL_FILES)
    )


def _page(champions: Mapping[str, Champion], section: RegisterParams, workspace: Workspace) -> Iterator[str]:
    """Yields the lines of a page for people."""
    folder = workspace.stage("register")
    shown = PurePosixPath(os.path.relpath(folder, workspace.root))
    compared_on = f"the validation programs of {section.split}, {section.chip}"
    yield f"# Champions of the profile {workspace.name}"
    yield ""
    yield f"The best model of each task by its metric on {compared_on}."
    yield ""
    if not champions:
        yield "There is none."
        return
    yield "| task | model | validation | file | bytes | MD5, by which DVC knows it |"
    yield "|---|---|---|---|---|---|"
    for task, champion in champions.items():
        for name in MODEL_FILES:
            data = read_bytes(folder / champion.cell / name)
            digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
            file = shown / champion.cell / name
            metric = f"{champion.monitor} {champion.metric:.4f}"
            yield f"| {task} | {champion.model} | {metric} | {file} | {len(data):,} | {digest} |"
    yield ""
    yield "In a clone of this commit, with a remote of DVC that has them:"
    yield ""
    yield "```console"
    yield f"$ dvc pull {shown}"
    for champion in champions.values():
        yield f"$ costbench serve {shown / champion.cell}"
    yield "```"
