"""The papers' claims as data: complete, consistent, and refused where they make no sense."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.experiments.autotuning.work_items import AutotuneParams
from costbench.experiments.grid.cells import experiment_names, listed_as
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.params import parse
from costbench.reports.claims.claim import Claim, Claims, Margin, Side, load_claims, margins
from costbench.reports.searches import Bar

CLAIM = Claim("lpm2021.x", "Table 9", "A is better.", "tile", "tile_size_ape", "left_better", 1.0)


def test_claims_of_both_papers_are_there_and_name_what_they_compare() -> None:
    claims = {claim.id: claim for claim in load_claims()}
    papers = Counter(claim.paper for claim in claims.values())
    assert papers["lpm2021"] + papers["lpm2020"] == 61
    assert papers["tpugraphs2023"] == 23
    for claim in claims.values():
        assert claim.needs or claim.against or all(left != right for left, right in claim.pairs)
    loss = claims["lpm2021.rank_vs_mse_tile"]
    assert (loss.left, loss.right) == ((Side(variant="vanilla"),), (Side(variant="mse"),))
    assert loss.paper_effect == 10.9
    shifted = claims["lpm2021.shift_costs_tile"]
    assert (shifted.left, shifted.right) == ((Side("lpm2021"),), (Side("lpm2021", split="manual"),))


def test_margins_are_the_largest_differences_called_none() -> None:
    # Tile: 0.9 of errors of 3.7 and 4.6. Fusion: 0.8 of 5.2 and 6.0. GraphSAGE and GCN: 1.0 of 10.5 and
    # 11.5. Speed-ups: 1% to 3%, which are relative as they are.
    expected = {
        ("tile", "points"): Margin(0.9 / 4.15, relative=True),
        ("fusion", "points"): Margin(0.8 / 5.6, relative=True),
        ("tile", "points of top-1"): Margin(1.0 / 11.0, relative=True),
        ("tile", "percent"): Margin(3.0),
    }
    assert margins(load_claims()) == expected


def test_a_relative_margin_is_a_share_of_our_errors() -> None:
    assert Margin(0.2, relative=True).at(lambda: 30.0) == pytest.approx(6.0)
    assert Margin(0.9).at(lambda: 30.0) == 0.9
    equal = replace(CLAIM, direction="no_difference", paper_effect=-0.5, paper_level=5.0)
    assert margins((equal,)) == {("tile", "points"): Margin(0.1, relative=True)}
    # Without a level of all of them, differences are as printed.
    other = replace(equal, id="lpm2021.y", paper_level=None, paper_effect=0.3)
    assert margins((equal, other)) == {("tile", "points"): Margin(0.5)}


def test_pairs_meet_all_or_one_by_one() -> None:
    a, b, c, d = (Side(variant=name) for name in "abcd")
    every = replace(CLAIM, left=(a, b), right=(c, d))
    assert every.pairs == ((a, c), (a, d), (b, c), (b, d))
    assert replace(every, pairing="each").pairs == ((a, c), (b, d))
    assert replace(every, right=(a,)).sides == (a, b)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left": ()}, "give both sides"),
        ({"needs": "something"}, "say what is needed"),
        ({"pairing": "each", "right": (Side(), Side(model="analytical"))}, "one by one"),
        ({"direction": "magnitude"}, "worst program"),
        ({"scale": "factor", "statistic": "mean"}, "geometric_mean"),
        ({"direction": "magnitude", "statistic": "worst", "paper_effect": None}, "paper_effect"),
        ({"id": "unnamed"}, "start with the paper"),
        ({"against": 1.0}, "give both sides"),
        ({"against": 1.0, "right": ()}, "only ratios"),
        ({"against": 0.0, "right": (), "scale": "ratio"}, "above zero"),
        ({"scale": "ratio", "statistic": "mean"}, "geometric_mean"),
        ({"scale": "ratio", "pairing": "spread"}, "of ratios"),
        ({"statistic": "best"}, "largest ratio"),
        ({"direction": "at_most", "paper_effect": None}, "paper_effect"),
    ],
)
def test_claims_that_make_no_sense_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CLAIM, **changes)  # type: ignore[arg-type]


def test_a_claim_is_there_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        Claims((CLAIM, CLAIM))


def test_more_is_better_for_correlations_and_speedups_only() -> None:
    assert CLAIM.sign == -1.0
    assert replace(CLAIM, metric="kendall_tau_ge5us").sign == 1.0
    assert replace(CLAIM, metric="mape_ge5us").sign == -1.0
    assert replace(CLAIM, metric="speedup").sign == 1.0
    assert replace(CLAIM, metric="kernel_top_1").sign == -1.0


def test_a_magnitude_has_one_side_or_two() -> None:
    alone = replace(CLAIM, direction="magnitude", statistic="mean", right=())
    assert (alone.sides, alone.pairs) == ((Side(),), ())
    assert replace(alone, statistic="worst", right=(Side("analytical"),)).sides == (
        Side(),
        Side("analytical"),
    )


def test_rows_of_a_side_are_found_without_its_metric_and_task() -> None:
    side = Side(variant="gst-listmle", kernels="xla:random", metric="top_1", task="layout")
    assert side.rows == Side(variant="gst-listmle", kernels="xla:random")
    assert side.programs == replace(side, kernels="xla:default").programs
    assert side.programs != replace(side, kernels="nlp:random").programs


def test_the_evidence_has_the_rows_of_every_claim(repository: Path) -> None:
    params = repository / "profiles" / "evidence" / "params.yaml"
    there = set()
    for name in experiment_names(load_params(params)):
        experiment = load_experiment(load_params(params), name)
        for cell in experiment.cells:
            sides = [Side(*listed_as(cell, cell.chip), cell.split, cell.chip)]
            if experiment.grid.baselines:
                sides += [
                    Side(model, "main", cell.split, cell.chip) for model in ("analytical", "random", "best")
                ]
            there |= {
                (cell.task, replace(side, split=split)) for side in sides for split in (side.split, "any")
            }
    claims = [one for one in load_claims() if one.metric not in ("speedup", "hardware_seconds", "seconds")]
    wanted = [
        (one.id, side.task or one.task, replace(side.rows, kernels="all"))
        for one in claims
        for side in one.sides
    ]
    run = {task for task, _ in there}
    assert [(name, side) for name, task, side in wanted if task in run and (task, side) not in there] == []
    assert [one.id for one in load_claims() if one.needs] == []


def test_the_evidence_searches_for_every_claim(repository: Path) -> None:
    path = repository / "profiles" / "evidence" / "params.yaml"
    section = parse(AutotuneParams, load_sections(path)["autotune"], where=path)
    starts, minutes = section.fusion.search.starts, section.fusion.search.hardware_minutes
    budgets = {"tile": {"compiler", *(f"top{k}" for k in section.tile.search.top_k)}}
    budgets["fusion"] = {f"{start}-{number:g}m" for start in starts for number in minutes}
    budgets["fusion"].add("all")
    splits = {"tile": {"any", "gains", *section.tile.programs.splits}}
    splits["fusion"] = {"any", *section.fusion.programs.splits}
    assert section.tile.programs.gains
    for claim in load_claims():
        if claim.metric == "speedup":
            assert {side.variant for side in claim.sides} <= budgets[claim.task]
            assert {side.split for side in claim.sides} <= splits[claim.task]
        if claim.metric == "hardware_seconds":
            assert {side.variant for side in claim.sides} <= {*budgets[claim.task], "all"}
            assert {side.chip for side in claim.sides} <= set(section.tile.programs.chips)


def test_claims_about_searches_name_budgets() -> None:
    claims = [claim for claim in load_claims() if claim.metric == "speedup"]
    assert len(claims) == 10
    for claim in claims:
        assert claim.unit == "percent"
        for side in claim.sides:
            bar = Bar(side.model, side.variant)
            assert side.variant in ("compiler", "all") or bar.top_k or bar.minutes
