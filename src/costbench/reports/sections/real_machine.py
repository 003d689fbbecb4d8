"""Results on a machine that exists, beside those on the simulated chip: its page, and what carries over.

They are packed results (`costbench.reports.headline`) of experiments on recorded kernels. Every comparison
that they have all sides of is made again on them, by the same rule (`claims.contrasts.contrasts_on_machine`),
and stands beside its finding on folds of the simulated chip.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from costbench.metrics.rows import PROGRAMS
from costbench.reports.claims.claim import ANY, Claim
from costbench.reports.claims.evaluation import (
    BY_CONSTRUCTION,
    DOES_NOT_HOLD,
    HOLDS,
    NO_DIFFERENCE,
    NOT_EVALUATED,
    SMALLER,
    Finding,
)
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.canvas import BarSeries, draw_grouped_bars, drawing, legend_above, save
from costbench.reports.frame import flatten, select
from costbench.reports.headline import Headline
from costbench.reports.inputs import ReportData
from costbench.reports.page import Page, PageFigure, Pointer, Section, page_figures, paragraphs, pointer
from costbench.reports.results import CEILINGS, FOLDS, PRIMARY_CHIP, Cell, Division, title_of
from costbench.reports.sections.claims import shown_verdict
from costbench.reports.summary import averages, summarise
from costbench.reports.table import Table
from costbench.tasks import LEARNED

TASK = "fusion"
"""The task that real machines have samples of."""
REAL = "real"
"""Set of the comparisons on a real machine."""
_TRANSFER = re.compile(r"transfer-(?P<start>[a-z]+)-(?P<kernels>\d+)")
_OUTCOMES = {HOLDS: HOLDS, SMALLER: HOLDS, DOES_NOT_HOLD: DOES_NOT_HOLD, NO_DIFFERENCE: NO_DIFFERENCE}
_NO_SUMMARY = re.compile(r"@(curve|kernels)-")
_SHORT = {"mape": "real_mape_ge5us_mean", "mape_short": "real_mape_lt5us_mean", "tau": "real_tau_mean"}
"""Second, short names of headline numbers in a summary, and their columns."""
_CARRIED = (
    *("statement", "simulated", "simulated_effect", "real", "real_effect"),
    *("low", "high", "unit", "carries_over"),
)
CarriesOver = Literal["yes", "no", "open", "no counterpart"]


def main_cell(real: Headline) -> Cell | None:
    """Returns the main results on the machine; None without any."""
    return real.results.cell(TASK, FOLDS, real.chip)


def carried_findings(findings: Iterable[Finding]) -> pd.DataFrame:
    """Returns each finding on a real machine beside that of the same comparison on the simulated chip.

    Returns:
        a row a finding on the machine, with the id of its `claim` and the columns of the table: in
        `carries_over`, `yes` where both are decided alike, `no` where they are decided differently, `open`
        where one is not decided, `no counterpart` where nothing on the simulated chip can decide it.
    """
    findings = list(findings)
    simulated: dict[object, Finding] = {}
    for finding in findings:
        splits, chips = ({getattr(side, name) for side in finding.claim.sides} for name in ("split", "chip"))
        if finding.claim.set != REAL and splits == {FOLDS} and chips == {PRIMARY_CHIP}:
            simulated.setdefault(_question(finding.claim), finding)
    # Searches are named otherwise on a machine whose budget is seconds.
    restated = {
        finding.claim.id: finding
        for finding in findings
        if finding.verdict == BY_CONSTRUCTION or {side.split for side in finding.claim.sides} == {ANY}
    }
    rows = []
    for finding in findings:
        if finding.claim.set == REAL:
            other = simulated.get(_question(finding.claim), restated.get(finding.claim.restates))
            rows.append(
                {
                    "claim": finding.claim.restates,
                    "statement": finding.claim.statement,
                    "simulated": "–" if other is None else shown_verdict(other),
                    "simulated_effect": None if other is None else other.effect,
                    "real": shown_verdict(finding),
                    "real_effect": finding.effect,
                    "low": finding.low,
                    "high": finding.high,
                    "unit": finding.claim.unit,
                    "carries_over": _carries_over(finding, other),
                }
            )
    return pd.DataFrame(rows, columns=["claim", *_CARRIED], dtype=object)


def _question(claim: Claim) -> tuple[object, ...]:
    """Returns what a claim says of what, whatever machine it is tested on."""
    left, right = (
        frozenset((side.model, side.variant, side.kernels) for side in sides)
        for sides in (claim.left, claim.right)
    )
    words = claim.direction, claim.magnitude
    return (claim.task, claim.metric, claim.statistic, claim.scale, claim.pairing, words, left, right)


def _carries_over(real: Finding, simulated: Finding | None) -> CarriesOver:
    if simulated is None or simulated.verdict in (BY_CONSTRUCTION, NOT_EVALUATED):
        return "no counterpart"
    outcomes = [_OUTCOMES.get(finding.verdict) for finding in (real, simulated)]
    if None in outcomes:
        return "open"
    return "yes" if outcomes[0] == outcomes[1] else "no"


def scores_of_models(real: Headline, simulated: Cell | None) -> pd.DataFrame:
    """Returns a row a model on the real machine, in the order of reports.

    Args:
        real: packed results on the machine.
        simulated: main results on folds of the simulated chip; None where there are none.

    Returns:
        columns `model`, and averages by name as in the summary: `simulated_<name>` on the simulated chip,
        `real_<name>` on the real machine, `programs_<name>` over fusion configs of whole programs there; NaN
        where a model was not evaluated.
    """
    cell = main_cell(real)
    if cell is None:
        return pd.DataFrame(columns=["model"])
    programs = real.results.part(cell, PROGRAMS)
    names = [*cell.models, *(["sum_of_kernels"] if programs is not None else []), *cell.ceilings]
    parts = {"simulated": simulated, "real": cell, "programs": programs}
    return pd.DataFrame(
        {"model": model}
        | {
            f"{part}_{name}": value
            for part, of_part in parts.items()
            if of_part is not None
            for name, value in averages(of_part, model).items()
        }
        for model in names
    )


def transfer_points(real: Headline) -> pd.DataFrame:
    """Returns the networks of the experiment on transfer, trained on some real kernels.

    Returns:
        a row a `start` (`nothing`, or `simulated` where it was trained on simulated kernels before) and
        number of real `kernels`, in this order: mean `error` of kernels from 5 us on the test programs, in
        percent, mean `tau` over all kernels of a program, number of training `seeds`.
    """
    error, tau = (*LEARNED[TASK].measures[:1], *LEARNED[TASK].all_kernels[1:])
    rows = []
    for cell in real.results.variants:
        match = _TRANSFER.fullmatch(cell.variant)
        for model in cell.models if match else ():
            values = [m.mean(cell.over_programs(model, m.metric)) for m in (error, tau)]
            if match and None not in values:
                rows.append((match["start"], int(match["kernels"]), *values, len(cell.seeds[model])))
    points = pd.DataFrame(rows, columns=["start", "kernels", "error", "tau", "seeds"])
    return points.sort_values(["start", "kernels"], kind="stable")


def flat_real(real: Headline | None) -> dict[str, float]:
    """Returns the headline numbers on the machine, by key of the summary, as those of other chips.

    Main models have three under short names, too: `mape`, from 5 us, `mape_short`, below, and `tau`. Points
    of learning curves and of budgets are left out; `programs_<name>` are over the fusion configs of
    whole programs.
    """
    if real is None:
        return {}
    scores = scores_of_models(real, None)
    columns = {name: column for name, column in _SHORT.items() if column in scores}
    columns |= {column: column for column in map(str, scores) if column.startswith("programs_")}
    numbers = {
        key: value for key, value in summarise(real.results, {}).items() if not _NO_SUMMARY.search(key)
    }
    return numbers | flatten(scores, f"{TASK}/{FOLDS}/{real.chip}/{{model}}", columns)


def count_carried(carried: pd.DataFrame) -> dict[str, int]:
    """Returns how many findings carry over, how many do not, and how many are open."""
    return dict.fromkeys(get_args(CarriesOver), 0) | Counter(carried["carries_over"])


_MACHINES = (("simulated", "#56B4E9"), ("real", "#D55E00"))
_LABELS = {"mape_ge5us_mean": "MAPE (%), kernels from 5 µs", "tau_mean": "Kendall's τ"}
_SHOWN = ("learned", "hybrid", "lpm2021", "trees", "trees_analytical", "analytical", "analytical_linear")
_START_STYLES = {
    "nothing": ("from nothing", "#444444", "s"),
    "simulated": ("trained on simulated kernels before", "#0072B2", "o"),
}


def write_machines_figure(scores: pd.DataFrame, simulated: str, real: str, folder: Path) -> tuple[Path, ...]:
    """Draws error and tau of each model on the simulated chip and on the real machine.

    Writes `real_machine.svg` and `.png`.

    Args:
        scores: models, as `scores_of_models` returns them.
        simulated: name of the simulated chip.
        real: name of the real machine.
        folder: folder of the figure.

    Returns:
        the paths; none without models.

    Raises:
        DataError: if a file cannot be written.
    """
    evaluated = scores.reindex(
        columns=["model", *(f"{machine}_{name}" for machine, _ in _MACHINES for name in _LABELS)]
    )
    shown = evaluated[evaluated["model"].isin(_SHOWN) & evaluated["real_mape_ge5us_mean"].notna()]
    if shown.empty:
        return ()
    positions = np.arange(len(shown), dtype=np.float64)
    with drawing((9.5, 3.6), columns=2) as (figure, (panels,)):
        for axes, (name, label) in zip(panels, _LABELS.items(), strict=True):
            series = [
                BarSeries(chip, colour, shown[f"{machine}_{name}"].to_numpy(np.float64))
                for (machine, colour), chip in zip(_MACHINES, (simulated, real), strict=True)
            ]
            draw_grouped_bars(axes, positions, series, 0.4)
            for model, height in evaluated[["model", f"real_{name}"]].dropna().itertuples(index=False):
                if model in CEILINGS:
                    title = f"{title_of(model)}, {real}"
                    axes.axhline(height, color="#D55E00", linestyle="dotted", label=title)
            axes.set_xticks(positions, shown["model"].map(title_of), rotation=35, ha="right")
            axes.set_ylabel(label)
        _scale_errors(panels[0])
        legend_above(figure, panels[0], 4)
        return save(figure, folder / "real_machine")


def _scale_errors(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def write_transfer_figure(points: pd.DataFrame, folder: Path) -> tuple[Path, ...]:
    """Draws error and tau against the number of real kernels, a line for each start.

    Writes `transfer.svg` and `.png`.

    Args:
        points: networks after some real kernels, as `transfer_points` returns them.
        folder: folder of the figure.

    Returns:
        the paths; none without points.

    Raises:
        DataError: if a file cannot be written.
    """
    if points.empty:
        return ()
    with drawing((9.0, 3.2), columns=2) as (figure, (panels,)):
        labels = (("error", "MAPE (%), kernels from 5 µs"), ("tau", "Kendall's τ"))
        for axes, (field, label) in zip(panels, labels, strict=True):
            for start, (title, colour, marker) in _START_STYLES.items():
                line = select(points, start=start)
                if len(line):
                    axes.plot(line["kernels"], line[field], color=colour, marker=marker, label=title)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("real kernels trained on")
            axes.set_ylabel(label)
        _scale_errors(panels[0])
        legend_above(figure, panels[0], 2)
        return save(figure, folder / "transfer")


_PAGE = "real_machine"
"""Name of the page, of its section and of its template."""
_STARTS = {"nothing": "drawn weights", "simulated": "weights trained on simulated kernels"}


def real_machine_section(data: ReportData) -> Section | None:
    """Returns the models and findings on a real machine; None without results on one.

    Raises:
        DataError: if a figure cannot be written.
    """
    real = data.real
    cell = None if real is None else main_cell(real)
    if real is None or cell is None:
        return None
    carried, points = carried_findings(data.printed_findings), transfer_points(real)
    return Section(
        anchor=_PAGE,
        title="A machine that exists: XLA on a processor",
        label="Real machine",
        page=Page(_PAGE, "Simulated and real"),
        paragraphs=paragraphs(
            _PAGE,
            profile=real.profile,
            chip=real.chip,
            programs=len(cell.programs),
            applications=len({application for application, _ in cell.programs}),
            missing=real.missing,
            counts=count_carried(carried),
        ),
        figures=tuple(page_figures(write_transfer_figure(points, data.figures), _PAGE, "transfer")),
        tables=tuple(
            table
            for table in (
                fill_table("carried_findings", carried),
                fill_table("transfer", points.assign(start=points["start"].replace(_STARTS))),
            )
            if table.rows
        ),
        facts=tuple(real.facts.items()),
    )


def compare_machines(data: ReportData) -> tuple[list[PageFigure], tuple[Table, ...]]:
    """Returns figure and table of the first page: each model simulated and on the real one, if any.

    Raises:
        DataError: if the figure cannot be written.
    """
    if data.real is None:
        return [], ()
    simulated = {cell.name: cell for cell in data.front(TASK).cells}
    primary = simulated.get(Division(TASK, FOLDS, PRIMARY_CHIP).name)
    scores, chip = scores_of_models(data.real, primary), data.real.chip
    paths = write_machines_figure(scores, PRIMARY_CHIP, chip, data.figures)
    titled = scores.assign(model=scores["model"].map(title_of))
    table = fill_table("machines_compared", titled, simulated=PRIMARY_CHIP, real=chip)
    return page_figures(paths, _PAGE, "machines", chip=chip), (table,)


def machine_pointer(data: ReportData) -> tuple[Pointer, ...]:
    """Returns the question of what carries over, and its answer; without results, how to compute them."""
    if data.inputs.params.real is None:
        return ()
    if data.real is None or main_cell(data.real) is None:
        return (pointer(_PAGE, "carried", "overview", chip=None),)
    carried = carried_findings(data.printed_findings)
    differing, chip = carried[carried["carries_over"] == "no"], data.real.chip
    lost = [
        f"{words.removesuffix('.')} ({PRIMARY_CHIP}: {simulated}; {chip}: {real})."
        for words, simulated, real in zip(
            differing["statement"], differing["simulated"], differing["real"], strict=True
        )
    ]
    counts = count_carried(carried)
    return (pointer(_PAGE, "carried", _PAGE, chip=chip, counts=counts, lost=lost),)
