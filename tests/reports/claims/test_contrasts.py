"""Each comparison is made once, in one of five sets, and no side is ever swapped."""

from __future__ import annotations

from dataclasses import replace

from costbench.metrics.rows import MetricRow
from costbench.reports.claims.claim import Claim, Side, load_claims
from costbench.reports.claims.contrasts import contrasts, knows_estimate, stands_in, strongest_statements
from costbench.reports.frame import frame_of
from costbench.reports.scores import score_index
from tests.reports.conftest import make_row

CLAIMS = {claim.id: claim for claim in load_claims()}
LARGER_ERROR = "lpm2021.fusion_random_vs_analytical"
FOLDS = {"split": "folds", "chip": "tpu_v3"}


def _rows(task: str, metric: str, *sides: Side) -> list[MetricRow]:
    return [
        make_row(
            task=task,
            metric=metric,
            model=side.model,
            variant=side.variant,
            split=side.split,
            chip=side.chip,
            kernels=side.kernels,
            application=f"a{i}",
            program=f"p{i}",
        )
        for side in sides
        for i in range(6)
    ]


def _contrasts(claims: list[Claim], rows: list[MetricRow]) -> dict[str, Claim]:
    return {claim.id: claim for claim in contrasts(claims, score_index(frame_of(rows)))}


def test_a_claim_is_decided_with_the_papers_model_on_folds_and_with_ours_in_its_place() -> None:
    sides = [Side(model, **FOLDS) for model in ("lpm2021", "learned", "analytical")]
    rows = _rows("fusion", "mape_ge5us", *sides)
    made = _contrasts([CLAIMS[LARGER_ERROR]], rows)
    printed, folds, ours = (made[f"{LARGER_ERROR}{end}"] for end in ("", "@folds", "@learned"))
    assert (printed.set, printed.left, printed.right) == (
        "printed",
        (Side("lpm2021"),),
        (Side("analytical"),),
    )
    assert (folds.set, folds.left, folds.right) == ("all_programs", (sides[0],), (sides[2],))
    assert (ours.set, ours.left, ours.right) == ("stand_in", (sides[1],), (sides[2],))
    assert {claim.restates for claim in (folds, ours)} == {LARGER_ERROR}
    assert {claim.direction for claim in (printed, folds, ours)} == {"left_better"}


def test_a_claim_about_unlike_programs_is_asked_of_folds_too_and_keeps_its_sides() -> None:
    manual = "lpm2021.tile_manual_vs_analytical"
    sides = [Side(m, **FOLDS) for m in ("lpm2021", "learned", "analytical")]
    made = _contrasts([CLAIMS[manual]], _rows("tile", "tile_size_ape", *sides))
    printed, folds, ours = (made[f"{manual}{end}"] for end in ("", "@folds", "@learned"))
    assert {side.split for side in printed.sides} == {"manual"}
    assert (folds.left, folds.right) == ((sides[0],), (sides[2],))
    assert (ours.left, ours.right) == ((sides[1],), (sides[2],))
    beside = made[f"{manual}@learned@manual"]
    assert [(side.model, side.split) for side in beside.sides] == [
        ("learned", "manual"),
        ("analytical", "manual"),
    ]
    assert {claim.direction for claim in (printed, folds, ours, beside)} == {"right_better"}


def test_what_a_shift_costs_is_the_difference_between_both_kinds_of_folds() -> None:
    shift = "lpm2021.shift_costs_tile"
    sides = [Side(m, **FOLDS) for m in ("lpm2021", "learned")]
    known = [replace(side, split="random_folds") for side in sides]
    made = _contrasts([CLAIMS[shift]], _rows("tile", "tile_size_ape", *sides))
    assert f"{shift}@folds" not in made
    assert {side.split for side in made[f"{shift}@learned"].sides} == {"random", "manual"}
    made = _contrasts([CLAIMS[shift]], _rows("tile", "tile_size_ape", *sides, *known))
    for end, i in (("@folds", 0), ("@learned", 1)):
        assert (made[f"{shift}{end}"].left, made[f"{shift}{end}"].right) == ((known[i],), (sides[i],))
    for end in ("", "@learned@manual"):
        assert {side.split for side in made[f"{shift}{end}"].sides} == {"random", "manual"}


