"""The section about crop2024: Table 2 beside the paper's, what each part of the model is worth, Figure 6."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costbench.reports.networks.figures import write_demand, write_tiles
from costbench.reports.networks.results import NetworkResults
from costbench.reports.page import PageFigure, Section
from costbench.reports.table import Column, Table, Value

ANCHOR = "networks"
ALL, MAIN = "all", "main"
_ORDER = ("ResNet-50", "MobileNet-V2", "ResNeXt-50", "BERT-tiny", "BERT-base")
TOP = (1, 5)
_PRINTED: Mapping[tuple[str, int], tuple[float, ...]] = {
    ("MLP", 1): (0.8951, 0.7081, 0.6847, 0.8098, 0.8634, 0.7922),
    ("MLP", 5): (0.9348, 0.8865, 0.9153, 0.8825, 0.9302, 0.9098),
    ("XGBoost", 1): (0.8547, 0.7259, 0.8504, 0.6620, 0.7582, 0.7702),
    ("XGBoost", 5): (0.9430, 0.9173, 0.8937, 0.8506, 0.9442, 0.9097),
    ("TLP", 1): (0.9255, 0.8117, 0.8880, 0.8495, 0.8967, 0.8742),
    ("TLP", 5): (0.9642, 0.9304, 0.9491, 0.9201, 0.9525, 0.9432),
    ("Crop", 1): (0.8132, 0.7266, 0.7083, 0.7861, 0.7381, 0.7545),
    ("Crop", 5): (0.8581, 0.8824, 0.8337, 0.8608, 0.8897, 0.8650),
}
"""Table 2 as printed; the last number is the average."""
_ROWS = (
    ("mlp", ALL, "MLP", "MLP"),
    ("gbt", ALL, "boosted trees", "XGBoost"),
    ("tlp", ALL, "TLP", "TLP"),
    ("crop", MAIN, "Crop", "Crop"),
    ("hybrid", ALL, "trees on Crop", ""),
)
_PARTS = (
    ("crop", "all of it"),
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
        results: of the stage `autotune`.
        figures: folder that figures go to.

    Raises:
        DataError: if a figure cannot be written.
    """
    if not results.networks:
        return None
    drawn = [
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
        drawn.append(
            PageFigure(tiles[0], "Curves of runtime over tile sizes, a panel for each operator.", caption)
        )
    return Section(
        anchor=ANCHOR,
        title="CPU schedules of networks: an analytical model across platforms",
        label="Networks",
        paragraphs=(_lead(results),),
        figures=tuple(drawn),
        tables=(score_table(results), parts_table(results)),
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
    names = _names(results)
    rows: list[tuple[Value, ...]] = []
    for model, variant, label, printed in _ROWS:
        for k in TOP:
            own = [results.mean(model, variant, name, f"top_{k}_score") for name in names]
            demand = results.over_networks(model, variant, "records")
            average = results.over_networks(model, variant, f"top_{k}_score")
            rows.append((label, "here", k, *own, average, demand))
            if printed:
                places = [_ORDER.index(name) for name in names]
                values = _PRINTED[printed, k]
                rows.append((printed, "crop2024", k, *(values[place] for place in places), values[-1], None))
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
        "programs on another processor and millions of target records. Its average is over five networks.",
    )
    return Table("crop2024_table2", "Top-k scores of models of schedules", columns, tuple(rows), 0, notes)


def parts_table(results: NetworkResults) -> Table:
    """Returns the analytical model without its parts, for other processors, and simpler models; means over
    networks.
    """
    metrics = ("top_1_score", "top_5_score", "kendall_tau", "mape")
    rows = tuple(
        (label, *(results.over_networks(model, MAIN, metric) for metric in metrics))
        for model, label in _PARTS
    )
    columns = (
        Column("model", "Model"),
        Column("top_1_score", "1", "Top-k score", 3, "higher"),
        Column("top_5_score", "5", "Top-k score", 3, "higher"),
        Column("kendall_tau", "Kendall's τ", "", 3, "higher"),
        Column("mape", "MAPE (%)", "", 1, "lower"),
    )
    notes = (
        "Nothing is fitted. MAPE is of models that predict the time on this processor; tau is the mean over "
        "operators.",
    )
    return Table(
        "crop_parts", "The analytical model, and what is left without its parts", columns, rows, 0, notes
    )


def flat_networks(results: NetworkResults) -> dict[str, float]:
    """Returns `crop/{model}/{variant}/{metric}` of all models, means over networks, and
    `crop/{model}/{variant}/{network}/{metric}` of the rows of Table 2.
    """
    found = {}
    for model, variant in results.models:
        for metric in ("top_1_score", "top_5_score", "kendall_tau", "mape"):
            value = results.over_networks(model, variant, metric)
            if value is not None:
                found[f"crop/{model}/{variant}/{metric}"] = value
    for model, variant, _, _ in _ROWS:
        for name in results.networks:
            for k in TOP:
                value = results.mean(model, variant, name, f"top_{k}_score")
                if value is not None:
                    found[f"crop/{model}/{variant}/{_key(name)}/top_{k}_score"] = value
    return found


def _names(results: NetworkResults) -> tuple[str, ...]:
    return tuple(name for name in _ORDER if name in results.networks)


def _key(network: str) -> str:
    return network.lower().replace("-", "_")
