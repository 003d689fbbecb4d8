"""Packed results of the headline: which trees count, what models were given, and what rests on them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from costbench.errors import DataError
from costbench.metrics.rows import write_rows
from costbench.reports.baseline_comparison import rank_models
from costbench.reports.claims.claim import Side, load_claims
from costbench.reports.claims.evaluation import DOES_NOT_HOLD, HOLDS, SMALLER, UNDECIDED
from costbench.reports.frame import frame_of, select
from costbench.reports.headline import Headline, load_headline
from costbench.reports.inputs import ReportInputs, ReportParams, decide_on_headline, load_report_data
from costbench.reports.report import write_report
from costbench.reports.results import Results
from costbench.reports.sections.claims import findings_frame
from costbench.reports.sections.headline import points_by_cell, shift_pointer, shift_table, standing_table
from costbench.reports.sections.overview import conclusions
from costbench.reports.training_guard import ModelBudget, TrainingGuard, is_settled
from tests.reports.conftest import make_row, rows_of
from tests.reports.packed_headline import (
    PROGRAMS,
    add_runs,
    add_searches,
    add_second_chip,
    packed,
    write_headline,
)

COLUMNS = {"tile": "validation/tau"}
HYBRID, TREES = (Side(model, "main", "folds", "tpu_v3") for model in ("hybrid", "trees_analytical"))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_headline(tmp_path)


@pytest.fixture
def headline(archive: Path) -> Headline:
    loaded = load_headline(packed(archive), COLUMNS, load_claims())
    assert loaded is not None
    return loaded


@pytest.fixture
def inputs(archive: Path, tmp_path: Path) -> ReportInputs:
    """A report's own results are those of another split, beside the archive."""
    write_rows(tmp_path / "own" / "rows.jsonl", rows_of())
    params = ReportParams(0, COLUMNS, "", headline=packed(archive))
    return ReportInputs((tmp_path / "own" / "rows.jsonl",), params=params)


def test_validation_chooses_the_budget_of_trees(headline: Headline) -> None:
    cell = headline.results.cell("tile", "folds", "tpu_v3")
    assert cell is not None
    # Mean validation tau of .85 and .87: the large budget counts, with an error of 4.
    assert cell.score("trees_analytical", "tile_size_ape", "p1") == 4.0
    assert cell.score("hybrid", "tile_size_ape", "p1") == 2.0
    small = headline.results.cell("tile", "folds", "tpu_v3", "small")
    assert small is not None
    assert small.score("trees_analytical", "tile_size_ape", "p1") == 6.0


def test_what_models_were_given(headline: Headline) -> None:
    given = headline.guard.given
    # Trees: 20 kernels, (20 + 40) / 2 trees, (10 + 20) / 2 seconds.
    assert given["tile", TREES] == ModelBudget(kernels=20, trees=30, core_seconds=15.0)
    # Nobody timed 200 steps of the hybrid: 100 took 4 and 8 seconds in two folds, 0.06 a step in the median.
    assert given["tile", HYBRID].steps == 200
    assert given["tile", HYBRID].core_seconds == pytest.approx(12.0)


def test_trainings_on_another_chip_say_nothing_about_time(archive: Path, tmp_path: Path) -> None:
    add_second_chip(tmp_path)
    headline = load_headline(packed(archive), COLUMNS, load_claims())
    assert headline is not None
    of_chips = [headline.guard.given["tile", replace(HYBRID, chip=chip)] for chip in ("tpu_v2", "tpu_v3")]
    assert [given.core_seconds for given in of_chips] == [400.0, pytest.approx(12.0)]


