"""The section about crop2024: Table 2 beside the paper's, what each part of the model is worth, Figure 6."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.rows import MAIN
from costbench.params import load_section
from costbench.reports.page import PageFigure, Section
from costbench.reports.papers.printed import PrintedTable
from costbench.reports.table import Column, Table, Value
from costbench.rng import stream
from costbench_schedules.reports.crop2024.figures import write_demand, write_tiles
from costbench_schedules.reports.crop2024.guidance import (
    flat_guidance,
    guidance_figure,
    guidance_sentence,
    guidance_table,
)
from costbench_schedules.reports.crop2024.results import NetworkResults

_PRINTED = Path(__file__).with_name("printed.yaml")


def printed_scores() -> PrintedTable:
    """Returns Table 2: a row for each model and k, labelled `MODEL:k`, a column for each network.

    Raises:
        ParamsError: if the data file of the package is broken.
    """
    return load_section(_PRINTED, "scores", PrintedTable)


ANCHOR = "networks"
ALL = "all"
CROP = "crop"
TOP = (1, 5)
_ROWS = (
    ("mlp", ALL, "MLP", "MLP"),
    ("gbt", ALL, "boosted trees", "XGBoost"),
    (CROP, MAIN, "Crop", "Crop"),
    ("hybrid", ALL, "trees on Crop", ""),
)
_CHOICES = (
    ("gbt", "25 of each operator, operator by operator"),
    ("gbt-uniform", "drawn at random from all operators"),
    ("gbt-informative", "chosen by representativeness, diversity, uncertainty"),
)
_PARTS = (
    (CROP, "all of it"),
    ("crop-no-memory", "all lines in the first cache"),
    ("crop-no-branches", "all branches predicted"),
    ("crop-5220r", "described as an Intel Xeon Gold 5220R"),
    ("crop-7763", "described as an AMD EPYC 7763"),
    ("throughput", "busiest resource of each block, no dependences"),
    ("roofline", "roofline"),
    ("instructions", "number of instructions"),
    ("random", "random numbers"),
)


def networks_section(results: NetworkResults, figures: Path) -> Section | None:
    """Returns the section, or None where no programs of networks were tested.

    Args:
        results: results of the stage `schedules`.
        figures: folder that figures are written to.

    Raises:
        DataError: if a figure cannot be written.
    """
    if not results.networks:
        return None
    page_figures = [
        PageFigure(
            write_demand(results, figures)[0],
            "Top-1 score against the number of target records, a line for each model.",
            "Top-1 score, mean over networks, against programs measured on the target. The analytical model "
            "needs none; learned models without any are fitted to the source platform.",
        )
    ]
    if tiles := write_tiles(results, figures):
        caption = (
            "Figure 6 of crop2024: measured and predicted runtime over the innermost tile of the output."
        )
        page_figures.append(
            PageFigure(tiles[0], "Curves of runtime over tile sizes, a panel for each operator.", caption)
        )
    paragraphs, tables = [_lead(results)], [score_table(results), parts_table(results)]
    if any(model == _CHOICES[-1][0] for model, _ in results.models):
        tables.append(choices_table(results))
    if results.guided.rows:
        page_figures.append(guidance_figure(results.guided, figures))
        paragraphs.append(guidance_sentence(results.guided))
        tables.append(guidance_table(results.guided))
    return Section(
        anchor=ANCHOR,
        title="CPU schedules of networks: an analytical model across platforms",
        label="Networks",
        paragraphs=tuple(paragraphs),
        figures=tuple(page_figures),
        tables=tuple(tables),
    )


def _lead(results: NetworkResults) -> str:
    card = results.card
    operators = sum(int(results.mean("crop", MAIN, name, "operators") or 0) for name in results.networks)
    return (
        f"{card.get('analysed', 0):,} programs of {card.get('operators', 0)} operators were measured on "
        f"{card.get('processor', 'a processor')} and analysed; the networks have {operators} of them, some "
        "in common. Half are random schedules, half those of a short search. Crop predicts from LLVM IR and "
        "a description of the processor and was fitted to nothing. Learned models have seen no operator of "
        "the network that they are tested on. Their source platform is code for the least processor of the "
        "family, their target code for the processor itself."
    )


def score_table(results: NetworkResults) -> Table:
    """Returns Table 2 with the paper's rows below ours."""
    paper, names = printed_scores(), _names(results)
    rows: list[tuple[Value, ...]] = []
    for model, variant, label, printed in _ROWS:
        for k in TOP:
            scores = [results.mean(model, variant, name, f"top_{k}_score") for name in names]
            demand = results.over_networks(model, variant, "records")
            average = results.over_networks(model, variant, f"top_{k}_score")
            rows.append((label, "here", k, *scores, average, demand))
            if printed:
                values = [paper.value(f"{printed}:{k}", name) for name in (*names, "average", "records")]
                rows.append((printed, paper.paper, k, *values))
    columns = (
        Column("model", "Model"),
        Column("source", "From"),
        Column("k", "Top", count=True),
        *(Column(_key(name), name, "Score", 3) for name in names),
        Column("average", "average", "Score", 3),
        Column("records", "Target records", count=True),
    )
    notes = (
        "The score is the network's time with the fastest programs over that with the fastest of the k "
        "programs that are predicted fastest, operators weighed by their executions. The paper has TenSet's "
        "programs on another processor and millions of target records. Its average is over five networks. "
        "Learned models have one seed unless said otherwise, and their sizes were not searched. The paper's "
        "TLP is left out: a few thousand records teach it their own order and nothing about other operators.",
    )
    return Table("crop2024_table2", "Top-k scores of models of schedules", columns, tuple(rows), 0, notes)


