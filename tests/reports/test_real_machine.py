"""Results on a machine that exists: its findings, which of them carry over, and the report without any."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.artifacts import write_json, write_text
from costbench.datasets.machine_searches import HARDWARE, XLA, write_searches
from costbench.experiments.identity import StageIdentity, write_identity
from costbench.experiments.packing import pack
from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import load_workspace
from costbench.metrics.rows import PROGRAMS, MetricRow, write_rows
from costbench.reports.claims.claim import load_claims
from costbench.reports.claims.evaluation import DOES_NOT_HOLD, HOLDS, UNDECIDED
from costbench.reports.frame import frame_of
from costbench.reports.headline import HeadlineParams, load_headline
from costbench.reports.inputs import ReportInputs, ReportParams, find_on_machine, load_report_data
from costbench.reports.machine_searches import search_rows
from costbench.reports.report import write_report
from costbench.reports.sections.real_machine import carried_findings, machine_pointer, transfer_points
from tests.reports.conftest import make_row

CHIP = "toy_cpu"
EXPERIMENT = "real-fusion"
COLUMNS = {"fusion": "validation/mape"}
TESTED = tuple((f"A{index // 2}", f"p{index}") for index in range(12))
SUM_OF_KERNELS = "lpm2021.sum_of_kernels"
NO_ROWS = frame_of(())
TREES_AHEAD = "strongest.fusion_trees_vs_learned"


def _rows(chip: str, errors: dict[str, float], seeds: int = 3, variant: str = "main") -> list[MetricRow]:
    """Errors of models, each program's off by up to 10%."""
    rows = []
    for index, (application, program) in enumerate(TESTED):
        where = {"task": "fusion", "split": "folds", "chip": chip, "variant": variant}
        where |= {"application": application, "program": program}
        for model, error in errors.items():
            for seed in range(seeds if model in ("learned", "hybrid", "lpm2021") else 1):
                value = error * (1.0 + 0.02 * (index % 5) + 0.01 * seed)
                named = {**where, "model": model, "seed": seed}
                rows += [
                    make_row(**named, metric="mape_ge5us", value=value),
                    make_row(**named, metric="mape_lt5us", value=2.0 * value),
                    make_row(**named, metric="mape", value=1.5 * value),
                    make_row(**named, metric="kendall_tau_ge5us", value=1.0 - value / 100.0),
                    make_row(**named, metric="kendall_tau", value=0.9 - value / 100.0),
                ]
    return rows


def _programs(ratio: float) -> list[MetricRow]:
    """Sums of kernels that are `ratio` of the programs' runtimes."""
    return [
        make_row(
            task="fusion", split="folds", chip=CHIP, application=application, program=program,
            kernels=PROGRAMS, model="sum_of_kernels", metric=metric, value=value,
        )
        for index, (application, program) in enumerate(TESTED)
        for metric, value in (
            ("sum_to_measured", ratio + 0.001 * index), ("mape", 3.0), ("kendall_tau", 0.8),
        )
    ]  # fmt: skip


@pytest.fixture
def real(tmp_path: Path) -> HeadlineParams:
    """An archive in which trees are behind the network, unlike on the simulated chip."""
    write_text(
        tmp_path / "params.yaml",
        "run: {name: toy, root: ., params: params.yaml, out: out, reports: reports}\n"
        f"experiments:\n  {EXPERIMENT}: {{task: fusion}}\n",
    )
    workspace = load_workspace(load_params(tmp_path / "params.yaml"))
    rows = _rows(CHIP, {"learned": 10.0, "trees": 30.0, "analytical": 50.0, "measured_again": 2.0})
    rows += _programs(1.01)
    for start, errors in {"nothing": (60.0, 40.0), "simulated": (30.0, 25.0)}.items():
        for kernels, error in zip((100, 1000), errors, strict=True):
            rows += _rows(CHIP, {"learned": error}, variant=f"transfer-{start}-{kernels}")
    write_rows(workspace.out / "evaluate" / EXPERIMENT / "rows.jsonl", rows)
    for fold in (1, 2):
        for variant, steps, value in (
            ("main", 400, 10.0),
            ("curve-learned-200", 200, 11.0),
            ("curve-learned-400", 400, 10.0),
        ):
            cell = workspace.out / "train" / EXPERIMENT / f"fusion-fold{fold}-{CHIP}-{variant}-s0"
            facts = {"steps": steps, "kernels": 8, "configs": 1, "validations": 1, "key": "k"}
            write_json(cell / "done.json", facts)
            write_text(cell / "history.csv", f"epoch,step,validation/mape\n0,{steps},{value}\n")
    for stage in ("train", "evaluate"):
        write_identity(workspace.out / stage / EXPERIMENT, StageIdentity("params", "data", "code"))
    pack(tmp_path / "archive", workspace)
    return HeadlineParams(str(tmp_path / "archive"), (EXPERIMENT,))


