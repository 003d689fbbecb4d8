"""Claims about the analytical model are decided against the strongest baseline too, first of all on folds."""

from __future__ import annotations

import pytest

from costbench.metrics.rows import MetricRow
from costbench.reports.claims.data import Side, load_claims
from costbench.reports.claims.restated import on_folds, restated
from costbench.reports.claims.rule import (
    DOES_NOT_HOLD,
    HOLDS,
    NOT_EVALUATED,
    Finding,
    evaluate_claims,
)
from costbench.reports.scores import score_index
from tests.reports.conftest import make_row

CLAIMS = load_claims()
ID = "lpm2021.fusion_random_vs_analytical"


def _rows(model: str, error: float, split: str = "random", chip: str = "tpu_v2") -> list[MetricRow]:
    where = {"task": "fusion", "model": model, "split": split, "chip": chip, "metric": "mape_ge5us"}
    return [make_row(**where, application=f"a{i}", program=f"p{i}", value=error) for i in range(6)]


def _findings(*rows: list[MetricRow]) -> dict[str, Finding]:
    claims = (*CLAIMS, *restated(CLAIMS))
    found = evaluate_claims(claims, [row for several in rows for row in several], 0, resamples=10)
    return {finding.claim.id: finding for finding in found}


def test_every_claim_that_one_of_both_is_better_is_restated_twice() -> None:
    made = restated(CLAIMS)
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
    assert on_folds(CLAIMS, score_index(_rows("learned", 1.0))) == ()
    where = {"variant": "early-sage-listmle", "split": "folds", "chip": "tpu_v3", "metric": "kernel_top_1"}
    rows = [make_row(**where, program=f"p{i}", application=f"a{i}", value=1.0) for i in range(6)]
    made = on_folds(CLAIMS, score_index(rows))
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