def test_what_one_program_gains_is_asked_of_folds_which_have_all_of_them() -> None:
    swap = "lpm2021.compiler_swap_translate3"
    gains, folds = (
        [Side(model, variant="compiler", split=split, chip="tpu_v3") for model in ("learned", "analytical")]
        for split in ("gains", "folds")
    )
    assert {side.split for side in _contrasts([CLAIMS[swap]], [])[swap].sides} == {"gains"}
    both = _contrasts([CLAIMS[swap]], _rows("tile", "speedup", *gains, *folds))
    assert both[swap].sides == tuple(folds)


def test_a_statement_about_either_kind_of_split_stays_where_folds_compare_the_same_rows() -> None:
    names = [f"lpm2020.rank_vs_mse_tile{end}" for end in ("", "_manual")]
    rows = _rows("tile", "kendall_tau", *(Side(variant=v, **FOLDS) for v in ("vanilla", "mse")))
    made = _contrasts([CLAIMS[name] for name in names], rows)
    assert made[names[0]].sides == made[names[1]].sides
    assert {side.split for side in made[names[1]].sides} == {"folds"}
    assert {side.split for side in made[f"{names[1]}@manual"].sides} == {"manual"}


def test_runs_of_tiles_and_of_layouts_are_compared_on_folds() -> None:
    claim = CLAIMS["tpugraphs2023.tile_training_unstable"]
    (layouts,), (tiles,) = claim.left, claim.right
    on_folds = [replace(side, **FOLDS) for side in (layouts, tiles)]
    rows = [*_rows("layout", "top_1", on_folds[0]), *_rows("tile", "kernel_top_1", on_folds[1])]
    made = _contrasts([claim], rows)[f"{claim.id}@folds"]
    assert list(made.sides) == on_folds


def test_on_folds_every_comparison_is_made_once() -> None:
    # lpm2021 says it of the analytical model on random programs; its share of programs is another statistic.
    names = ("tile_random_vs_analytical", "tile_random_wins_per_program", "tile_random_tau_vs_analytical")
    claims = [CLAIMS[f"lpm2021.{name}"] for name in names]
    sides = [Side(m, **FOLDS) for m in ("lpm2021", "learned", "analytical")]
    rows = [*_rows("tile", "tile_size_ape", *sides), *_rows("tile", "kendall_tau", *sides)]
    made = _contrasts([*claims, *claims[:1]], rows)
    on_folds = [claim for claim in made.values() if claim.set == "all_programs"]
    assert [claim.restates for claim in on_folds] == [claim.id for claim in claims]
    asked = [(claim.metric, claim.statistic, claim.left, claim.right) for claim in on_folds]
    assert len(set(asked)) == len(asked)


def test_our_network_stands_in_where_the_paper_s_was_not_built() -> None:
    ours = {claim.id for claim in CLAIMS.values() if stands_in(claim)}
    assert {"lpm2021.edge_direction_fusion", "lpm2020.fusion_vs_lstm", "lpm2021.compiler_swap_test"} <= ours
    assert LARGER_ERROR not in ours
    assert not any(name.startswith("tpugraphs2023") for name in ours)
    made = contrasts(list(CLAIMS.values()), score_index(frame_of(_rows("tile", "tile_size_ape", Side()))))
    assert {claim.restates or claim.id for claim in made if claim.set == "stand_in"} >= ours


def test_layouts_that_were_tested_on_folds_alone_are_not_asked_again() -> None:
    claim = CLAIMS["tpugraphs2023.layout_rank_vs_mse"]
    on_folds = [
        Side(variant=side.variant, kernels=side.kernels, split="folds", chip="tpu_v3") for side in claim.sides
    ]
    rows = _rows("layout", "kendall_tau", *on_folds)
    assert f"{claim.id}@folds" not in _contrasts([claim], rows)
    elsewhere = [Side(s.variant and s.model, s.variant, "random", "tpu_v3", s.kernels) for s in on_folds]
    assert f"{claim.id}@folds" in _contrasts([claim], [*rows, *_rows("layout", "kendall_tau", *elsewhere)])


def test_statements_of_our_own_compare_like_with_like() -> None:
    statements = strongest_statements()
    assert {claim.task for claim in statements} == {"tile", "fusion", "layout"}
    for claim in statements:
        (left,), (right,) = claim.left, claim.right
        assert knows_estimate(left.model) == knows_estimate(right.model)
        assert (left.split, left.chip) == (right.split, right.chip) == ("folds", "any")
    assert knows_estimate("hybrid")
    assert not knows_estimate("lpm2021")
