"""Stage `collect`: build the corpus of programs. Frozen: run it by hand after a change to the zoo."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from costbench.execution.process import start_logging
from costbench.experiments.stages.entry import guarded
from costbench.workloads.collector import collect
from costbench.workloads.listing import update_table
from costbench.workloads.manifest import load_manifest

_log = logging.getLogger("costbench.collect")


def build(options: argparse.Namespace) -> None:
    """Build what is missing or differs (with names, only those) and bring the documentation up to date."""

    def progress(done: int, total: int, name: str) -> None:
        _log.info("[%d/%d] %s", done, total, name)

    result = collect(options.folder, options.names or None, options.jobs, progress, options.force)
    update_table(options.document, load_manifest(options.folder))
    _log.info("%d built, %d kept, %d removed", len(result.built), len(result.kept), len(result.removed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="collect", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs to build (default: the whole table)")
    parser.add_argument("--folder", type=Path, default=Path("data/programs"))
    parser.add_argument("--document", type=Path, default=Path("docs/programs.md"))
    parser.add_argument("--jobs", type=int, default=2, help="programs built at a time (2)")
    parser.add_argument("--force", action="store_true", help="build also programs that are already there")
    start_logging()
    raise SystemExit(guarded(lambda: build(parser.parse_args()), "collect"))
