"""The page of a machine that exists: models there and on the simulated chip, and what carries over."""

from __future__ import annotations

from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.real_machine import write_machines_figure, write_transfer_figure
from costbench.reports.inputs import ReportData
from costbench.reports.page import PageFigure, Pointer, Section, page_figure, paragraphs, sentence
from costbench.reports.real_machine import (
    TASK,
    ModelScores,
    TransferPoint,
    carried_findings,
    count_carried,
    main_cell,
    scores_of_models,
    transfer_points,
)
from costbench.reports.results import FOLDS, PRIMARY_CHIP, title_of
from costbench.reports.sections.claims import shown_verdict
from costbench.reports.table import Table

_PAGE = "real_machine"
"""Name of the page, of its section and of its template."""
_COLUMNS = ("mape_ge5us_mean", "mape_lt5us_mean", "tau_mean")
_OF_PROGRAMS = ("mape_mean", "tau_mean")
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
    figures = write_transfer_figure(points, data.figures)
    return Section(
        anchor=_PAGE,
        title="A machine that exists: XLA on a processor",
        label="Real machine",
        page=_PAGE,
        paragraphs=paragraphs(
            _PAGE,
            profile=real.profile,
            chip=real.chip,
            programs=len(cell.programs),
            applications=len({application for application, _ in cell.programs}),
            missing=real.missing,
            counts=count_carried(carried),
        ),
        figures=tuple(page_figure(path, _PAGE, "transfer") for path in figures[:1]),
        tables=tuple(
            table
            for table in (
                fill_table(
                    "carried_findings",
                    [
                        {
                            "statement": row.real.claim.statement,
                            "simulated": "–" if row.simulated is None else shown_verdict(row.simulated),
                            "simulated_effect": None if row.simulated is None else row.simulated.effect,
                            "real": shown_verdict(row.real),
                            "real_effect": row.real.effect,
                            "low": row.real.low,
                            "high": row.real.high,
                            "unit": row.real.claim.unit,
                            "carries_over": row.carries_over,
                        }
                        for row in carried
                    ],
                ),
                transfer_table(points),
            )
            if table.rows
        ),
        facts=tuple(real.facts.items()),
    )


def machine_models(data: ReportData) -> tuple[ModelScores, ...]:
    """Returns the models on the real machine beside the results that the first page has of the simulated."""
    if data.real is None:
        return ()
    cells = [
        cell
        for cell in data.front(TASK).cells
        if (cell.task, cell.split, cell.chip) == (TASK, FOLDS, PRIMARY_CHIP)
    ]
    return scores_of_models(data.real, cells[0] if cells else None)


def machines_compared_table(data: ReportData) -> tuple[Table, ...]:
    """Returns the table of the first page: each model simulated and on the real machine."""
    scores = machine_models(data)
    if data.real is None or not scores:
        return ()
    rows = []
    for one in scores:
        row: dict[str, object] = {"model": title_of(one.model)}
        for machine in ("simulated", "real"):
            row |= {f"{machine}_{name}": getattr(one, machine).get(name) for name in _COLUMNS}
        row |= {f"programs_{name}": one.programs.get(name) for name in _OF_PROGRAMS}
        rows.append(row)
    return (fill_table("machines_compared", rows, simulated=PRIMARY_CHIP, real=data.real.chip),)


def machines_figure(data: ReportData) -> tuple[PageFigure, ...]:
    """Returns the figure of the first page, likewise.

    Raises:
        DataError: if it cannot be written.
    """
    if data.real is None:
        return ()
    chip = data.real.chip
    paths = write_machines_figure(machine_models(data), PRIMARY_CHIP, chip, data.figures)
    return (page_figure(paths[0], _PAGE, "machines", chip=chip),) if paths else ()


def machine_pointer(data: ReportData) -> tuple[Pointer, ...]:
    """Returns the question of what carries over, and its answer; without results, how to compute them."""
    if data.inputs.real is None:
        return ()
    question = sentence(_PAGE, "question")
    if data.real is None or main_cell(data.real) is None:
        return (Pointer(question, sentence(_PAGE, "no_results"), "overview"),)
    carried = carried_findings(data.printed_findings)
    answer = sentence(
        _PAGE,
        "answer",
        chip=data.real.chip,
        counts=count_carried(carried),
        lost=[row.real.claim.statement for row in carried if row.carries_over == "no"],
    )
    return (Pointer(question, answer, _PAGE),)


def transfer_table(points: tuple[TransferPoint, ...]) -> Table:
    """Returns a row for each number of real kernels and start."""
    rows = [
        {
            "start": _STARTS.get(point.start, point.start),
            "kernels": point.kernels,
            "error": point.error,
            "tau": point.tau,
            "seeds": point.seeds,
        }
        for point in points
    ]
    return fill_table("transfer", rows)
