"""Searches on recorded schedules: figures 4 to 9 of autotvm2018, what each arm found, what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costbench.metrics.measures import geometric_mean
from costbench.reports.claims.evaluation import Finding
from costbench.reports.page import PageFigure
from costbench.reports.table import Column, Table, Value
from costbench_schedules.reports.autotvm2018.curves import FIGURES, LEAST, panels, write_curves
from costbench_schedules.reports.autotvm2018.operators import TARGET, compared
from costbench_schedules.reports.autotvm2018.part import Part
from costbench_schedules.reports.autotvm2018.results import BEST, ScheduleResults

PAPER = "autotvm2018"
"""Short id of the paper."""
TRIALS = (100, 200, 400)
"""After which tables and headline numbers say what was found."""
TO_REACH = "trials_to_95"
_REACHED = "trials to 95%"


def gflops(trials: int) -> str:
    """Returns the metric of the speed after that number of trials."""
    return f"gflops_{trials}"


def part(results: ScheduleResults, figures: Path) -> Part | None:
    """Returns figures 4 to 9 and the tables; None without searches.

    Raises:
        DataError: if a figure cannot be written.
    """
    if not results.curves:
        return None
    drawn, absent = [], []
    for figure in FIGURES:
        shown = panels(results, figure)
        if not shown:
            absent.append(f"{figure.number} ({figure.title})")
            continue
        svg, _ = write_curves(results, figure, figures)
        caption = (
            f"Ours of autotvm2018's figure {figure.number}, {figure.title}: GFLOPS of the best schedule so "
            f"far against trials, median over {_repeats(results)} repeats, band from the lower to the upper "
            f"quartile; dotted: the fastest that was recorded. Speeds below {100 * LEAST:.0f}% of it are cut "
            f"off. {figure.note}"
        )
        alt = f"Curves of GFLOPS against trials, a panel for each of {len(shown)} workloads: {figure.title}."
        drawn.append(PageFigure(svg, alt, caption.strip()))
    tables = [
        table
        for target in results.targets
        for table in (arms_table(results, target), workloads_table(results, target))
    ]
    return Part(_text(results, absent), tuple(drawn), (*tables, recorded_table(results)), 1)


def _repeats(results: ScheduleResults) -> str:
    counts = sorted({one.repeats for one in results.curves})
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))


def _text(results: ScheduleResults, absent: list[str]) -> tuple[str, ...]:
    processors = " and ".join(results.processors)
    configs = sum(one.configs for one in results.tables)
    said = [
        f"Schedules of {len({one.workload for one in results.tables})} tensor operators, built by TVM and "
        f"timed on {processors}, one thread: {configs:,} configurations of {len(results.tables)} sub-spaces, "
        "each measured once. Searches replay these measurements, which makes repeats cheap; a trial is one "
        "measurement (two where an arm is marked x2)."
    ]
    shares = sorted(100.0 * one.fast_share for one in results.tables)
    if shares:
        said.append(
            f"The sub-spaces were chosen to hold good schedules: {shares[0]:.1f}% to {shares[-1]:.1f}% of a "
            "table have at least 95% of the fastest speed, so random search finds one soon, and there is "
            "little left to gain."
        )
    noisy = [f"{one.workload} for {one.target}" for one in results.tables if not one.trusted]
    if noisy:
        said.append(
            f"Second measurements agree too little (Kendall's τ below 0.9) for {', '.join(noisy)}: there "
            "differences of a few percent are noise."
        )
    for target in results.targets:
        sentence = _finding(results, target)
        if sentence:
            said.append(sentence)
    if absent:
        said.append(f"Not run in this profile: figures {'; '.join(absent)}.")
    return tuple(said)


def _finding(results: ScheduleResults, target: str) -> str:
    """Returns a sentence on random and guided search where both were run, at the first number of trials."""
    metric = gflops(TRIALS[0])
    pairs = [
        (guided, drawn)
        for name in results.workloads(target)
        if (guided := results.median(target, name, "gbt-rank", metric))
        and (drawn := results.median(target, name, "random", metric))
    ]
    if not pairs:
        return ""
    ratio = geometric_mean([guided / drawn for guided, drawn in pairs])
    return (
        f"After {TRIALS[0]} trials on {target}, the search that boosted trees guide has found schedules "
        f"{ratio:.3f} times as fast as random search has, geometric mean over {len(pairs)} workloads."
    )


def _arms(results: ScheduleResults, target: str) -> list[str]:
    """Returns the arms that were run on a target, in the order of figures."""
    ran = {one.arm for one in results.curves if one.target == target}
    known = dict.fromkeys(arm for figure in FIGURES for arm in figure.arms)
    return [arm for arm in known if arm in ran] + sorted(ran - set(known))


def shares(results: ScheduleResults, target: str, arm: str, trials: int) -> list[float]:
    """Returns for each workload what share of the fastest recorded speed an arm has reached, in percent."""
    found = []
    for name in results.workloads(target):
        best = results.median(target, name, BEST, "gflops_best")
        own = results.median(target, name, arm, gflops(trials))
        if best and own is not None:
            found.append(100.0 * own / best)
    return found


def arms_table(results: ScheduleResults, target: str) -> Table:
    """Returns what each arm reached on average over its workloads."""
    columns = (
        Column("arm", "Search"),
        Column("workloads", "Workloads", count=True),
        *(Column(f"share_{n}", f"{n}", "Share of the fastest recorded (%), after trials", 1) for n in TRIALS),
        Column("trials", _REACHED, "", 1),
    )
    rows: list[tuple[Value, ...]] = []
    for arm in _arms(results, target):
        by_trials = [shares(results, target, arm, n) for n in TRIALS]
        reached = [
            value
            for name in results.workloads(target)
            if (value := results.median(target, name, arm, TO_REACH)) is not None
        ]
        means = [geometric_mean(own) if own and min(own) > 0.0 else None for own in by_trials]
        rows.append((arm, len(reached), *means, geometric_mean(reached) if reached else None))
    notes = (
        "Medians over repeats, geometric means over workloads. Arms that were run on other workloads cannot "
        "be compared by their means; the claims are decided on the workloads that both sides share. "
        f"{_REACHED}: until a schedule of at least 95% of the fastest speed is found; one more than all "
        "trials where none was.",
    )
    title = f"Searches for schedules on {target}"
    return Table(f"schedule_arms_{target}", title, columns, tuple(rows), 0, notes)


def workloads_table(results: ScheduleResults, target: str) -> Table:
    """Returns what each arm found for each workload after 100, 200 and 400 trials."""
    columns = (
        Column("workload", "Workload"),
        Column("arm", "Search"),
        *(Column(gflops(n), f"{n}", "GFLOPS after trials", 1) for n in TRIALS),
        Column("trials", _REACHED, "", 1),
        Column("best", "GFLOPS, fastest recorded", "", 1),
    )
    rows: list[tuple[Value, ...]] = []
    for name in results.workloads(target):
        best = results.median(target, name, BEST, "gflops_best")
        for arm in _arms(results, target):
            if results.curve(target, name, arm) is not None:
                values = [results.median(target, name, arm, metric) for metric in map(gflops, TRIALS)]
                rows.append((name, arm, *values, results.median(target, name, arm, TO_REACH), best))
    title = f"Fastest schedule found on {target}, median over repeats"
    return Table(f"schedule_found_{target}", title, columns, tuple(rows))


def recorded_table(results: ScheduleResults) -> Table:
    """Returns what was recorded, and how far a second measurement agrees."""
    columns = (
        Column("target", "Target"),
        Column("workload", "Workload"),
        Column("configs", "Configurations", count=True),
        Column("failed", "Failed", count=True),
        Column("best", "fastest", "GFLOPS", 1),
        Column("median", "median", "GFLOPS", 1),
        Column("fast", "at least 95% of the fastest (%)", "", 1),
        Column("tau", "Kendall's τ", "Measured again", 3),
        Column("spread", "ratio, 90th percentile", "Measured again", 3),
        Column("processor", "Processor"),
    )
    rows = tuple(
        (
            *(one.target, one.workload, one.configs, one.failed, one.best_gflops, one.median_gflops),
            100.0 * one.fast_share,
            *(one.tau, one.spread, one.processor),
        )
        for one in results.tables
    )
    return Table("schedule_recorded", "Recorded schedules", columns, rows)


def flat_schedules(results: ScheduleResults, findings: Sequence[Finding] = ()) -> dict[str, float]:
    """Returns headline numbers by key, medians over repeats; none without searches:

    - `schedule/{target}/{workload}/best_gflops`: of the fastest schedule that was recorded;
    - `schedule/native/{workload}/library_gflops`: of the vendor library;
    - `schedule/{target}/{workload}/{arm}/gflops_{trials}`, `.../trials_to_95`;
    - `schedule/{target}/all/{arm}/share_{trials}`: percent of the fastest speed, geometric mean over
      workloads;
    - `schedule/claims/{name}/effect`, `.../ci_low`, `.../ci_high`: of the claims of autotvm2018.
    """
    found: dict[str, float | None] = {}
    if results.curves:
        for one in findings:
            if one.claim.paper == PAPER:
                key = f"schedule/claims/{one.claim.id.partition('.')[2]}"
                found |= {f"{key}/effect": one.effect, f"{key}/ci_low": one.low, f"{key}/ci_high": one.high}
    for target in results.targets:
        for name in results.workloads(target):
            key = f"schedule/{target}/{name}"
            found[f"{key}/best_gflops"] = results.median(target, name, BEST, "gflops_best")
            for arm in _arms(results, target):
                for metric in (*map(gflops, TRIALS), TO_REACH):
                    found[f"{key}/{arm}/{metric}"] = results.median(target, name, arm, metric)
        for arm in _arms(results, target):
            for n in TRIALS:
                own = shares(results, target, arm, n)
                if own and np.min(own) > 0.0:
                    found[f"schedule/{target}/all/{arm}/share_{n}"] = geometric_mean(own)
    for name, (_, library) in compared(results).items():
        found[f"schedule/{TARGET}/{name}/library_gflops"] = library
    return {key: value for key, value in found.items() if value is not None}