@pytest.fixture
def inputs(real: HeadlineParams, tmp_path: Path) -> ReportInputs:
    simulated = _rows("tpu_v3", {"learned": 20.0, "trees": 10.0, "analytical": 40.0})
    write_rows(tmp_path / "own" / "rows.jsonl", simulated)
    return ReportInputs((tmp_path / "own" / "rows.jsonl",), params=ReportParams(0, COLUMNS, "", real=real))


def test_claims_are_decided_again_on_the_machine(real: HeadlineParams) -> None:
    loaded = load_headline(real, COLUMNS, load_claims())
    by_claim = {
        finding.claim.restates: finding for finding in find_on_machine(loaded, NO_ROWS, load_claims(), 0)
    }
    assert {finding.claim.set for finding in by_claim.values()} == {"real"}
    assert {side.chip for finding in by_claim.values() for side in finding.claim.sides} == {CHIP}
    # Sums within 2.1% of the programs are well approximated.
    assert by_claim[SUM_OF_KERNELS].verdict == HOLDS
    assert by_claim[SUM_OF_KERNELS].effect == pytest.approx(1.55, abs=0.1)
    assert by_claim[TREES_AHEAD].verdict == DOES_NOT_HOLD
    assert by_claim["lpm2020.fusion_vs_analytical"].verdict == HOLDS
    assert find_on_machine(None, NO_ROWS, load_claims(), 0) == ()


def test_findings_stand_beside_those_on_the_simulated_chip(inputs: ReportInputs, tmp_path: Path) -> None:
    data = load_report_data(inputs, tmp_path / "figures")
    carried = {row.claim: row for row in carried_findings(data.findings).itertuples()}
    trees = carried[TREES_AHEAD]
    # Trees lead there, and trail here.
    assert (trees.simulated, trees.real, trees.carries_over) == (HOLDS, DOES_NOT_HOLD, "no")
    assert f"(tpu_v3: {HOLDS}; {CHIP}: {DOES_NOT_HOLD})" in machine_pointer(data)[0].answer
    assert carried["lpm2020.fusion_vs_analytical"].carries_over == "yes"
    # The paper says the opposite of unlike programs; no other claim about these models stands in for it.
    unlike = carried["lpm2020.fusion_manual_split"]
    assert (unlike.simulated, unlike.real, unlike.carries_over) == (DOES_NOT_HOLD, DOES_NOT_HOLD, "yes")
    assert carried[SUM_OF_KERNELS].carries_over == "no counterpart"
    findings = [
        replace(finding, verdict=UNDECIDED) if finding.claim.id == TREES_AHEAD else finding
        for finding in data.findings
    ]
    again = {row.claim: row.carries_over for row in carried_findings(findings).itertuples()}
    assert again[TREES_AHEAD] == "open"


