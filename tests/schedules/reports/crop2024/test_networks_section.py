"""The section on networks, from rows as the stage `schedules` writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.artifacts import write_json
from costbench.errors import DataError
from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.claims.claim import Side
from costbench.reports.claims.evaluation import (
    BY_CONSTRUCTION,
    DOES_NOT_HOLD,
    HOLDS,
    NOT_EVALUATED,
    NOT_TRAINED_ENOUGH,
    evaluate_claims,
)
from costbench.reports.frame import frame_of
from costbench.reports.training_guard import TrainingGuard
from costbench_schedules.reports.crop2024.figures import tile_curves
from costbench_schedules.reports.crop2024.results import load_networks, not_trained_enough
from costbench_schedules.reports.crop2024.section import (
    flat_networks,
    networks_section,
    parts_table,
    score_table,
)
from costbench_schedules.reports.page import schedule_claims
from tests.sentences import numbers

OPERATORS = tuple(f"operator {n}" for n in range(8))
SCORES = {("crop", "main"): 0.8, ("mlp", "all"): 0.9, ("gbt", "all"): 0.7}
SCORES |= {(model, "0"): 0.5 for model in ("mlp", "gbt")}


def row(split: str, program: str, model: str, variant: str, metric: str, value: float) -> MetricRow:
    return MetricRow(
        *("schedule", split, "native", model, variant, 0, "a", program, "all", metric, value, "p", "d", "r")
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = []
    for (model, variant), score in SCORES.items():
        records = 0.0 if variant != "all" else 2000.0
        for split, programs in (("networks", ("BERT-base", "ResNet-50")), ("network-operators", OPERATORS)):
            for index, program in enumerate(programs):
                by_name = {"top_1_score": score + 0.001 * index, "top_5_score": 0.97, "records": records}
                by_name |= {"kendall_tau": 0.6, "operators": 4.0}
                rows += [row(split, program, model, variant, name, value) for name, value in by_name.items()]
    for operator in OPERATORS:
        rows.append(row("network-operators", operator, "crop", "main", "records_needed", 0.0))
        rows += [
            row("network-operators", operator, model, "main", "records_needed", 500.0)
            for model in ("mlp", "gbt")
        ]
        rows += [row("tiles", operator, model, "main", "chosen_us", 3.0) for model in ("crop", "measured")]
        rows.append(row("tiles", operator, "measured", "main", "measured_us:8", 3.0))
        rows.append(row("tiles", operator, "crop", "main", "predicted_us:8", 2.0))
    write_rows(tmp_path / "rows.jsonl", rows)
    write_json(tmp_path / "card.json", {"processor": "a processor", "analysed": 4000, "operators": 83})
    return tmp_path


def test_without_recorded_programs_there_is_no_section(tmp_path: Path) -> None:
    results = load_networks(tmp_path)
    assert networks_section(results, tmp_path) is None
    assert flat_networks(results) == {}


def test_section_has_both_tables_and_figures(folder: Path) -> None:
    section = networks_section(load_networks(folder), folder / "figures")
    assert section is not None
    assert {4000, 83} <= set(numbers(section.paragraphs[0]))
    assert [figure.path.name for figure in section.figures] == [
        "crop_data_demand.svg",
        "crop2024_figure6.svg",
    ]
    assert all(figure.path.is_file() for figure in section.figures)


def test_scores_stand_beside_those_of_the_paper(folder: Path) -> None:
    results = load_networks(folder)
    lines = {line[:3]: line[3:] for line in score_table(results).rows}
    assert lines["Crop", "here", 1] == (pytest.approx(0.801), 0.8, pytest.approx(0.8005), 0.0)
    assert lines["Crop", "crop2024", 1] == (0.8132, 0.7381, 0.7545, None)
    assert lines["trees on Crop", "here", 1] == (None, None, None, None)
    parts = {line[0]: line[1:] for line in parts_table(results).rows}
    assert parts["all of it"] == (pytest.approx(0.8005), 0.97, 0.6, None, None, None)
    assert flat_networks(results)["crop/mlp/all/top_1_score"] == pytest.approx(0.9005)
    curves = tile_curves(results)
    first = curves[curves["program"] == "operator 0"].set_index("kind")
    assert first["tile"].to_dict() == {"measured": 8, "predicted": 8}
    assert first["value"].to_dict() == {"measured": 3.0, "predicted": 2.0}


def test_scores_say_of_how_many_seeds_they_are_means(folder: Path) -> None:
    rows = [*load_networks(folder).rows]
    rows += [replace(one, seed=seed) for one in rows if one.model == "mlp" for seed in (1, 2)]
    write_rows(folder / "rows.jsonl", rows)
    assert 3 in numbers(" ".join(score_table(load_networks(folder)).notes))


def test_parts_are_compared_by_operator(folder: Path) -> None:
    rows = [*load_networks(folder).rows]
    for index, operator in enumerate(OPERATORS):
        lost = 0.1 if index % 2 else 0.3
        rows.append(row("network-operators", operator, "throughput", "main", "kendall_tau", 0.6 - lost))
    write_rows(folder / "rows.jsonl", rows)
    parts = {line[0]: line[-2:] for line in parts_table(load_networks(folder)).rows}
    top, tau = parts["busiest resource of each block, no dependences"]
    assert top is None
    assert isinstance(tau, str)
    difference, low, high = (float(word.strip("[],")) for word in tau.split())
    assert difference == -0.2
    assert -0.3 <= low < difference < high <= -0.1


def test_a_network_that_cannot_order_its_own_records_decides_nothing(folder: Path) -> None:
    rows = [*load_networks(folder).rows]
    for model, fitted in (("mlp", 0.5), ("gbt", 0.9)):
        for network in ("BERT-base", "ResNet-50"):
            rows.append(row("networks", network, model, "all", "fitted_tau", fitted))
    write_rows(folder / "rows.jsonl", rows)
    results = load_networks(folder)
    result = not_trained_enough(results)
    # Of the analytical model tau is .6 on programs that it has not seen.
    key = ("schedule", Side("mlp", "all", "network-operators", "native"))
    assert result == {key: "tau 0.50 on its own training records"}
    claims = tuple(claim for claim in schedule_claims() if claim.paper == "crop2024")
    verdicts = {
        one.claim.id: one.verdict
        for one in evaluate_claims(claims, frame_of(results.rows), 0, guard=TrainingGuard(result))
    }
    assert verdicts["crop2024.top1_below_mlp"] == NOT_TRAINED_ENOUGH
    assert verdicts["crop2024.top1_vs_xgboost"] == DOES_NOT_HOLD


def test_claims_are_decided_on_operators(folder: Path) -> None:
    claims = tuple(claim for claim in schedule_claims() if claim.paper == "crop2024")
    by_name = {
        one.claim.id: one.verdict for one in evaluate_claims(claims, frame_of(load_networks(folder).rows), 0)
    }
    assert by_name["crop2024.gap_to_tlp"] == NOT_EVALUATED
    assert by_name["crop2024.top1_below_mlp"] == HOLDS
    assert by_name["crop2024.top1_vs_xgboost"] == by_name["crop2024.gap_to_naive_learned"] == DOES_NOT_HOLD
    assert by_name["crop2024.learned_models_do_not_port"] == HOLDS
    assert by_name["crop2024.finds_best_tiling"] == HOLDS
    assert by_name["crop2024.no_target_data"] == BY_CONSTRUCTION
    # The perceptron leads the trees, but these do not lead the analytical model.
    assert by_name["crop2024.top1_ranking_of_models"] == DOES_NOT_HOLD


def test_a_card_that_is_none_is_named(folder: Path) -> None:
    write_json(folder / "card.json", [])
    with pytest.raises(DataError, match=r"card\.json"):
        load_networks(folder)