def test_further_runs_count_in_verdicts_and_in_no_table(archive: Path, tmp_path: Path) -> None:
    params = replace(packed(archive), runs={"runs-tile": 1})
    alone = load_headline(params, COLUMNS, load_claims())
    add_runs(tmp_path)
    both = load_headline(params, COLUMNS, load_claims())
    assert alone is not None
    assert both is not None
    assert (alone.missing, both.missing) == (("curves-fusion", "runs-tile"), ("curves-fusion",))
    place = {"task": "tile", "split": "folds", "chip": "tpu_v3", "metric": "tile_size_ape", "program": "p1"}
    errors = select(both.every_run, **place, model=["hybrid", "random"], variant="main", group="all")
    # What is not trained is that of the compared experiment itself.
    assert sorted(zip(errors["model"], errors["seed"], errors["value"], strict=True)) == [
        ("hybrid", 0, 2.0),
        ("hybrid", 1, 6.0),
        ("random", 0, 200.0),
    ]
    assert both.results.frame.equals(alone.results.frame)
    assert both.budgets == alone.budgets


def test_times_of_a_step_are_those_of_measured_trainings(headline: Headline) -> None:
    times = headline.training_times.set_index(["variant", "program"])["value"]
    # The fixture's timings over their steps; the time of a run that nobody measured is no observation.
    assert times.to_dict() == {
        ("hybrid", "fold1, seed 0"): 0.04,
        ("hybrid", "fold2, seed 0"): 0.08,
        ("hybrid-wide", "fold1, seed 0"): 2.0,
        ("hybrid-wide", "fold2, seed 0"): 2.0,
    }
    assert set(headline.training_times["application"]) == {"fold1", "fold2"}


