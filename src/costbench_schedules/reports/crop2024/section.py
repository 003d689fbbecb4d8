"""The section about crop2024: Table 2 beside the paper's, what each part of the model is worth, Figure 6."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.rows import MAIN
from costbench.params import load_section
from costbench.reports.declared_tables import fill_table
from costbench.reports.page import Section, page_figure, paragraphs
from costbench.reports.papers.printed import PrintedTable
from costbench.reports.table import Table
from costbench.rng import stream
from costbench_schedules.reports.crop2024.figures import write_demand, write_tiles
from costbench_schedules.reports.crop2024.guidance import (
    TEMPLATE,
    flat_guidance,
    guidance_figure,
    guidance_sentence,
    guidance_table,
)
from costbench_schedules.reports.crop2024.results import NetworkResults
from costbench_schedules.reports.tables import TABLES

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
_METRICS = ("top_1_score", "top_5_score", "kendall_tau", "mape")
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
    svg, _ = write_demand(results, figures)
    page_figures = [page_figure(svg, TEMPLATE, "demand")]
    page_figures += [page_figure(path, TEMPLATE, "tiles") for path in write_tiles(results, figures)[:1]]
    operators = sum(int(results.mean(CROP, MAIN, name, "operators") or 0) for name in results.networks)
    text = list(paragraphs(TEMPLATE, "lead", card=results.card, operators=operators))
    tables = [score_table(results), parts_table(results)]
    if any(model == _CHOICES[-1][0] for model, _ in results.models):
        tables.append(choices_table(results))
    if results.guided.rows:
        page_figures.append(guidance_figure(results.guided, figures))
        text.append(guidance_sentence(results.guided))
        tables.append(guidance_table(results.guided))
    return Section(
        anchor=ANCHOR,
        title="CPU schedules of networks: an analytical model across platforms",
        label="Networks",
        paragraphs=tuple(text),
        figures=tuple(page_figures),
        tables=tuple(tables),
    )


def score_table(results: NetworkResults) -> Table:
    """Returns Table 2 with the paper's rows below ours."""
    paper, names = printed_scores(), _names(results)
    rows: list[dict[str, object]] = []
    for model, variant, label, printed in _ROWS:
        for k in TOP:
            metric = f"top_{k}_score"
            ours = {_key(name): results.mean(model, variant, name, metric) for name in names}
            ours["average"] = results.over_networks(model, variant, metric)
            ours["records"] = results.over_networks(model, variant, "records")
            rows.append({"model": label, "source": "here", "k": k, **ours})
            if printed:
                values = {
                    _key(name): paper.value(f"{printed}:{k}", name) for name in (*names, "average", "records")
                }
                rows.append({"model": printed, "source": paper.paper, "k": k, **values})
    notes = paragraphs(TEMPLATE, "table2_note", seeds=results.seeds)
    across = {_key(name): name for name in names}
    return fill_table("crop2024_table2", rows, TABLES, notes=notes, across=across)


def parts_table(results: NetworkResults) -> Table:
    """Returns the analytical model without its parts, for other processors, and simpler models.

    Numbers are means over networks.
    """
    rows = [
        {"model": label}
        | {metric: results.over_networks(model, MAIN, metric) for metric in _METRICS}
        | {
            f"{metric}_difference": _difference(
                results, (model, MAIN), (CROP, MAIN), metric, f"crop-parts/{model}/{metric}"
            )
            for metric in ("top_1_score", "kendall_tau")
        }
        for model, label in _PARTS
    ]
    return fill_table("crop_parts", rows, TABLES)


def choices_table(results: NetworkResults) -> Table:
    """Returns boosted trees that are fitted to target records chosen in different ways."""
    variants = {variant for model, variant in results.models if model == _CHOICES[-1][0]}
    asked = sorted((variant for variant in variants if variant.isdigit() and variant != "0"), key=int)
    rows = [
        {"choice": label, "records": results.over_networks(model, variant, "records")}
        | {metric: results.over_networks(model, variant, metric) for metric in ("top_1_score", "kendall_tau")}
        | {
            f"{metric}_more": _difference(results, (model, variant), (_CHOICES[0][0], variant), metric)
            for metric in ("top_1_score", "kendall_tau")
        }
        for variant in asked
        for model, label in _CHOICES
    ]
    return fill_table("crop_records", rows, TABLES)


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
        for metric in _METRICS:
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
