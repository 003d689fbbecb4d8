"""How every stage starts and ends: one option, progress as lines, an error as one line and exit code 1."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from costbench.errors import CostbenchError
from costbench.execution.process import end_quickly

Stage = Callable[[Path], None]
ExperimentStage = Callable[[Path, str | None], None]


def guarded(action: Callable[[], None], name: str) -> int:
    """Run `action`, the last of a process; exit code 0, or 1 after a line on stderr for what users can mend.

    Errors of costbench and of the operating system (a full disk, no permission) are such; anything else
    is a defect and keeps its traceback.
    """
    end_quickly()
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


def start_logging() -> None:
    """Progress of our own loggers on stderr, one line each; other libraries' warnings only."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("costbench").setLevel(logging.INFO)
    warnings.filterwarnings("ignore", category=FutureWarning)


def stage_parser(name: str, description: str) -> argparse.ArgumentParser:
    """What every script in `pipelines/` accepts: `--params FILE`."""
    parser = argparse.ArgumentParser(
        prog=name, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--params", type=Path, default=Path("params.yaml"), help="parameter file (params.yaml)"
    )
    return parser


def stage_main(stage: Stage, name: str, description: str) -> None:
    """The body of a script in `pipelines/`: `--params FILE`, then the stage; exits with its code."""
    options = stage_parser(name, description).parse_args()
    start_logging()
    raise SystemExit(guarded(lambda: stage(options.params), name))


def experiment_main(stage: ExperimentStage, name: str, description: str) -> None:
    """The body of a script whose stage is done for each experiment: also takes `--experiment NAME`."""
    parser = stage_parser(name, description)
    parser.add_argument("--experiment", help="entry of section `experiments` (all of them)")
    options = parser.parse_args()
    start_logging()
    raise SystemExit(guarded(lambda: stage(options.params, options.experiment), name))
