"""The section on tuning tables, from rows by hand and from a stage of a second."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from costbench.metrics.rows import MetricRow
from costbench.reports.claims.evaluation import evaluate_claims
from costbench.reports.frame import frame_of
from costbench.reports.scores import applications_of
from costbench_schedules.experiments.gpu_tuning import search_gpus
from costbench_schedules.metrics import GpuFacts
from costbench_schedules.reports.autotvm2018.results import ScheduleResults
from costbench_schedules.reports.gpus.results import GpuResults, flat_gpus, load_gpus
from costbench_schedules.reports.gpus.section import (
    gpus_section,
    ratios_table,
    strategies_table,
    trials_table,
)
from costbench_schedules.reports.page import schedule_claims
from costbench_schedules.reports.table_claims import rows_of_tables
from tests.schedules.experiments.made_up_tuning_tables import OPTIMA, SECTION, write_tuning_tables
from tests.schedules.workspaces import workspace_in
from tests.sentences import numbers

TRIALS = {"kernel-tuner-a": 100.0, "kernel-tuner-b": 80.0, "random": 400.0, "gbt-rank": 40.0}
GPUS = ("A", "B", "C", "D")


def row(device: str, model: str, metric: str, value: float, seed: int = 0) -> MetricRow:
    where = ("schedule", "gpu", device, model, "main", seed, "blur", f"blur-{device}", "all")
    return MetricRow(*where, metric, value, "p", "d", "r")


def results() -> GpuResults:
    """Four tables, one of development; on each, trials of all strategies grow by a tenth with the repeat."""
    rows, tables = [], []
    for number, device in enumerate(GPUS):
        tables.append(GpuFacts("blur", device, 900, 9, 1000.0, 400.0, 200, development=not number))
        for model, trials in TRIALS.items():
            for seed in range(4):
                metrics = {f"trials_to_{end}": trials * (1.0 + 0.1 * seed) for end in ("95", "99")}
                metrics |= {"reached_95": 1.0, "reached_99": float(seed < 2), "auc": 0.5}
                metrics |= {"best_at_100": 0.9 if model == "gbt-rank" else 0.4, "best_at_200": 0.45}
                rows += [row(device, model, metric, value, seed) for metric, value in metrics.items()]
    curves = pd.DataFrame({"arm": [*TRIALS]})
    return GpuResults(tuple(rows), curves, tuple(tables))


def test_the_reference_is_the_best_of_kernel_tuners() -> None:
    assert results().reference == "kernel-tuner-b"
    rows = tuple(row for row in results().rows if not row.model.startswith("kernel-tuner"))
    without = replace(results(), rows=rows)
    assert without.reference == "random"


def test_without_kernel_tuner_and_random_search_the_best_is_the_reference() -> None:
    kept = tuple(row for row in results().rows if row.model in ("gbt-rank", "kernel-tuner-a"))
    rows = tuple(replace(row, model="genetic") if row.model != "gbt-rank" else row for row in kept)
    without = replace(results(), rows=rows, curves=pd.DataFrame({"arm": ["gbt-rank", "genetic"]}))
    assert without.reference == "gbt-rank"
    assert flat_gpus(without)["gpu/ratios/unseen/genetic/trials_to_95"] == pytest.approx(2.5)
    assert [column.key for column in ratios_table(without).columns[3:]] == ["genetic"]


def test_expected_trials_count_repeats_that_never_got_there() -> None:
    """1 + 1.1 + 1.2 + 1.3 times 40 trials are 184: of four successes 46 each, of two 92."""
    table = trials_table(results())
    assert [column.key for column in table.columns[4:]] == [
        *("drawn_at_random", "kernel-tuner-b", "gbt-rank", "random")
    ]
    trials = {line[:2]: line[2:] for line in table.rows}
    shown = ("kernel-tuner-b", "gbt-rank", "random")
    assert trials["blur", "A"] == (900, 9, 400.0, *(pytest.approx(1.15 * TRIALS[name]) for name in shown))
    assert results().trials("99")["gbt-rank"].to_list() == pytest.approx([92.0] * 4)


def test_ratios_have_intervals_and_development_is_marked() -> None:
    ratios = ratios_table(results())
    assert [column.key for column in ratios.columns[3:]] == ["gbt-rank", "random"]
    assert [line[2] for line in ratios.rows] == ["yes", "", "", ""]
    # Repeats are drawn together, so that a common factor is no uncertainty.
    assert {line[3] for line in ratios.rows} == {"0.50 [0.50, 0.50]"}
    overall = {line[0]: line for line in strategies_table(results()).rows}
    assert overall["gbt-rank"][1:6] == (4, 4, pytest.approx(46.0), pytest.approx(92.0), 0.5)
    assert overall["gbt-rank"][6] == overall["gbt-rank"][8] == "0.50 [0.50, 0.50]"


def test_repeats_that_both_have_are_compared() -> None:
    """The reference has repeats 0 and 1 alone."""
    rows = (row for row in results().rows if row.model != "kernel-tuner-b" or row.seed < 2)
    fewer = replace(results(), rows=tuple(row for row in rows if row.model != "kernel-tuner-a"))
    ratios = fewer.ratios("gbt-rank")
    assert {key: ratio.value for key, ratio in ratios.items()} == {("blur", gpu): 0.5 for gpu in GPUS}
    assert {row.seed for row in rows_of_tables(ScheduleResults(), fewer)} == {0, 1}


def test_ratios_are_headline_numbers() -> None:
    flat = flat_gpus(results())
    assert flat["gpu/blur/A/development"] == 1.0
    assert flat["gpu/blur/B/development"] == 0.0
    for tables in ("unseen", "all"):
        for end in ("", "_low", "_high"):
            assert flat[f"gpu/ratios/{tables}/gbt-rank/trials_to_95{end}"] == pytest.approx(0.5)


def test_section_of_a_stage(tmp_path: Path) -> None:
    write_tuning_tables(tmp_path / "data" / "gpu_tuning")
    search_gpus(SECTION, workspace_in(tmp_path), tmp_path / "gpus")
    section = gpus_section(load_gpus(tmp_path / "gpus"), tmp_path / "figures")
    assert section is not None
    # Tables, kernels, GPUs and configurations.
    assert {4, 2, 3, 864} <= set(numbers(section.paragraphs[0]))
    assert [figure.path.name for figure in section.figures] == ["gpu_searches.svg", "gpu_transfer.svg"]
    assert all(figure.path.is_file() for figure in section.figures)
    assert {table.name for table in section.tables} == {"gpu_strategies", "gpu_ratios", "gpu_trials"}


def test_section_of_development_alone_and_without_random_search(tmp_path: Path) -> None:
    write_tuning_tables(tmp_path / "data" / "gpu_tuning")
    names = tuple("-".join(table) for table in OPTIMA)
    section = replace(SECTION, strategies=("genetic", "gbt-rank"), development=names)
    search_gpus(section, workspace_in(tmp_path), tmp_path / "gpus")
    searched = load_gpus(tmp_path / "gpus")
    assert gpus_section(searched, tmp_path / "figures") is not None
    assert {line[6] for line in strategies_table(searched).rows} == {None}
    assert {key.split("/")[2] for key in flat_gpus(searched) if key.startswith("gpu/ratios/")} == {"all"}


def test_without_searches_there_is_no_section(tmp_path: Path) -> None:
    assert gpus_section(load_gpus(tmp_path), tmp_path) is None


def test_claims_rest_on_processors_and_gpus_together() -> None:
    """Three workloads of 30% against 20% of the best speed, and four GPUs of 90% against 40%."""
    speeds = {"gbt-rank": 30.0, "random": 20.0}
    where = ("schedule", "recorded", "native")
    of_cpu = [
        MetricRow(*where, model, "main", seed, "conv2d", name, "all", metric, value, "p", "d", "r")
        for name in ("C1", "C2", "C3")
        for seed in range(2)
        for model, metric, value in (
            ("best", "gflops_best", 100.0),
            *((model, "gflops_100", speed) for model, speed in speeds.items()),
        )
    ]
    rows = rows_of_tables(ScheduleResults(rows=tuple(of_cpu)), results())
    frame = frame_of(rows)
    [claim] = [claim for claim in schedule_claims() if claim.id == "autotvm2018.model_vs_random_search"]
    [finding] = evaluate_claims((claim,), frame, 0, 200)
    assert finding.n == 7
    assert finding.effect == pytest.approx((1.5**3 * 2.25**4) ** (1 / 7))
    # Random search with twice the measurements has after 100 trials what it has after 200.
    twice = frame[(frame["model"] == "random-x2") & (frame["metric"] == "speed_100")]
    assert twice["value"].to_list() == pytest.approx([45.0] * 8)
    assert (finding.low or 0.0) < 1.89 < (finding.high or 0.0)


def test_claims_about_one_operator_rest_on_all_processors() -> None:
    """A convolution takes 20 and 10 trials, after records of others 10 and 2: 2 and 5 times fewer."""
    trials = {"native": (20.0, 10.0), "xeon-native": (10.0, 2.0), "generic": (90.0, 1.0)}
    of_cpu = [
        MetricRow(*where, model, "main", 0, "conv2d", "C7", kernels, "trials_to_95", value, "p", "d", "r")
        for where in [("schedule", "recorded", target) for target in trials]
        for model, value in zip(("gbt-rank", "transfer-relation"), trials[where[2]], strict=True)
        for kernels in ("all", "conv2d:all")
    ]
    frame = frame_of(rows_of_tables(ScheduleResults(rows=tuple(of_cpu)), results()))
    [claim] = [claim for claim in schedule_claims() if claim.id == "autotvm2018.transfer_speedup"]
    [finding] = evaluate_claims((claim,), frame, 0, 200)
    assert finding.n == 2
    assert finding.effect == pytest.approx(10.0**0.5)
    # The workload, of which there are two tables, is what whole applications are drawn of.
    assert {applications_of(frame)[f"conv2d {name}"] for name in ("C7", "C7, xeon-native")} == {"C7"}
    of_others = frame[(frame["split"] == "targets") & (frame["program"].str.startswith("C7"))]
    assert {*of_others["program"]} == {"C7, xeon-native", "C7, generic"}