def parts_table(results: NetworkResults) -> Table:
    """Returns the analytical model without its parts, for other processors, and simpler models.

    Numbers are means over networks.
    """
    metrics = ("top_1_score", "top_5_score", "kendall_tau", "mape")
    rows = tuple(
        (
            label,
            *(results.over_networks(model, MAIN, metric) for metric in metrics),
            *(_to_the_whole(results, model, metric) for metric in ("top_1_score", "kendall_tau")),
        )
        for model, label in _PARTS
    )
    columns = (
        Column("model", "Model"),
        Column("top_1_score", "1", "Top-k score", 3, "higher"),
        Column("top_5_score", "5", "Top-k score", 3, "higher"),
        Column("kendall_tau", "Kendall's τ", "", 3, "higher"),
        Column("mape", "MAPE (%)", "", 1, "lower"),
        Column("top_1_score_difference", "top-1 score", "Difference to all of it, by operator"),
        Column("kendall_tau_difference", "Kendall's τ", "Difference to all of it, by operator"),
    )
    notes = (
        "The last columns have the mean over operators of the difference to the first row, each operator "
        "counting once, and its 95% interval over operators: one around 0 tells nothing.",
        "Nothing is fitted. MAPE is of models that predict the time on this processor; tau is the mean over "
        "operators.",
    )
    return Table(
        "crop_parts", "The analytical model, and what is left without its parts", columns, rows, 0, notes
    )


def choices_table(results: NetworkResults) -> Table:
    """Returns boosted trees that are fitted to target records chosen in different ways."""
    metrics = ("top_1_score", "kendall_tau")
    variants = {variant for model, variant in results.models if model == _CHOICES[-1][0]}
    asked = sorted((variant for variant in variants if variant.isdigit() and variant != "0"), key=int)
    rows: list[tuple[Value, ...]] = []
    for variant in asked:
        for model, label in _CHOICES:
            rows.append(
                (
                    label,
                    results.over_networks(model, variant, "records"),
                    *(results.over_networks(model, variant, metric) for metric in metrics),
                    *(
                        _difference(results, (model, variant), (_CHOICES[0][0], variant), metric)
                        for metric in metrics
                    ),
                )
            )
    columns = (
        Column("choice", "Records of the target"),
        Column("records", "Number", count=True),
        Column("top_1_score", "Top-1 score", "", 3),
        Column("kendall_tau", "Kendall's τ", "", 3),
        Column("top_1_score_more", "top-1 score", "More than operator by operator"),
        Column("kendall_tau_more", "Kendall's τ", "More than operator by operator"),
    )
    notes = (
        "Boosted trees on relation features, means over networks. Differences are means over operators with "
        "95% intervals. The third way is after TCL (2026), which chooses a tenth of the programs.",
    )
    return Table("crop_records", "Which programs to measure on the target", columns, tuple(rows), 0, notes)


def _to_the_whole(results: NetworkResults, model: str, metric: str) -> str | None:
    """Returns by how much a model is above the analytical one, with the interval over operators."""
    return _difference(results, (model, MAIN), (CROP, MAIN), metric, f"crop-parts/{model}/{metric}")


def _difference(
    results: NetworkResults, model: tuple[str, str], other: tuple[str, str], metric: str, name: str = ""
) -> str | None:
    """Returns by how much a model with its variant is above another, with the 95% interval over operators."""
    part, whole = (results.of_operators(*side, metric) for side in (model, other))
    both = whole.index.intersection(part.index)
    if model == other or both.empty:
        return None
    draws = stream(0, name or "/".join(("crop", *model, *other, metric)))
    interval = paired_bootstrap(part[both], whole[both], draws)
    return f"{interval.difference:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def flat_networks(results: NetworkResults) -> dict[str, float]:
    """Returns headline numbers by key.

    `crop/{model}/{variant}/{metric}` of all models, means over networks,
    `crop/{model}/{variant}/{network}/{metric}` of the rows of Table 2, and those of `flat_guidance`.
    """
    numbers = flat_guidance(results.guided)
    for model, variant in results.models:
        for metric in ("top_1_score", "top_5_score", "kendall_tau", "mape"):
            value = results.over_networks(model, variant, metric)
            if value is not None:
                numbers[f"crop/{model}/{variant}/{metric}"] = value
    for model, variant, _, _ in _ROWS:
        for name in results.networks:
            for k in TOP:
                value = results.mean(model, variant, name, f"top_{k}_score")
                if value is not None:
                    numbers[f"crop/{model}/{variant}/{_key(name)}/top_{k}_score"] = value
    return numbers


def _names(results: NetworkResults) -> tuple[str, ...]:
    """Returns the networks in the paper's order."""
    return tuple(name for name in printed_scores().columns if name in results.networks)


def _key(network: str) -> str:
    return network.lower().replace("-", "_")
