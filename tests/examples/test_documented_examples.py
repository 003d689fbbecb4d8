"""What the documentation shows works: commands have the options shown, and blocks of Python run.

A block is named by its page and its place among the page's blocks of Python.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.command_line import click_command

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    ((?:\$ )?costbench [^\n]*)", re.MULTILINE)
# Lines that stand before a fragment.
PREPARED = """
from costbench import rng
from costbench.compiler.fusion.space import fusion_space
from costbench.compiler.program import compile_program, unique_kernels
from costbench.hlo.reader import read_module
name = "alexnet_b128_train_f32"
path, rng = f"data/programs/{name}.hlo.pb.zst", rng.stream(0, "documentation")
"""
RUN = {
    "autotuning 0": "",
    "compiler 0": PREPARED,
    "compiler 1": PREPARED,
    "models 0": "",
    "schedule_models 0": "",
    "schedules 0": "",
}
"""What is run here, and what stands before it."""
_TILES = SimpleNamespace(output_bounds=np.array([[2, 3], [4, 5]]), kernel_bounds=np.array([[3], [1]]))
LEAVES: dict[str, Callable[[dict[str, Any], Path], bool]] = {
    "autotuning 0": lambda names, folder: (
        len(names["measured"]) == 10
        and names["slowdown"] >= 0.0
        and (folder / "out" / "autotuning-example.json").is_file()
    ),
    "compiler 0": lambda names, folder: (
        bool(names["compiled"].kernels)
        and [int((near != names["config"]).sum()) for near in names["near"]] == [1] * 10
    ),
    "compiler 1": lambda names, folder: (
        len(names["unique"]) < len(names["sizes"])
        and sum(one.runs_per_program for one in names["unique"]) == len(names["sizes"])
    ),
    "models 0": lambda names, folder: names["LargestTile"]().predict(None, _TILES).tolist() == [-18.0, -20.0],
    "schedule_models 0": lambda names, folder: (
        len(names["trace"]) == 128 and names["trace"].best_score == min(names["trace"].scores)
    ),
    "schedules 0": lambda names, folder: (
        names["space"].row_of(names["space"].choices(names["row"])).tolist() == names["row"].tolist()
    ),
}
"""What each leaves, asked of its names and its folder."""
ELSEWHERE = {
    "python 0": "test_first_look.py",
    "hlo_dumps 0": "test_tpugraphs_pages.py",
    "tpugraphs 0": "test_tpugraphs_pages.py",
    "tpugraphs 1": "test_tpugraphs_pages.py",
    "tpugraphs 2": "test_tpugraphs_pages.py",
    "your_gpu 0": "../pipelines/test_your_gpu.py",
    "your_gpu 1": "../pipelines/test_your_gpu.py",
    "your_machine 0": "../pipelines/test_your_machine.py",
    "your_machine 1": "../pipelines/test_your_machine.py",
    "your_network 0": "test_train_your_own_network.py",
    "your_layout_network 0": "test_train_your_own_layout_network.py",
}
"""What a test beside this one runs, or the example that it is the beginning of."""
NOT_RUN = {
    "autotuning 1": "a fragment that goes on with the names of a search, and takes a trained model",
    "crop 0": "needs llvmlite (extra `cpu`); tests/schedules/devices/instrumented runs the like",
    "data 0": "a line for each of four libraries, of which two are not installed with costbench",
    "models 1": "needs a model that the default profile has trained",
    "results 0": "reads the results of the default profile; tests/pipelines/test_smoke.py leaves such a file",
    "packed_results 0": "reads an archive of results; tests/experiments/archive writes such a file",
    "suite 0": "the form of a class; tests/suite/test_examples.py runs examples of it",
    "schedules 1": "reads a file of Kernel Tuner's, which is not in the repository",
}


def pages(repository: Path) -> list[Path]:
    return [repository / "README.md", *sorted((repository / "docs").glob("*.md"))]


def blocks(repository: Path) -> dict[str, str]:
    found = {}
    for page in pages(repository):
        python = [text for kind, text in _FENCED.findall(page.read_text("utf-8")) if kind in {"python", "py"}]
        found |= {f"{page.stem} {place}": text for place, text in enumerate(python)}
    return found


def commands(page: Path) -> list[str]:
    """Returns the command lines of costbench that a page shows, without what they are piped to."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    shown = [
        line.removeprefix("$ ")
        for kind, block in _FENCED.findall(text)
        for line in block.splitlines()
        if kind == "console" and line.startswith("$ costbench ")
    ]
    shown += [line.removeprefix("$ ") for line in _INDENTED.findall(text)]
    return [re.split(r" [|&>] ?", line)[0] for line in shown]


def parse(line: str) -> None:
    """Parses a command line as costbench would, without running it; raises ValueError where it would fail."""
    _, *arguments = shlex.split(line, comments=True)
    command = click_command()
    context = command.context_class(command)
    try:
        while hasattr(command, "resolve_command"):
            _, command, arguments = command.resolve_command(context, arguments)
        command.make_context(command.name, arguments, parent=context)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise ValueError(error.format_message()) from error


def test_every_command_has_the_options_that_pages_show(repository: Path) -> None:
    shown = [(page.name, line) for page in pages(repository) for line in commands(page)]
    assert len(shown) > 30
    refused = {}
    for page, line in shown:
        try:
            parse(line)
        except ValueError as error:
            refused[f"{page}: {line}"] = str(error)
    assert refused == {}


def test_a_wrong_option_is_seen() -> None:
    with pytest.raises(ValueError, match="--tasks"):
        parse("costbench tune step.hlo.pb --tasks tile")
    with pytest.raises(ValueError, match="better"):
        parse("costbench runs better")


def test_every_block_is_run_or_says_why_not(repository: Path) -> None:
    assert sorted(blocks(repository)) == sorted([*RUN, *ELSEWHERE, *NOT_RUN])
    assert all((Path(__file__).parent / name).is_file() for name in ELSEWHERE.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RUN))
def test_a_block_runs(name: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs it in a folder with the corpus, so that nothing is written into the repository."""
    (tmp_path / "data").symlink_to(repository / "data")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "documentation"}
    exec(compile(RUN[name] + blocks(repository)[name], f"docs/{name}", "exec"), names)
    assert LEAVES[name](names, tmp_path)
