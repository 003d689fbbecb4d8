"""What a visitor reads first follows from the results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.reports.claims.claim import Side, load_claims
from costbench.reports.claims.contrasts import contrasts
from costbench.reports.claims.evaluation import DECIDED, HOLDS, NOT_EVALUATED, Finding, evaluate_claims
from costbench.reports.dataset_files import read_cards
from costbench.reports.inputs import ReportData, ReportInputs, ReportParams
from costbench.reports.sections.overview import (
    conclusions,
    loss_pointers,
    missing_section,
    overview_section,
    page_lead,
    primary_cell,
)
from costbench.reports.training_guard import TrainingGuard
from costbench.reports.training_runs import Budget
from tests.reports.conftest import (
    fusion_rows,
    loss_rows,
    report_data,
    results_of_rows,
    rows_of,
    searches_of_rows,
    variant_rows,
)
from tests.reports.evidence_files import write_evidence
from tests.reports.search_rows import fusion_search_rows, tile_rows
from tests.reports.test_baseline_comparison import model_rows
from tests.sentences import numbers

CLAIM = load_claims()[0]
FINDINGS = (Finding(CLAIM, HOLDS, 1.0, 0.5, 1.5, n=8), Finding(CLAIM, NOT_EVALUATED, missing=("x",)))


def test_answers_lead_to_their_sections(tmp_path: Path) -> None:
    budget = Budget("main-tile", "tile", "random", "tpu_v2", "main", 0, 100, 8, 32, 4)
    data = report_data(
        tmp_path,
        rows_of(),
        searches=searches_of_rows(tile_rows(), fusion_search_rows()),
        cards=read_cards(write_evidence(tmp_path).card),
        budgets=(budget, replace(budget, variant="mse", steps=50)),
        findings=FINDINGS,
    )
    answers = {pointer.anchor: numbers(pointer.answer) for pointer in overview_section(data).more}
    assert list(answers) == ["tile-search", "fusion-search", "claims", "data", "training", "provenance"]
    # Ten candidates: 50 times fewer seconds, 5% slower.
    assert answers["tile-search"][:3] == [10, 50, 5.0]
    # (1.2 x 1.2 x 1.1)^(1/3) and (1.3 x 1.5 x 1.1)^(1/3).
    assert {16.6, 29.0} <= set(answers["fusion-search"])
    # A claim counts once: it holds.
    assert answers["claims"] == [1]
    # Two models; 25,600 samples in 100 steps.
    assert answers["training"] == [2, 25_600, 100]
    # Programs, samples, seconds, data sets.
    assert answers["data"] == [3, 600, 2, 1]


def test_what_was_not_run_is_not_asked(tmp_path: Path) -> None:
    section = overview_section(report_data(tmp_path, rows_of(), findings=FINDINGS))
    assert [pointer.anchor for pointer in section.more] == ["claims", "provenance"]
    assert section.figures == ()
    base = [replace(row, model="lpm2021") for row in rows_of() if row.model == "learned"]
    variant = variant_rows("lpm2021-plus-loops", "tile", [3.0, 2.0, 1.0])
    measured = overview_section(report_data(tmp_path, [*rows_of(), *base, *variant]))
    assert measured.more[0].anchor == "differences"


def test_a_preview_leads_to_the_page_whose_verdicts_count(tmp_path: Path) -> None:
    data = report_data(tmp_path, rows_of())
    evidence = ReportInputs((), params=ReportParams(0, {}, "evidence/index.html"))
    first = overview_section(replace(data, inputs=evidence)).pointers[0]
    assert (first.page, first.anchor) == ("evidence/index.html", "overview")
    assert all(pointer.anchor and not pointer.page for pointer in overview_section(data).pointers)


def test_a_demonstration_draws_no_conclusions(tmp_path: Path) -> None:
    data = report_data(tmp_path, [*model_rows("trees", [20.0] * 6), *model_rows("learned", [30.0] * 6)])
    demo = replace(data, inputs=ReportInputs((), params=ReportParams(0, {}, "", demo=True)))
    assert overview_section(data).pointers
    section = overview_section(demo)
    assert (section.pointers, section.figures) == ((), ())
    # The number of programs alone.
    assert numbers(page_lead(demo)) == [6]


def test_the_first_screen_says_what_is_simulated_and_how_ours_differs(tmp_path: Path) -> None:
    section = overview_section(report_data(tmp_path, rows_of()))
    simulated, differences = section.paragraphs
    # The chip that there are results on, and the task.
    assert "tpu_v2" in simulated
    assert "tpu_v3 was fitted" not in simulated
    assert "Tile sizes:" in differences
    assert "Fusion" not in differences
    # The results are those of one task, and so is the only conclusion.
    assert [pointer.anchor for pointer in section.pointers] == ["baselines_tile_random_tpu_v2"]


def test_of_layouts_the_first_screen_says_what_there_is_to_gain(tmp_path: Path) -> None:
    data = report_data(tmp_path, loss_rows())
    (pointer,) = loss_pointers(data.cells)
    assert pointer.anchor == "baselines_layout_folds_tpu_v2"
    told = numbers(pointer.answer.replace("%", " "))
    # Arithmetic mean and median of the headroom; 67% gain more than 1%, 33% more than 10%.
    assert told[:6] == [14.0, 2.0, 67, 1, 33, 10]
    # After "above 5%": learned, the default, chance; then the best of ten of each.
    assert told[6:16] == [5, 8.0, 4.0, 33, 14.0, 2.0, 33, 8.0, 8.0, 100]
    assert told[16:19] == [4.0, 7.0, 4.0]
    # The abstract has the arithmetic mean of the network.
    assert 8.0 in numbers(page_lead(data).replace("%", " "))
    assert loss_pointers(report_data(tmp_path, rows_of()).cells) == ()


@pytest.mark.parametrize(
    ("errors", "verdict", "expected"),
    [
        ([10.0] * 6, "is better", [10.0, 20.0, 10.0, 95, 10.0, 10.0, 100, 6, 5]),
        ([30.0] * 6, "is worse", [30.0, 20.0, 10.0, 95, 10.0, 10.0, 0, 6, 5]),
        ([20.0] * 6, "Undecided", [20.0, 20.0, 0.0, 95, 0.0, 0.0, 50, 6, 5]),
    ],
)
def test_conclusions_follow_from_intervals(
    tmp_path: Path, errors: list[float], verdict: str, expected: list[float]
) -> None:
    """Error, the baseline's, difference, level, interval, percent of programs won, programs, kernels."""
    data = report_data(tmp_path, [*model_rows("trees", [20.0] * 6), *model_rows("learned", errors)])
    (conclusion,) = conclusions(data.front)
    assert verdict in conclusion.question
    assert "boosted trees" in conclusion.question
    assert numbers(conclusion.answer.replace("%", " ")) == expected
    assert conclusion.anchor == "baselines_fusion_random_tpu_v3"