def test_searches_with_a_model_are_held_against_the_machine_alone(tmp_path: Path) -> None:
    """Gains of 1.2 on the estimate first and of 1.1 alone: 9.1% ahead; from random starts nothing was run."""
    rows = [
        {
            "program": program, "application": application, "start": XLA, "arm": arm, "budget_s": 60.0,
            "spent_s": 59.0, "measured": 9, "predicted": 0, "own_ns": 1000, "chosen_ns": 900,
            "gain": gain * (1.0 + 0.002 * index), "low": 1.0, "high": 1.3, "is_own": False, "difference": 0.0,
        }
        for index, (application, program) in enumerate(TESTED)
        for arm, gain in ((HARDWARE, 1.1), (f"analytical and {HARDWARE}", 1.2))
    ]  # fmt: skip
    write_searches(tmp_path, rows, {})
    findings = find_on_machine(None, search_rows(str(tmp_path)), load_claims(), 0)
    by_claim = {finding.claim.restates: finding for finding in findings}
    assert set(by_claim) == {"lpm2021.fusion_search_model_plus_hw", "lpm2020.search_max_gain"}
    ahead = by_claim["lpm2021.fusion_search_model_plus_hw"]
    assert ahead.verdict == HOLDS
    assert ahead.effect == pytest.approx(100 * (1.2 / 1.1 - 1.0), abs=0.01)
    assert [side.model for side in ahead.claim.left] == [f"analytical and {HARDWARE}"]


def test_recorded_searches_say_no_steps_of_their_network(real: HeadlineParams) -> None:
    """They had networks of their own; those of the packed results may have been trained for longer since."""
    loaded = load_headline(real, COLUMNS, load_claims())
    gains = {"model and hardware": 1.2, "hardware": 1.1}
    rows = [
        make_row(task="fusion", split="folds", chip=CHIP, model=model, variant="xla", metric="speedup",
                 application=application, program=program, value=gain)
        for model, gain in gains.items()
        for application, program in TESTED
    ]  # fmt: skip
    findings = find_on_machine(loaded, frame_of(rows), load_claims(), 0)
    by_claim = {finding.claim.restates: finding for finding in findings}
    assert by_claim["lpm2021.fusion_search_model_plus_hw"].steps == {}
    assert by_claim[TREES_AHEAD].steps


def test_points_of_transfer(real: HeadlineParams) -> None:
    loaded = load_headline(real, COLUMNS, load_claims())
    assert loaded is not None
    points = transfer_points(loaded)
    assert [*points[["start", "kernels", "seeds"]].itertuples(index=False, name=None)] == [
        ("nothing", 100, 3), ("nothing", 1000, 3), ("simulated", 100, 3), ("simulated", 1000, 3),
    ]  # fmt: skip
    assert points["error"].iloc[0] / points["error"].iloc[2] == pytest.approx(2.0)


def test_the_first_page_and_the_summary_have_both_machines(inputs: ReportInputs, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    write_report(inputs, folder)
    summary = json.loads((folder / "summary.json").read_text())
    key = f"fusion/folds/{CHIP}/learned"
    assert summary[f"{key}/mape_ge5us_mean"] == pytest.approx(10.5, rel=0.02)
    short = {"mape": "mape_ge5us_mean", "mape_short": "mape_lt5us_mean", "tau": "tau_mean"}
    assert all(summary[f"{key}/{name}"] == summary[f"{key}/{full}"] for name, full in short.items())
    assert summary[f"fusion/folds/{CHIP}/sum_of_kernels/programs_mape_mean"] == pytest.approx(3.0)
    assert f"{key}@transfer-nothing-100/mape_ge5us_mean" in summary
    table = (folder / "tables" / "machines_compared.csv").read_text()
    assert table.count("\n") > 4
    assert "machines_compared" in (folder / "index.html").read_text()
    assert (folder / "pages" / "real_machine.html").is_file()
    claims = json.loads((folder / "claims.json").read_text())
    assert any(claim["set"] == "real" and claim["claim"] == SUM_OF_KERNELS for claim in claims)


def test_without_results_one_line_says_so(inputs: ReportInputs, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    nowhere = HeadlineParams(str(tmp_path / "none"), (EXPERIMENT,))
    write_report(replace(inputs, params=replace(inputs.params, real=nowhere)), folder)
    assert "make xla-cpu" in (folder / "index.html").read_text()
    assert not (folder / "pages" / "real_machine.html").exists()
    assert not any(CHIP in key for key in json.loads((folder / "summary.json").read_text()))
