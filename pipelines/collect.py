"""Stage `collect`: build the corpus of programs. Frozen: run it by hand after a change to the zoo."""

from __future__ import annotations

import argparse
import logging
import sys
from functools import partial
from pathlib import Path

from costbench.execution.workers import start_logging
from costbench.experiments.stages.entry import guarded
from costbench.programs.manifest import load_manifest

# The makers of the corpus are not installed, and a script finds what lies in its own folder only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus.collector import collect
from corpus.listing import update_table

_log = logging.getLogger("costbench.collect")


def build(options: argparse.Namespace) -> None:
    """Builds what is missing or differs (with names, only those) and brings the documentation up to date."""
    names, progress = options.names or None, partial(_log.info, "[%d/%d] %s")
    result = collect(options.folder, names, options.jobs, progress, options.force)
    update_table(options.document, load_manifest(options.folder))
    _log.info("%d built, %d kept, %d removed", len(result.built), len(result.unchanged), len(result.removed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="collect", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs to build (default: the whole table)")
    parser.add_argument("--folder", type=Path, default=Path("data/programs"))
    parser.add_argument("--document", type=Path, default=Path("docs/corpus.md"))
    parser.add_argument("--jobs", type=int, default=2, help="programs built at a time (2)")
    parser.add_argument("--force", action="store_true", help="build also programs that are already there")
    start_logging()
    raise SystemExit(guarded(lambda: build(parser.parse_args()), "collect"))
