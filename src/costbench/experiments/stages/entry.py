"""Entry point of every stage: parses `--params`, logs progress, turns errors into a line and exit code 1."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from costbench.errors import CostbenchError
from costbench.execution.workers import Backend, exit_without_teardown, start_logging

_log = logging.getLogger(__name__)
_SQLITE = "sqlite:///"
Stage = Callable[[Path], None]
ExperimentStage = Callable[[Path, str | None], None]


def guarded(action: Callable[[], None], name: str) -> int:
    """Runs `action` and returns the exit code: 0, or 1 after a line on stderr for errors that users can fix.

    These are the errors of costbench and of the operating system (a full disk, no permission); any other
    exception is a defect and keeps its traceback. `action` is the last thing that a process does.
    """
    exit_without_teardown()
    try:
        action()
    except CostbenchError as error:
        sys.stderr.write(f"{name}: error: {_one_line(str(error))}\n")
        return 1
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"{name}: error: {named}{_one_line(error.strerror or str(error))}\n")
        return 1
    return 0


def _one_line(text: str) -> str:
    return " ".join(text.split())


def shared_database(url: str, backend: Backend, variable: str) -> str:
    """Returns a database URL as workers need it: on a cluster, the path of an SQLite file is made absolute.

    SQLite's locks are not reliable on a network drive, so its use by a cluster is logged as a warning.

    Args:
        url: address of the database.
        backend: backend that the workers run on.
        variable: environment variable that can name another database.
    """
    if backend.kind != "dask" or not url.startswith(_SQLITE):
        return url
    _log.warning(
        "%s: SQLite serves the processes of one machine; on several set %s to a server", url, variable
    )
    return f"{_SQLITE}{Path(url.removeprefix(_SQLITE)).resolve()}"


def stage_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Returns a parser with the option that every script in `pipelines/` accepts: `--params FILE`."""
    parser = argparse.ArgumentParser(
        prog=name, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--params", type=Path, default=Path("params.yaml"), help="parameter file (params.yaml)"
    )
    return parser


def stage_main(stage: Stage, name: str, description: str) -> None:
    """Parses `--params FILE`, run the stage, and exit with its code: the body of a script in `pipelines/`."""
    options = stage_parser(name, description).parse_args()
    start_logging()
    raise SystemExit(guarded(lambda: stage(options.params), name))


def experiment_main(stage: ExperimentStage, name: str, description: str) -> None:
    """As `stage_main`, for a stage that runs once per experiment and also takes `--experiment NAME`."""
    parser = stage_parser(name, description)
    parser.add_argument("--experiment", help="entry of section `experiments` (all of them)")
    options = parser.parse_args()
    start_logging()
    raise SystemExit(guarded(lambda: stage(options.params, options.experiment), name))