@pytest.mark.parametrize(("pairs", "verdict"), [(3, UNDECIDED), (6, DOES_NOT_HOLD)])
def test_a_claim_on_training_times_rests_on_folds_and_seeds(
    headline: Headline, pairs: int, verdict: str
) -> None:
    rows = [
        make_row(
            split="folds",
            chip="tpu_v3",
            application=f"fold{number % 3}",
            program=f"fold{number % 3}, seed {number // 3}",
            model="learned",
            variant=f"graphsage-{reduction}",
            metric="core_seconds_per_step",
            value=seconds * (1.0 + 0.01 * number),
        )
        for number in range(pairs)
        for reduction, seconds in (("transformer", 0.05), ("lstm", 0.03))
    ]
    timed = replace(headline, training_times=frame_of(rows))
    name = "lpm2021.transformer_trains_faster"
    (claim,) = (claim for claim in load_claims() if claim.id == name)
    found = {finding.claim.restates: finding for finding in decide_on_headline((), (claim,), timed, 0)}
    assert found[name].verdict == verdict
    assert found[name].effect == pytest.approx(0.6)
    assert found[name].n == pairs
    # Three folds, each with as many seeds; trainings, not programs.
    assert set(found[name].seeds.values()) == {pairs // 3}
    table = findings_frame(tuple(found.values())).set_index("claim_id").loc[name]
    assert (table["n"], table["units"]) == (pairs, "trainings, folds")
    assert pairs >= 6 or table["needed"] == "about 6 trainings"


def test_points_are_means_over_folds(headline: Headline) -> None:
    (points,) = points_by_cell(headline.points)
    shown = {(point.model, point.steps or point.kernels): point for point in points.itertuples()}
    hybrid = shown["hybrid", 100]
    assert (hybrid.core_seconds, hybrid.validation) == (6.0, 0.80)
    assert hybrid.error == pytest.approx(10.0)
    assert shown["learned", 200].core_seconds is None
    trees = shown["trees_analytical", 20]
    assert (trees.validation, trees.is_chosen) == (pytest.approx(0.87), True)
    # The least budget first, whatever budgets are called.
    assert points["kernels"][points["model"] == "trees_analytical"].tolist() == [10, 20]
    assert not shown["trees_analytical", 10].is_chosen
    assert trees.error == pytest.approx(4.0)


def test_a_plateau_is_a_change_below_two_percent() -> None:
    assert is_settled([0.5, 0.80, 0.81])
    assert not is_settled([0.80, 0.82])
    assert not is_settled([0.8])


def test_models_that_are_not_at_their_plateau(headline: Headline) -> None:
    # .80 to .81 is 1.25%, .50 to .60 is 20%; trees .85 to .87: 2.4%.
    settled = {side.model: answer for (_, side), answer in headline.guard.settled.items()}
    assert settled == {"hybrid": True, "learned": False, "trees_analytical": False}


def test_a_network_is_judged_by_its_own_curve_on_folds(headline: Headline) -> None:
    # Its last two points are within what the papers call no difference, and the hybrid has as many steps.
    assert ("tile", HYBRID) not in headline.guard.reasons


def test_models_with_another_estimate_come_last_and_are_held_against_the_same_baseline(
    inputs: ReportInputs, tmp_path: Path
) -> None:
    data = load_report_data(inputs, tmp_path)
    assert data.headline is not None
    (cell,) = data.headline_front.cells
    frame = data.headline.results.frame
    of_hybrid = frame[(frame["model"] == "hybrid") & (frame["variant"] == "main")]
    experts = of_hybrid.assign(variant="expert", value=0.5 * of_hybrid["value"])
    results = Results(pd.concat([frame, experts], ignore_index=True))
    expert = results.cell("tile", "folds", "tpu_v3", "expert")
    assert expert is not None
    table = standing_table(data.headline_front, cell, {"expert": rank_models(results, expert, 0)})
    *main, last = table.data.to_dict("records")
    assert last["model"] == "hybrid, estimate of quality expert"
    # Half of the hybrid's error of 2, less the trees' of 4.
    assert (last["error"], last["difference"]) == (pytest.approx(1.0), pytest.approx(-3.0))
    assert not last["plateau"]
    assert "hybrid" in {row["model"] for row in main}


def test_curves_of_compared_networks_judge_and_do_not_lead(archive: Path) -> None:
    params = replace(packed(archive), curves=(), orders=("curves-tile",))
    headline = load_headline(params, COLUMNS, load_claims())
    assert headline is not None
    assert set(headline.curves[0].networks) == {"hybrid", "learned"}
    # .50 to .60: the main variant is the network of that name.
    assert not headline.guard.settled["tile", replace(HYBRID, model="learned")]
    # Boosted trees of a single budget, and models on another chip: nobody knows.
    assert headline.guard.at_plateau("tile", replace(HYBRID, chip="tpu_v2")) is None
    assert ("tile", HYBRID) not in headline.guard.reasons
    assert set(headline.points["model"]) == {"trees_analytical"}


def test_claims_on_all_splits_are_decided_on_folds_where_nothing_else_was_tested(headline: Headline) -> None:
    """Layouts of tpugraphs2023 are compared on whatever was tested."""
    place = {
        "task": "layout",
        "split": "folds",
        "chip": "tpu_v3",
        "metric": "kendall_tau",
        "kernels": "xla:random",
    }
    taus = {("random", "main"): 0.0, ("learned", "gst-listmle"): 0.4}
    rows = [
        make_row(**place, model=model, variant=variant, seed=seed, application=a, program=f"p{a}", value=tau)
        for (model, variant), tau in taus.items()
        for seed in range(3)
        for a in "abcdefgh"
    ]
    of_layouts = replace(headline, results=Results(frame_of(rows)), guard=TrainingGuard())
    decided = {finding.claim.id: finding for finding in decide_on_headline((), load_claims(), of_layouts, 0)}
    finding = decided["tpugraphs2023.layout_model_vs_random_order"]
    assert (finding.verdict, finding.profile) == (HOLDS, headline.profile)


def test_a_verdict_that_took_further_runs_has_the_p_value_of_all_looks(headline: Headline) -> None:
    place = {"task": "tile", "split": "folds", "chip": "tpu_v3", "metric": "tile_size_ape"}
    rows = [
        make_row(**place, variant=variant, seed=seed, application=a, program=f"p{a}", value=value)
        for variant, least in (("vanilla", 3.0), ("undirected", 3.01))
        for seed in range(6)
        for index, a in enumerate("abcdefgh")
        for value in [least + 0.002 * seed + 0.01 * index]
    ]
    every = frame_of(rows)
    first, further = (
        every[added].assign(experiment=name)
        for name, added in (("inputs-tile", every["seed"] < 3), ("runs-tile", every["seed"] >= 3))
    )
    trained = replace(headline, guard=TrainingGuard())
    p_values = []
    for declared, added in ((every, every[:0]), (first, further)):
        of_runs = replace(trained, results=Results(declared), further_runs=added, looks={"runs-tile": 2})
        (finding,) = (
            finding
            for finding in decide_on_headline((), load_claims(), of_runs, 0)
            if finding.claim.id == "lpm2021.edge_direction_tile"
        )
        assert finding.verdict == HOLDS
        assert set(finding.seeds.values()) == {6}
        assert finding.p is not None
        p_values.append((finding.p, finding.looks))
    (once, one), (thrice, three) = p_values
    assert (one, three) == (1, 3)
    assert thrice == 3.0 * once > 0.0


def test_what_models_with_other_estimates_were_given(archive: Path) -> None:
    # An experiment with networks alone says nothing of trees, and is left out.
    both = replace(packed(archive), networks=(), estimates=("curves-tile", "estimates-tile"))
    headline = load_headline(both, COLUMNS, load_claims())
    assert headline is not None
    # The least steps of all networks, the most kernels of all trees.
    assert headline.given_estimates == {"tile": {"steps": 300, "seeds": 2, "kernels": 40}}
    assert headline.estimates is not None
    assert set(headline.estimates.frame["model"]) == {"hybrid", "learned", "trees_analytical"}
    assert "estimates-tile" not in headline.missing


def test_no_archive_no_headline(tmp_path: Path) -> None:
    assert load_headline(packed(tmp_path / "none"), COLUMNS, load_claims()) is None


def test_a_damaged_archive_is_named(archive: Path) -> None:
    (archive / "rows.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"rows\.parquet"):
        load_headline(packed(archive), COLUMNS, load_claims())


def test_comparisons_on_folds_rest_on_the_archive(inputs: ReportInputs, tmp_path: Path) -> None:
    data = load_report_data(inputs, tmp_path)
    findings = {finding.claim.id: finding for finding in data.findings}
    finding = findings["strongest.tile_trees_vs_hybrid"]
    # The hybrid's error is a half of the trees' in each program.
    assert (finding.profile, finding.n) == ("headline", 6)
    assert finding.effect == pytest.approx(-2.0)
    assert finding.given[finding.claim.left[0]].trees == 30
    assert finding.given[finding.claim.right[0]].steps == 200
    assert {side.model: answer for side, answer in finding.at_plateau.items()} == {
        "hybrid": True,
        "trees_analytical": False,
    }
    assert {one.profile for one in data.findings if one.claim.set == "printed"} == {""}
    own = load_report_data(replace(inputs, params=replace(inputs.params, headline=None)), tmp_path)
    assert {one.profile for one in own.findings} == {""}


def test_tables_of_variants_show_those_of_the_archive(inputs: ReportInputs, tmp_path: Path) -> None:
    data = load_report_data(inputs, tmp_path)
    packed_names = {cell.variant for cell in data.variants.results.variants if cell.split == "folds"}
    # Neither points of curves nor budgets of trees are variants of the network.
    assert packed_names == {"hybrid-wide"}
    assert [(one.variant, one.steps) for one in data.variants.budgets] == [("hybrid-wide", 200)] * 2
    own = data.results.frame
    shown = data.variants.results.frame
    assert len(shown) == len(own) + len(PROGRAMS) * 2
    without = load_report_data(replace(inputs, params=replace(inputs.params, headline=None)), tmp_path)
    assert without.variants.results is without.results
    # A network that the archive has is judged by its training there, not by the report's own.
    place = {"model": "learned", "split": "folds", "chip": "tpu_v3"}
    too_little = {("tile", Side(variant=variant, **place)): "25%" for variant in ("hybrid-wide", "mse")}
    assert data.headline is not None
    enough = replace(data.headline, guard=TrainingGuard())
    data = replace(data, headline=enough, guard=replace(data.guard, reasons=too_little))
    assert data.variants.reasons == {("tile", Side(variant="mse", **place)): "25%"}


def test_the_first_page_says_of_a_task_what_the_archive_has(inputs: ReportInputs, tmp_path: Path) -> None:
    data = load_report_data(inputs, tmp_path)
    front = data.front("tile")
    assert (front.profile, [cell.name for cell in front.cells]) == ("headline", ["tile_folds_tpu_v3"])
    assert data.front("fusion") is data.own_front
    (cell,) = front.cells
    ranking = front.standings[cell.name]
    assert ranking.strongest == "trees_analytical"
    table = standing_table(front, cell)
    row = table.data.iloc[0]
    assert (row["model"], row["steps"], row["trees"], row["plateau"]) == ("hybrid", 200.0, None, "yes")
    assert (row["won"], row["difference"]) == (100.0, pytest.approx(-2.0))
    (pointer, *_) = conclusions(data.front, data.printed_findings)
    assert "200 steps" in pointer.answer
    assert HOLDS not in pointer.answer


def test_searches_of_the_archive_stand_for_those_of_a_split(inputs: ReportInputs, tmp_path: Path) -> None:
    add_searches(tmp_path, {"learned": 1.10, "analytical": 1.05})
    computed = tmp_path / "searches.jsonl"
    searched = {"variant": "default-10m", "metric": "speedup", "value": 1.02}
    tuned = [("tile", "folds", "tpu_v3"), ("tile", "random", "tpu_v2"), ("fusion", "folds", "tpu_v3")]
    write_rows(
        computed,
        [make_row(task=t, split=s, chip=chip, model="hardware", **searched) for t, s, chip in tuned],
    )
    data = load_report_data(replace(inputs, searches=computed), tmp_path)
    shown = data.front_searches.results
    assert [(one.task, one.split, one.chip) for one in shown] == tuned
    assert [set(one.frame["model"]) for one in shown] == [
        {"learned", "analytical"},
        {"hardware"},
        {"hardware"},
    ]
    findings = {finding.claim.id: finding for finding in data.findings}
    finding = findings["lpm2021.top10_learned_vs_analytical"]
    assert (finding.profile, finding.n) == ("headline", 6)
    assert finding.effect == pytest.approx(100.0 * (1.10 / 1.05 - 1.0))
    written = write_report(replace(inputs, searches=computed), tmp_path / "report")
    key = "autotune/tile/folds/tpu_v3/all/learned/top10/speedup_mean"
    assert written.headline[f"headline/{key}"] == pytest.approx(1.10)
    assert key not in written.headline


def test_splits_and_chips_beside_the_headline_decide_claims_on_them(headline: Headline) -> None:
    """On programs unlike those of training, and on the next chip; the first page stays with folds."""
    errors = [("manual", "tpu_v2", 30.0), ("folds", "tpu_v2", 12.0), ("folds", "tpu_v3", 12.0)]
    rows = [
        make_row(
            split=split, chip=chip, model=model, seed=seed, application=a, program=a, value=error * factor,
            task="fusion", metric="mape_ge5us",
        )
        for split, chip, error in errors
        for model, factor in (("learned", 1.0), ("analytical", 0.5))
        for seed in range(3)
        for a in "abcdefgh"
    ]  # fmt: skip
    beside = replace(headline, results=Results(frame_of(rows)), guard=TrainingGuard())
    decided = {finding.claim.id: finding for finding in decide_on_headline((), load_claims(), beside, 0)}
    # 30 - 15 points, where the paper prints 19.2.
    assert decided["lpm2020.fusion_manual_split"].verdict == SMALLER
    assert decided["lpm2021.fusion_manual_vs_analytical@learned"].verdict == DOES_NOT_HOLD
    assert decided["lpm2021.second_generation_fusion@learned"].verdict == HOLDS
    assert {side.chip for side in decided["lpm2021.second_generation_fusion@learned"].claim.sides} == {
        "tpu_v2", "tpu_v3",
    }  # fmt: skip
    assert beside.chip == "tpu_v3"


def test_what_an_unknown_application_costs_is_asked_of_the_same_programs() -> None:
    errors = {"learned": {"random_folds": 2.0, "folds": 5.0}, "trees": {"random_folds": 4.0, "folds": 4.0}}
    rows = [
        make_row(
            split=split, chip="tpu_v3", model=model, seed=seed, application=a, program=a, metric=metric,
            value=value,
        )
        for model, by_split in errors.items()
        for split, error in by_split.items()
        for metric, value in (("tile_size_ape", error), ("kendall_tau", 0.9 - error / 100))
        for seed in range(1 if model == "trees" else 3)
        for a in "abcdefgh"
    ]  # fmt: skip
    # Further runs of one side alone, which do not count.
    rows += [
        make_row(split="folds", chip="tpu_v3", model="trees", metric=metric, seed=seed, application=a,
                 program=a, value=value)
        for metric, value in (("tile_size_ape", 40.0), ("kendall_tau", 0.1))
        for seed in (1, 2)
        for a in "abcdefgh"
    ]  # fmt: skip
    # A model that was tested on one kind of folds alone, and a program of one kind alone.
    rows += [make_row(split="folds", chip="tpu_v3", model="hybrid", application="a", program="a")]
    rows += [
        make_row(split="folds", chip="tpu_v3", model="learned", metric=metric, seed=seed, application="z",
                 program="z", value=99.0)
        for metric in ("tile_size_ape", "kendall_tau")
        for seed in range(3)
    ]  # fmt: skip
    results = Results(frame_of(rows))
    known, unknown = (results.cell("tile", split, "tpu_v3") for split in ("random_folds", "folds"))
    assert known is not None
    assert unknown is not None
    table = shift_table(results, known, unknown, 0)
    by_model = table.data.set_index("model").to_dict("index")
    assert set(by_model) == {"learned", "boosted trees"}
    learned, trees = by_model["learned"], by_model["boosted trees"]
    assert (learned["error_known"], learned["error_unknown"]) == (pytest.approx(2.0), pytest.approx(5.0))
    assert (learned["error_value"], learned["tau_value"]) == (pytest.approx(3.0), pytest.approx(-0.03))
    assert (learned["error_low"], learned["error_high"]) == (pytest.approx(3.0), pytest.approx(3.0))
    assert (learned["programs"], learned["seeds"]) == (8, 3)
    assert trees["error_value"] == pytest.approx(0.0, abs=1e-12)
    assert trees["seeds"] == 1
    (said,) = shift_pointer(results)
    assert re.findall(r"(\w+) ([\d.]+)% and ([\d.]+)%", said.answer) == [
        ("learned", "2.0", "5.0"),
        ("trees", "4.0", "4.0"),
    ]


def test_report_with_a_headline(inputs: ReportInputs, tmp_path: Path) -> None:
    written = write_report(inputs, tmp_path / "report")
    names = {path.stem for path in (*written.tables, *written.figures)}
    assert {"headline_tile_folds_tpu_v3", "training_cost_tile_folds_tpu_v3"} <= names
    assert written.headline["headline/tile/folds/tpu_v3/hybrid/ape_mean"] == pytest.approx(2.0)
    assert written.headline["headline/tile/folds/tpu_v3/trees_analytical/given/trees"] == 30.0
    page = (tmp_path / "report" / "pages" / "headline.html").read_text()
    assert "curves-fusion" in page
    claims = {claim["id"]: claim for claim in json.loads(written.claims[1].read_text())}
    (side,) = claims["strongest.tile_trees_vs_hybrid"]["sides"]["right"]
    assert (side["steps"], side["core_seconds"], side["at_plateau"]) == (200, pytest.approx(12.0), True)
