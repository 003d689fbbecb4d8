"""Where the hand-written model does well and where not: by application, and by what kernels mainly do.

It is not trained, so the test programs of all splits are taken together.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from costbench.metrics.measures import APE, APE_FLOOR_PERCENT, TAU, geometric_mean
from costbench.metrics.rows import MAIN
from costbench.reports.declared_tables import fill_table
from costbench.reports.frame import means, select, split_by
from costbench.reports.inputs import ReportData
from costbench.reports.page import Section, paragraphs
from costbench.reports.papers.printed import main_table
from costbench.reports.results import ALL, BEST, KINDS, Results, split_order
from costbench.reports.sections.results import TASK_PAGES
from costbench.reports.table import Table, Value
from costbench.tasks import LEARNED

MODEL = "analytical"
APE_NEAR_PAPERS = (4.0, 12.0)
TAU_NEAR_PAPERS = (0.70, 0.85)
"""The neighbourhood of the papers' analytical model (lpm2021, tables 2 and 8): the middle of its programs."""
_COLUMNS = {
    (MODEL, APE): "ape",
    (MODEL, TAU): "tau",
    (BEST, "kernels"): "kernels",
    (BEST, "runtime_ns"): "best_ns",
}


def analytical_scores(results: Results, chip: str) -> pd.DataFrame:
    """Returns the model's scores of every test program on a chip, over all kernels and over each kind.

    Columns are `group` (of kernels), `application`, `program`, `ape` in percent, `tau` (NaN where no kernel
    ranks anything), `kernels`, their number, `best_ns`, their runtime with the best tile sizes, executions
    counted, and `lost_ns`, the time lost by the model's choices.
    """
    tasks = [task for task in LEARNED if LEARNED[task].ranks_decisions]
    frame = select(results.frame, task=tasks, chip=chip, variant=MAIN, group=(ALL, *KINDS))
    keys = ["split", "group", "application", "program"]
    scores = pd.DataFrame(
        {
            column: means(select(frame, model=model, metric=metric), keys)
            for (model, metric), column in _COLUMNS.items()
        }
    )
    scores = scores.dropna(subset=["ape", "kernels", "best_ns"]).reset_index()
    # Of a program in several splits the last one counts.
    scores = scores.sort_values("split", key=lambda splits: splits.map(split_order), kind="stable")
    scores = scores.drop_duplicates(["group", "program"], keep="last")
    return scores.assign(lost_ns=scores["ape"] / 100.0 * scores["best_ns"])


def _summarise(scores: pd.DataFrame) -> dict[str, float]:
    """Returns several programs together: geometric mean of APE, APE of all time, mean and least tau."""
    taus = scores["tau"].dropna().to_numpy()
    sums = {column: float(scores[column].sum()) for column in ("kernels", "best_ns", "lost_ns")}
    return sums | {
        "programs": len(scores),
        "ape": geometric_mean(scores["ape"].to_numpy(), APE_FLOOR_PERCENT),
        "ape_pooled": 100.0 * sums["lost_ns"] / sums["best_ns"],
        "tau": float(np.mean(taus)) if len(taus) else np.nan,
        "tau_min": float(np.min(taus)) if len(taus) else np.nan,
    }


def _by_kind(scores: pd.DataFrame) -> pd.DataFrame:
    """Returns a summary for each kind of kernels that there are scores of, and for all kernels (`all`).

    Shares are those of all kernels' runtime and lost time, in percent.
    """
    groups = split_by(scores, ["group"])
    summaries = {group: _summarise(groups[group,]) for group in (*KINDS, ALL) if (group,) in groups}
    kinds = pd.DataFrame.from_dict(summaries, orient="index")
    for share, column in (("share_of_runtime", "best_ns"), ("share_of_loss", "lost_ns")):
        total = kinds[column].get(ALL, 0.0) if len(kinds) else 0.0
        kinds[share] = 100.0 * kinds[column] / total if total else 0.0
    return kinds


def _by_application(scores: pd.DataFrame) -> pd.DataFrame:
    """Returns a summary for each application over all kernels, and the kind in which most time is lost."""
    summaries: dict[str, dict[str, Value]] = {}
    for name, of_application in scores.groupby("application"):
        groups = _by_kind(of_application)
        if ALL not in groups.index:
            continue
        kinds = groups.drop(index=ALL)
        summary: dict[str, Value] = {**_summarise(of_application[of_application["group"] == ALL])}
        summary["worst_kind"] = ""
        if len(kinds) and kinds["lost_ns"].sum():
            worst = str(kinds["lost_ns"].idxmax())
            summary["worst_kind"] = worst
            summary["worst_share"] = 100.0 * kinds["lost_ns"][worst] / kinds["lost_ns"].sum()
            summary["worst_ape"] = kinds["ape_pooled"][worst]
        summaries[str(name)] = summary
    rows = pd.DataFrame.from_dict(summaries, orient="index").reindex(columns=_APPLICATION_COLUMNS)
    return rows.assign(**_beside_papers(rows["ape"], rows["tau"]))


