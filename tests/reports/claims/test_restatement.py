"""Claims about the analytical model are decided against the strongest baseline too, first of all on folds."""

from __future__ import annotations

import pytest

from costbench.metrics.rows import MetricRow
from costbench.reports.claims.claim import Side, load_claims
from costbench.reports.claims.evaluation import (
    DOES_NOT_HOLD,
    HOLDS,
    NOT_EVALUATED,
    Finding,
    evaluate_claims,
)
from costbench.reports.claims.restatement import move_to_folds, restate_against_strongest
from costbench.reports.frame import frame_of
from costbench.reports.scores import score_index
from tests.reports.conftest import make_row

CLAIMS = load_claims()
ID = "lpm2021.fusion_random_vs_analytical"


def _rows(model: str, error: float, split: str = "random", chip: str = "tpu_v2") -> list[MetricRow]:
    where = {"task": "fusion", "model": model, "split": split, "chip": chip, "metric": "mape_ge5us"}
    return [make_row(**where, application=f"a{i}", program=f"p{i}", value=error) for i in range(6)]


def _findings(*rows: list[MetricRow]) -> dict[str, Finding]:
    claims = (*CLAIMS, *restate_against_strongest(CLAIMS))
    found = evaluate_claims(claims, frame_of(row for several in rows for row in several), 0, resamples=10)
    return {finding.claim.id: finding for finding in found}


def test_every_claim_that_one_of_both_is_better_is_restated_twice() -> None:
    made = restate_against_strongest(CLAIMS)
    about = [
        claim.id
        for claim in CLAIMS
        if Side("analytical") in claim.right or Side("analytical", split="manual") in claim.right
    ]
    about.remove("lpm2020.no_model_good_everywhere")
    assert [claim.restates for claim in made] == [*about, *about]
    assert {claim.id for claim in made} == {f"{name}@{b}" for name in about for b in ("folds", "strongest")}
    # The LSTM of the paper's claim is no matter of this comparison.
    tau = next(claim for claim in made if claim.id == "lpm2020.fusion_tau@strongest")
    assert tau.right == (Side("strongest"),)
    folds = next(claim for claim in made if claim.id == "lpm2021.tile_manual_vs_analytical@folds")
    assert folds.left == (Side(split="folds", chip="tpu_v3"),)
    assert folds.direction == "right_better"


def test_a_lead_over_the_scaled_model_may_be_none_over_the_strongest() -> None:
    found = _findings(
        _rows("learned", 14.0),
        _rows("analytical", 32.0),
        _rows("analytical_linear", 12.0),
        _rows("trees", 13.0),
        _rows("learned", 10.0, "folds", "tpu_v3"),
        _rows("trees", 15.0, "folds", "tpu_v3"),
    )
    assert (found[ID].verdict, found[ID].effect) == (HOLDS, pytest.approx(18.0))
    strongest = found[f"{ID}@strongest"]
    assert (strongest.verdict, strongest.effect) == (DOES_NOT_HOLD, pytest.approx(-2.0))
    assert strongest.claim.right == (Side("analytical_linear"),)
    folds = found[f"{ID}@folds"]
    assert (folds.verdict, folds.effect) == (HOLDS, pytest.approx(5.0))
    assert folds.claim.right == (Side("trees", split="folds", chip="tpu_v3"),)


def test_without_rows_nothing_is_decided() -> None:
    found = _findings(_rows("learned", 14.0), _rows("analytical", 32.0))
    assert found[f"{ID}@folds"].verdict == NOT_EVALUATED
    assert found[f"{ID}@folds"].missing == (
        "fusion/folds/tpu_v3/learned/main/mape_ge5us",
        "fusion/folds/tpu_v3/strongest/main/mape_ge5us",
    )
    # With no other baseline the analytical model is the strongest.
    assert found[f"{ID}@strongest"].claim.right == (Side("analytical"),)


def test_claims_of_tpugraphs_are_repeated_on_folds_that_there_are() -> None:
    assert move_to_folds(CLAIMS, score_index(frame_of(_rows("learned", 1.0)))) == ()
    where = {"variant": "early-sage-listmle", "split": "folds", "chip": "tpu_v3", "metric": "kernel_top_1"}
    rows = [make_row(**where, program=f"p{i}", application=f"a{i}", value=1.0) for i in range(6)]
    made = move_to_folds(CLAIMS, score_index(frame_of(rows)))
    # Those that compare the early GraphSAGE, and nothing about layouts, searches or times.
    assert {claim.restates for claim in made} == {
        f"tpugraphs2023.{name}"
        for name in (
            "early_vs_late_sage_listmle",
            "listmle_vs_mse_early_sage",
            "sage_vs_gcn",
            "gnn_vs_mlp",
            "tile_error_falls_with_k",
            "tile_matches_lpm2021",
            "tile_training_unstable",
        )
    }
    assert {side.split for claim in made for side in claim.sides} == {"folds"}
    assert all(claim.id == f"{claim.restates}@folds" for claim in made)


def _network_rows(variant: str, value: float, split: str = "folds", chip: str = "tpu_v3") -> list[MetricRow]:
    where = {"task": "fusion", "variant": variant, "split": split, "chip": chip, "metric": "mape_ge5us"}
    return [make_row(**where, application=f"a{i}", program=f"p{i}", value=value) for i in range(6)]


def test_claims_about_two_networks_are_repeated_on_folds_where_both_were_tested() -> None:
    one = _network_rows("static_node", 20.0)
    assert move_to_folds(CLAIMS, score_index(frame_of(one))) == ()
    rows = [*one, *_network_rows("vanilla", 30.0), *_network_rows("main", 10.0)]
    (moved,) = move_to_folds(CLAIMS, score_index(frame_of(rows)))
    # The network against the analytical model is no such claim: `restated` moves it.
    assert (moved.id, moved.restates) == (
        "lpm2021.static_features_fusion@folds",
        "lpm2021.static_features_fusion",
    )
    (found,) = evaluate_claims((moved,), frame_of(rows), 0, resamples=10)
    assert (found.verdict, found.effect, found.n) == (HOLDS, pytest.approx(10.0), 6)


def test_claims_that_compare_splits_or_chips_stay_where_they_are() -> None:
    tasks = {"tile": "tile_size_ape", "fusion": "mape_ge5us"}
    rows = [
        make_row(task=task, metric=metric, split="folds", chip=chip, program=f"p{i}", value=1.0)
        for task, metric in tasks.items()
        for chip in ("tpu_v2", "tpu_v3")
        for i in range(6)
    ]
    # shift_costs_tile and the two claims about generations compare the main network with itself.
    assert move_to_folds(CLAIMS, score_index(frame_of(rows))) == ()


def test_a_question_that_two_claims_ask_of_folds_alike_is_asked_once() -> None:
    claims = [claim for claim in CLAIMS if claim.id.startswith("lpm2020.rank_vs_mse_tile")]
    assert {side.split for claim in claims for side in claim.sides} == {"random", "manual"}
    rows = [
        make_row(variant=side.variant, split="folds", chip="tpu_v3", program=f"p{i}", metric=claim.metric)
        for claim in claims
        for side in claim.sides
        for i in range(6)
    ]
    assert len({(claim.metric, claim.statistic) for claim in claims}) == 1
    assert [claim.id for claim in move_to_folds(claims, score_index(frame_of(rows)))] == [
        "lpm2020.rank_vs_mse_tile@folds"
    ]
