"""Publishes data of the suite: their digests, sizes and ceilings, in the package and in `docs/suite.md`.

`python tools/publish_suite.py suite` adds all tasks in a folder that `costbench suite data` wrote to the
version; what is published never changes, so other values of a published task are an error. `--work` names
the folder of intermediate results, in which simulated machines measure again. `--check` says whether the page
is out of date (exit code 1).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from costbench.errors import CostbenchError, DataError
from costbench_suite.ceilings import measured_again
from costbench_suite.leaderboard import TITLES
from costbench_suite.scoring import score
from costbench_suite.task_data import FACTS_FILE, TaskData
from costbench_suite.tasks import TASKS
from costbench_suite.versions import PublishedTask, publish, published, unpublished

PAGE = Path(__file__).resolve().parents[1] / "docs" / "suite.md"
_BEGIN, _END = (f"<!-- {end}published data, by tools/publish_suite.py -->" for end in ("", "end of "))
_MB = 1e6


def published_entries(folder: Path, work: Path) -> dict[str, PublishedTask]:
    """Returns what is to be published of the tasks whose data a folder has; the same values stay as they are.

    Raises:
        DataError: for damaged data, a fresh test set, or a folder without data.
    """
    entries = {}
    folders = dict.fromkeys(task.folder for task in TASKS.values())
    names = [name for name in folders if (folder / name / FACTS_FILE).is_file()]
    if not names:
        raise DataError("no data of the suite", where=folder, expected="a folder of `costbench suite data`")
    for name in names:
        data = TaskData(folder, name)
        if data.facts.fresh:
            raise DataError("is a fresh test set", where=data.folder, expected="data of the version")
        known = published().get(name)
        if known is not None and known.digest == data.facts.digest and known.ceiling:
            entries[name] = known
            continue
        programs = list(data.programs.index)
        ceiling = score(data, measured_again(data, work)).intervals
        entries[name] = PublishedTask(
            digests=data.facts.digests,
            programs=len(programs),
            decisions=sum(len(data.table("decisions", program, ("decision",))) for program in programs),
            size=sum(path.stat().st_size for path in data.folder.iterdir()),
            ceiling={metric: float(f"{value.value:.4g}") for metric, value in ceiling.items()},
        )
    return entries


def describe() -> str:
    """Returns the table of what is published, and what is not, as Markdown."""
    lines = [
        "| data | programs | decisions | MB | digest | ceiling: a second measurement |",
        "|" + "---|" * 6,
    ]
    for folder, entry in published().items():
        numbers = ", ".join(f"{TITLES[name]} {value:g}" for name, value in entry.ceiling.items())
        numbers = numbers or "not measured yet"
        counts = f"{entry.programs:,} | {entry.decisions:,} | {entry.size / _MB:.1f}"
        lines.append(f"| `{folder}` | {counts} | `{entry.digest[:16]}` | {numbers} |")
    total = sum(entry.size for entry in published().values()) / _MB
    lines += ["", f"Together {total:.1f} MB."]
    missing = ", ".join(f"`{name}`" for name in unpublished())
    if missing:
        lines[-1] += f" Not published yet, so that their data may still change: {missing}."
    return "\n".join(lines)


def draw(text: str) -> str:
    """Returns a page with the table of what is published between its marks."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{describe()}\n{_END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Publishes data, or checks the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="folder that `costbench suite data` wrote")
    parser.add_argument("--work", type=Path, default=Path("out/suite"), help="its intermediate results")
    parser.add_argument("--check", action="store_true", help="only compare the page")
    options = parser.parse_args(arguments)
    text = PAGE.read_text("utf-8")
    if options.check:
        if draw(text) != text:
            print(f"{PAGE}: out of date, `python tools/publish_suite.py` draws it", file=sys.stderr)
            return 1
        return 0
    try:
        if options.folder is not None:
            publish(published_entries(options.folder, options.work))
    except CostbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    PAGE.write_text(draw(text), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