_APPLICATION_COLUMNS = ["programs", "kernels", "ape", "tau", "worst_kind", "worst_share", "worst_ape"]


def _beside_papers(apes: Iterable[float], taus: Iterable[float]) -> dict[str, list[str]]:
    """Returns where APE and tau lie to the papers' neighbourhoods, as columns; nothing for NaN."""
    columns = {}
    for name, values, (low, high) in (("ape", apes, APE_NEAR_PAPERS), ("tau", taus, TAU_NEAR_PAPERS)):
        numbers = np.array([*values], dtype=np.float64)
        outside = [numbers < low, numbers > high, np.isnan(numbers)]
        columns[f"{name}_place"] = np.select(outside, ["below", "above", ""], "inside").tolist()
    return columns


def kind_table(scores: pd.DataFrame, chip: str) -> Table:
    """Returns a row for each kind of kernel: how many there are, time spent and lost there, APE and tau."""
    kinds = _by_kind(scores).rename(columns={"ape": "ape_mean", "tau": "tau_mean"}).reset_index(names="kind")
    return fill_table("analytical_kinds", kinds, name=f"analytical_kinds_{chip}", averages=1, chip=chip)


def application_table(scores: pd.DataFrame, chip: str) -> Table:
    """Returns a row for each application: APE, tau, how they lie to the papers', where most time is lost."""
    rows = _by_application(scores).reset_index(names="application")
    whole = scores[scores["group"] == ALL]
    has_average = bool(whole["tau"].notna().any())
    if has_average:
        total = pd.DataFrame([_summarise(whole) | {"application": "All programs", "worst_kind": ""}])
        rows = pd.concat([rows, total.assign(**_beside_papers(total["ape"], total["tau"]))])
    apes, taus = _printed("error"), _printed("tau")
    printed = _beside_papers(apes, taus)
    return fill_table(
        "analytical",
        rows.astype({"programs": int}),
        name=f"analytical_{chip}",
        averages=int(has_average),
        chip=chip,
        ape_low=apes[0],
        ape_high=apes[-1],
        tau_low=taus[0],
        tau_high=taus[-1],
        ape_inside=printed["ape_place"].count("inside"),
        tau_inside=printed["tau_place"].count("inside"),
        programs=len(apes),
    )


def _printed(metric: str) -> list[float]:
    """Returns what the paper prints for its programs, `error` or `tau`, ascending."""
    tables = [table for split in ("random", "manual") if (table := main_table("tile", split)) is not None]
    values = (table.value_in(row, f"{metric}_{MODEL}") for table in tables for row in table.rows)
    return sorted(value for value in values if value is not None)


def summarise_scores(scores: pd.DataFrame) -> dict[str, object] | None:
    """Returns how applications lie to the papers' neighbourhood, and which kinds of kernels stand out.

    Returns:
        `applications`: a mapping each, with the columns of `application_table`; `kinds`: of the kinds of
        kernels the one that loses most time, the one that is ranked best and the one that is ranked worst,
        None with fewer than two kinds. None without scores.
    """
    applications, groups = _by_application(scores), _by_kind(scores)
    if applications.empty:
        return None
    kinds = groups.drop(index=ALL).reset_index(names="name")
    ranked = kinds.sort_values("tau", key=lambda taus: taus.fillna(0.0), kind="stable").to_dict("records")
    return {
        "applications": applications.reset_index(names="name").to_dict("records"),
        "kinds": {
            "most_lost": max(kinds.to_dict("records"), key=lambda kind: float(kind["share_of_loss"])),
            "best_ranked": ranked[-1],
            "worst_ranked": ranked[0],
        }
        if len(kinds) > 1
        else None,
    }


def analytical_section(data: ReportData) -> Section | None:
    """Returns where the hand-written model does well and where not, by chip; None without its results."""
    chips = sorted({cell.chip for cell in data.results.cells if LEARNED[cell.task].ranks_decisions})
    scores = {chip: analytical_scores(data.results, chip) for chip in chips}
    scores = {chip: of_chip for chip, of_chip in scores.items() if (of_chip["group"] == ALL).any()}
    if not scores:
        return None
    tables = [
        table(groups, chip) for chip, groups in scores.items() for table in (application_table, kind_table)
    ]
    return Section(
        anchor="analytical",
        title="Where the analytical model does well and where not",
        label="Analytical model",
        page=TASK_PAGES["tile"],
        paragraphs=paragraphs(
            "results", "analytical", chips={chip: summarise_scores(groups) for chip, groups in scores.items()}
        ),
        tables=tuple(tables),
        folded=tuple(table.name for table in tables),
    )
