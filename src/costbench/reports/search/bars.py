"""Defines the bars in figures of searches: which ones, their order, names and colours.

A model has the same colour as in other figures; a bar without filling had few or no measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costbench.reports.figures.results import COLOURS
from costbench.reports.search.results import Bar, Place

TOP_K = 10
"""Tile sizes per kernel that lpm2021's figure 4 measures."""
EXHAUSTIVE = Bar("exhaustive", "all")
IN_COMPILER = Bar("learned", "compiler")
BEST_KNOWN = "best known"
BEST_OF_ALL = Bar(BEST_KNOWN, "all")
"""Fastest fusion config of all searches of a program, and of one more that is free of charge."""
CANDIDATES = Bar("sample", "all")
"""All tile sizes that models rank."""
TILE_MODELS = ("learned", "tuned", "hybrid", "alternating", "analytical", "random")
TILE_TITLES: Mapping[str, str] = {"tuned": "best of sweep", CANDIDATES.model: "all candidates"}
FIGURE_4: tuple[Bar, ...] = (
    EXHAUSTIVE,
    IN_COMPILER,
    *(Bar(model, f"top{TOP_K}") for model in ("learned", "hybrid", "alternating", "analytical", "random")),
)
"""Bars of lpm2021's figure 4; it has neither hybrid ones nor random."""
FUSION_MODELS: Mapping[str, str] = {
    "hardware": "hardware",
    "model and hardware": "model, then hardware",
    "hybrid and hardware": "hybrid, then hardware",
    "analytical and hardware": "analytical, then hardware",
    BEST_KNOWN: "best known",
}
MINUTES: Mapping[str, tuple[float, ...]] = {"lpm2021": (1.0, 10.0), "lpm2020": (5.0,)}
"""Of hardware, in figure 5 of lpm2021 and figure 4 of lpm2020."""
STARTS: Mapping[str, str] = {"default": "the compiler's default", "random": "a random configuration"}
_BAR_COLOURS: Mapping[str, str] = {
    **COLOURS,
    "exhaustive": "#222222",
    "alternating": "#009E73",
    "hardware": "#D55E00",
    "model and hardware": COLOURS["learned"],
    "hybrid and hardware": COLOURS["hybrid"],
    "analytical and hardware": COLOURS["analytical"],
    BEST_KNOWN: "#222222",
}


def colour(model: str) -> str:
    """Of everything that a model, or a search with it, is drawn with."""
    return _BAR_COLOURS.get(model, "#777777")


def title(bar: Bar) -> str:
    """`learned 10`, `model, then hardware 1 min`."""
    if bar.minutes is not None:
        return f"{FUSION_MODELS.get(bar.model, bar.model)} {bar.minutes:g} min"
    name = TILE_TITLES.get(bar.model, bar.model)
    if bar.budget == "compiler":
        return f"{name} 1, in the compiler"
    return name if bar.top_k is None else f"{name} {bar.top_k}"


def key(bar: Bar) -> str:
    """The bar as part of names of columns: `learned_top10`, `model_and_hardware_1m`."""
    budget = bar.budget if bar.start is None else bar.budget.removeprefix(f"{bar.start}-")
    return f"{bar.model}_{budget}".replace(" ", "_")


def figure_5(start: str, paper: str) -> tuple[Bar, ...]:
    """Bars of the papers' figures of fusion searches from one start, best known left out.

    Args:
        start: `default` or `random`.
        paper: whose minutes of hardware.
    """
    names = [name for name in FUSION_MODELS if name != BEST_KNOWN]
    return tuple(Bar(name, f"{start}-{number:g}m") for name in names for number in MINUTES[paper])


def best_known(place: Place) -> tuple[Bar, ...]:
    """The best of all fusion searches; nothing where there were none."""
    return there((BEST_OF_ALL,), place)


def there(bars: Sequence[Bar], *places: Place) -> tuple[Bar, ...]:
    """Those of the bars that were run anywhere in the places."""
    ran = {bar for place in places for bar in place.bars}
    return tuple(bar for bar in bars if bar in ran)


def absent(bars: Sequence[Bar], *places: Place) -> str:
    """A sentence that names those which were not run; empty if all were."""
    lacking = [title(bar) for bar in bars if bar not in there(bars, *places)]
    return f"Not run here: {'; '.join(lacking)}." if lacking else ""
