"""tpugraphs2023's table 10: what evaluating a layout config takes, charged, measured and printed.

Compiling and running are charged as searches are (`autotuning.charging`) and follow from programs and chips.
Feature extraction and inference are wall times of the machine at hand: they differ from call to call, so they
stay in the machine's folder of the profile and in the tracked run, and the tables that git keeps have none
of them (decision 0032). Claims about them have a verdict there, and no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from costbench.artifacts import write_json, write_text
from costbench.metrics.overhead import BATCH, Overhead
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin
from costbench.reports.claims.evaluation import Finding
from costbench.reports.declared_tables import fill_table
from costbench.reports.papers.printed import printed_table
from costbench.reports.rendering import to_markdown
from costbench.reports.table import Table

_FILE = "overhead.json"
_MEASURED = ("extraction_s", "batch_s", "single_s")


def overhead_rows(overheads: Sequence[Overhead]) -> tuple[MetricRow, ...]:
    """Returns the times as result rows, for claims: metric `seconds` of the task `layout`.

    `inference` is one forward pass (`single`, or `batch` for each of a hundred), `prediction` the same with
    feature extraction, as the paper counts it, and `compile and run` what is charged.
    """
    rows: list[MetricRow] = []
    for overhead in overheads:
        times = {
            ("inference", "single"): overhead.single_s,
            ("inference", "batch"): overhead.batch_s,
            ("prediction", "single"): overhead.extraction_s + overhead.single_s,
            ("prediction", "batch"): overhead.extraction_s / BATCH + overhead.batch_s,
            ("compile and run", MAIN): overhead.compile_s + overhead.run_s,
        }
        origin = RowOrigin(
            "layout", overhead.split, overhead.chip, overhead.application, overhead.program, "", "", ""
        )
        rows += origin.rows("all", {(*name, 0): {"seconds": seconds} for name, seconds in times.items()})
    return tuple(rows)


def without_wall_times(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the findings without the effects of claims about wall times; verdicts stay."""
    return tuple(
        replace(finding, effect=None, low=None, high=None, by_program=None, by_application=None)
        if finding.claim.wall_time
        else finding
        for finding in findings
    )


def overhead_table(overheads: Sequence[Overhead], *, measured: bool) -> Table:
    """Returns Table 10: our test programs above, the paper's validation programs below.

    Args:
        overheads: times of our programs; without any the table has the paper's rows alone.
        measured: whether wall times of ours are shown; without them the table is the same on every machine.
    """
    paper = printed_table("tpugraphs2023", "overhead")
    hidden = {} if measured else dict.fromkeys(_MEASURED)
    rows: list[dict[str, object]] = [asdict(o) | {"whose": "ours"} | hidden for o in overheads]
    rows += [{"whose": "paper", "program": row.label, **paper.numbers(row)} for row in paper.rows]
    notes = []
    if overheads and not measured:
        notes.append(
            "Wall times of ours differ from machine to machine and are in machine/overhead.md of the "
            "profile's output folder and in the tracked run."
        )
    if not overheads:
        notes.append("Ours were not measured: no layout model was evaluated.")
    return fill_table("tpugraphs2023_table10", rows, notes=notes, printed=paper.name)


def write_machine_overheads(
    overheads: Sequence[Overhead], findings: Sequence[Finding], folder: Path
) -> tuple[Path, ...]:
    """Writes wall times and the effects of claims about them: `overhead.json` and `overhead.md` in a folder.

    Returns:
        the paths; none where nothing was measured.

    Raises:
        DataError: if a file cannot be written.
    """
    if not overheads:
        return ()
    ratios = {
        finding.claim.id: {
            "verdict": finding.verdict,
            "effect": finding.effect,
            "ci_low": finding.low,
            "ci_high": finding.high,
        }
        for finding in findings
        if finding.claim.wall_time
    }
    write_json(folder / _FILE, {"programs": [asdict(overhead) for overhead in overheads], "claims": ratios})
    text = to_markdown(overhead_table(overheads, measured=True))
    write_text(folder / "overhead.md", f"# Time to evaluate a layout config on this machine\n\n{text}")
    return (folder / _FILE, folder / "overhead.md")


def overhead_metrics(overheads: Sequence[Overhead]) -> dict[str, float]:
    """Returns medians over programs of each wall time, by name, for the tracked run."""
    if not overheads:
        return {}
    return {
        f"overhead/{key}": float(np.median([getattr(overhead, key) for overhead in overheads]))
        for key in _MEASURED
    }
