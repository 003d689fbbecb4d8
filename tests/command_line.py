"""`costbench` as people call it: what it prints, and how it ends."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import typer.main

from costbench.cli.app import complete_app, main
from tests.deadline import HANGS_AFTER_S

Done = subprocess.CompletedProcess[str]


def costbench(arguments: Sequence[str | Path], folder: Path) -> Done:
    """`costbench` in a folder, in this process: one of its own takes seconds before it works."""
    command = ["costbench", *map(str, arguments)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with chdir(folder), mock.patch.object(sys, "argv", command), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(command, code, out.getvalue(), err.getvalue())


def costbench_process(arguments: Sequence[str | Path], folder: Path) -> Done:
    """`costbench` in a folder, in a process of its own."""
    command = [sys.executable, "-m", "costbench", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S
    )


@cache
def click_command() -> Any:
    """`costbench` as Click has it, made once: pages of the documentation name hundreds of its commands.

    Typer has a copy of Click of its own in some versions, so its classes have no name to import.
    """
    return typer.main.get_command(complete_app())


def one_error(done: Done) -> str:
    """The single line of an error that the user can mend."""
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("costbench: error: ")
    return line