def test_folds_come_before_the_random_split_and_the_measured_chip_before_the_other() -> None:
    rows = [
        *model_rows("learned", [1.0] * 6, chip="tpu_v2"),
        *model_rows("learned", [1.0] * 6, chip="tpu_v3"),
        *model_rows("learned", [1.0] * 6, chip="tpu_v2", split="manual"),
    ]
    cells = results_of_rows(rows).cells
    chosen = primary_cell(cells, "fusion", "learned")
    assert chosen is not None
    assert chosen.name == "fusion_random_tpu_v3"
    folds = model_rows("learned", [1.0] * 6, chip="tpu_v2", split="folds")
    chosen = primary_cell(results_of_rows(rows, folds).cells, "fusion", "learned")
    assert chosen is not None
    assert chosen.name == "fusion_folds_tpu_v2"
    assert primary_cell(cells, "fusion", "hybrid") is None


def _data_of_folds(folder: Path) -> ReportData:
    """Twelve programs on folds: the hybrid errs by 10%, the network alone by 25, trees by 20 and 8."""
    errors = {"hybrid": 10.0, "learned": 25.0, "trees": 20.0, "trees_analytical": 8.0, "analytical": 19.0}
    rows = [
        row
        for model, error in errors.items()
        for row in model_rows(model, [error * factor for factor in (0.5, 1.0, 2.0) * 4], split="folds")
    ]
    data = report_data(folder, rows)
    side = Side("hybrid", split="folds", chip="tpu_v3")
    guard = TrainingGuard({}, {}, {("fusion", side): 500, ("fusion", replace(side, model="learned")): 500})
    findings = evaluate_claims(
        contrasts(load_claims(), data.results.scores), data.frame, 0, resamples=100, guard=guard
    )
    return replace(data, guard=guard, findings=findings)


