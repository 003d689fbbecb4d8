"""Result rows whose averages are known by heart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pandas as pd

from costbench.metrics.rows import MetricRow
from costbench.reports.dataset_files import read_leakage, read_set_counts
from costbench.reports.frame import frame_of
from costbench.reports.inputs import ReportData, ReportInputs
from costbench.reports.results import Cell, Results, results_of
from costbench.reports.searches import Searches, searches_of
from costbench.reports.tables.learning_curves import CURVE_COLUMNS
from costbench.reports.training_guard import TrainingGuard

PROGRAMS = (("RNN", "rnn_gru_b128_train_f32"), ("ConvDRAW", "convdraw_b64_train_f32"), ("Own", "user_mine"))
# APE and tau of the three programs, by model.
SCORES = {
    "learned": ([4.0, 1.0, 0.0], [0.9, 0.7, 0.8]),
    "analytical": ([2.0, 8.0, 5.0], [0.6, 0.8, 0.7]),
    "random": ([200.0, 300.0, 100.0], [0.1, -0.1, 0.0]),
}


def make_row(**changes: object) -> MetricRow:
    """A row with defaults for everything that a test does not care about."""
    values: dict[str, object] = {
        "task": "tile",
        "split": "random",
        "chip": "tpu_v2",
        "model": "learned",
        "variant": "main",
        "seed": 0,
        "application": "RNN",
        "program": "rnn_gru_b128_train_f32",
        "kernels": "all",
        "metric": "tile_size_ape",
        "value": 1.0,
        "params_digest": "0123456789abcdef",
        "data_digest": "fedcba9876543210",
        "git_revision": "0" * 40,
    }
    return MetricRow(**{**values, **changes})  # type: ignore[arg-type]


def curve_points(networks: Mapping[str, Sequence[tuple[float, ...]]]) -> pd.DataFrame:
    """Points of learning curves: steps, validation value and, where it was tested, error and tau."""
    rows = [
        dict(zip(CURVE_COLUMNS, (name, *point), strict=False))
        for name, points in networks.items()
        for point in points
    ]
    points = pd.DataFrame(rows, columns=list(CURVE_COLUMNS))
    return points.astype(dict.fromkeys(("validation", "error", "tau"), "float64"))


def rows_of(split: str = "random", chip: str = "tpu_v2", **changes: object) -> list[MetricRow]:
    """The scores above as rows."""
    where = {"split": split, "chip": chip, **changes}
    return [
        make_row(**where, model=model, application=a, program=p, metric=metric, value=values[i])
        for model, (ape, tau) in SCORES.items()
        for metric, values in (("tile_size_ape", ape), ("kendall_tau", tau))
        for i, (a, p) in enumerate(PROGRAMS)
    ]


def fusion_rows(split: str = "random", chip: str = "tpu_v2") -> list[MetricRow]:
    """Of the fusion task: errors and correlations of long and short kernels, and how many there are."""
    scores = {
        "learned": ([4.0, 1.0, 2.0], 0.9),
        "hybrid": ([2.0, 1.0, 1.0], 0.95),
        "analytical": ([8.0, 27.0, 64.0], 0.7),
    }
    where = {"task": "fusion", "split": split, "chip": chip}
    rows = []
    for i, (a, p) in enumerate(PROGRAMS):
        named = {**where, "application": a, "program": p}
        for model, (errors, tau) in scores.items():
            of_model = {"mape_ge5us": errors[i], "kendall_tau_ge5us": tau, "mape_lt5us": 2.0 * errors[i]}
            of_model |= {"kendall_tau_lt5us": tau - 0.1, "mape": 1.5 * errors[i], "kendall_tau": tau - 0.05}
            rows += [make_row(**named, model=model, metric=m, value=v) for m, v in of_model.items()]
        counts = {"kernels_ge5us": 10.0 + i, "kernels_lt5us": 20.0 + i}
        rows += [make_row(**named, model="best", metric=m, value=v) for m, v in counts.items()]
    return rows


def variant_rows(
    variant: str, task: str, errors: list[float], tau: float = 0.5, **changes: object
) -> list[MetricRow]:
    """An ablation of the learned model: one error a program, the same correlation for all."""
    suffix, error = ("", "tile_size_ape") if task == "tile" else ("_ge5us", "mape_ge5us")
    return [
        make_row(task=task, variant=variant, application=a, program=p, metric=metric, value=value, **changes)
        for (a, p), own in zip(PROGRAMS, errors, strict=True)
        for metric, value in ((error, own), (f"kendall_tau{suffix}", tau))
    ]


def kind_rows(kinds: dict[str, list[tuple[float, float, float, float] | None]]) -> list[MetricRow]:
    """Of the analytical model: group of kernels -> (APE, tau, kernels, best ns) of each program."""
    return [
        make_row(model=model, application=a, program=p, kernels=group, metric=metric, value=value)
        for group, scores in kinds.items()
        for (a, p), score in zip(PROGRAMS, scores, strict=True)
        if score is not None
        for model, metric, value in zip(
            ("analytical", "analytical", "best", "best"),
            ("tile_size_ape", "kendall_tau", "kernels", "runtime_ns"),
            score,
            strict=True,
        )
    ]


def loss_rows() -> list[MetricRow]:
    """Of the layout task: what the choices of models lose on three programs, half of it after ten of each."""
    losses = {"learned": (0.0, 4.0, 20.0), "default_first": (0.0, 2.0, 40.0), "random": (6.0, 8.0, 10.0)}
    return [
        make_row(task="layout", split="folds", model=model, program=f"p{index}", metric=metric, value=value)
        for model, values in losses.items()
        for index, loss in enumerate(values)
        for metric, value in {"top_1": loss, "top_10": loss / 2.0, "kendall_tau": 0.5}.items()
    ]


def results_of_rows(*rows: Iterable[MetricRow]) -> Results:
    """Returns rows as evaluation leaves those of an experiment."""
    return results_of([frame_of(sorted(chain(*rows)), "main")], "rows")


def searches_of_rows(*rows: Iterable[MetricRow]) -> Searches:
    """Returns rows as the stage `autotune` leaves them."""
    return searches_of(frame_of(sorted(chain(*rows)), "autotune"))


def draw_twice(write: Callable[[Path], Sequence[Path]], folder: Path) -> tuple[str, str]:
    """Returns name and text of the SVG that a function writes into a folder, the same bytes each time."""
    svg, png = write(folder / "first")
    again = write(folder / "second")
    assert [svg.read_bytes(), png.read_bytes()] == [path.read_bytes() for path in again]
    assert png.read_bytes().startswith(b"\x89PNG")
    return svg.name, svg.read_text()


def report_data(folder: Path, rows: list[MetricRow], **changes: object) -> ReportData:
    """Data of a report with these rows, and nothing else unless it is given."""
    results = results_of_rows(rows)
    data = ReportData(
        guard=TrainingGuard(),
        inputs=ReportInputs(()),
        results=results,
        searches=Searches(),
        leakage=read_leakage(None),
        set_counts=read_set_counts(None),
        cards=(),
        budgets=(),
        selected=(),
        curves=(),
        frame=results.frame,
        findings=(),
        figures=folder,
    )
    return replace(data, **changes)  # type: ignore[arg-type]


def make_cell(rows: list[MetricRow] | None = None) -> Cell:
    """Returns the only cell of these rows, or of the scores above."""
    (cell,) = results_of_rows(rows_of() if rows is None else rows).cells
    return cell