def test_a_conclusion_is_the_verdict_on_a_comparison_of_like_with_like(tmp_path: Path) -> None:
    data = _data_of_folds(tmp_path)
    network, hybrid = conclusions(data.front, data.printed_findings)
    assert (network.anchor, hybrid.anchor) == ("claims_strongest", "claims_strongest")
    # Trees without the estimate stand against the network without it, by 5 points; those with it by 2.
    assert numbers(network.answer.replace("%", " "))[0] == 5.0
    assert numbers(hybrid.answer.replace("%", " "))[0] == 2.0
    assert {12, 500} <= set(numbers(hybrid.answer.replace("%", " ")))


def test_programs_won_are_those_that_a_statement_is_about(tmp_path: Path) -> None:
    data = _data_of_folds(tmp_path)

    def of_collection(side: Side) -> Side:
        return replace(side, kernels="xla:random")

    moved = [
        replace(
            finding,
            claim=finding.claim.with_sides(of_collection),
            **{
                name: {of_collection(side): value for side, value in getattr(finding, name).items()}
                for name in ("seeds", "steps", "given")
            },
        )
        for finding in data.printed_findings
    ]
    answers = (conclusions(data.front, findings)[1].answer for findings in (data.printed_findings, moved))
    on_all, on_collection = (numbers(answer.replace("%", " ")) for answer in answers)
    # The share of all programs that the hybrid wins is none of a collection.
    assert len(on_all) == len(on_collection) + 1


def test_the_abstract_is_short_and_has_budgets_errors_and_what_is_open(tmp_path: Path) -> None:
    data = _data_of_folds(tmp_path)
    abstract = page_lead(data)
    assert len(abstract.split()) < 120
    found = numbers(abstract.replace("%", " "))
    assert {12, 500, 1, 8.0, 10.0, 19.0, 20.0, 25.0} <= set(found)
    # The least error comes first.
    assert found.index(8.0) < found.index(10.0) < found.index(25.0)
    decided = sum(finding.verdict in DECIDED for finding in data.findings)
    assert decided in found
    # The question, the one task, and what is open have a paragraph each.
    assert [25.0 in numbers(line.replace("%", " ")) for line in abstract.splitlines()] == [False, True, False]


def test_of_many_programs_the_figure_has_curves(tmp_path: Path) -> None:
    rows = [
        row
        for model in ("hybrid", "learned", "analytical")
        for row in model_rows(model, [float(i + 1) for i in range(30)], split="folds")
    ]
    (figure,) = overview_section(report_data(tmp_path, rows)).figures
    assert figure.path.name == "hybrid_folds_tpu_v3.svg"
    assert "30 programs" in figure.path.read_text()
    assert "p0" not in figure.path.read_text()


def test_without_baselines_there_is_no_conclusion(tmp_path: Path) -> None:
    data = report_data(tmp_path, model_rows("learned", [1.0] * 6))
    assert conclusions(data.front) == ()


def test_figures_of_the_hybrid_and_of_tuning(tmp_path: Path) -> None:
    rows = [*rows_of(), *fusion_rows(), *fusion_rows(chip="tpu_v3")]
    searches = searches_of_rows(tile_rows(), fusion_search_rows())
    data = report_data(tmp_path, rows, searches=searches)
    hybrid, tune = overview_section(data).figures
    # The tile task has no hybrid here; of two chips the measured one is shown.
    assert hybrid.path.name == "hybrid_random_tpu_v3.svg"
    assert "tpu_v3" in hybrid.caption
    assert "strongest baseline: analytical" in hybrid.path.read_text()
    text = tune.path.read_text()
    for label in ("learned 10", "exhaustive", "model, then hardware 1 min", "best known"):
        assert label in text


def test_tables_of_the_papers_without_results_are_named(tmp_path: Path) -> None:
    missing = missing_section(report_data(tmp_path, rows_of()))
    assert missing is not None
    assert len(missing.paragraphs) == 6
    rows = [*rows_of(), *rows_of("manual"), *fusion_rows(), *fusion_rows("manual")]
    for variant in ("mse", "gat-lstm", "lpm2020-lstm"):
        rows += variant_rows(variant, "tile", [1.0] * 3)
    assert missing_section(report_data(tmp_path, rows)) is None
