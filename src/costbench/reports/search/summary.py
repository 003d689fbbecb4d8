"""Headline numbers of searches: every bar of lpm2021's figures 4 and 5 and of lpm2020's figure 4.

- `autotune/tile/{split}/{chip}/{program}/{model}/{budget}/speedup`, `.../slowdown`: of figure 4's bars
  and of all candidates (`sample/all`);
- `autotune/fusion/{split}/{chip}/{program}/{start}/{model}/{minutes}m/speedup_median`, `_min`, `_max`;
- `autotune/fusion/{split}/{chip}/{program}/best_known/all/...`: likewise, of the best of all searches;
- `all` in place of a program: over programs, for every budget that was run. `speedup_mean` is the geometric
  mean (of medians over repeats), `slowdown_mean` the arithmetic one, `num_measured_total` and
  `hardware_seconds_total` are sums (fusion: means of a search), `fewer_hardware_seconds` says how many times
  fewer seconds were charged than for exhaustive search.

Models have underscores for spaces: `model_and_hardware`.
"""

from __future__ import annotations

from costbench.reports.search.bars import CANDIDATES, EXHAUSTIVE, FIGURE_4
from costbench.reports.search.results import (
    MEASURED,
    PREDICTED,
    SECONDS,
    SLOWDOWN,
    SPEEDUP,
    Bar,
    Place,
    Searches,
)
from costbench.tasks import LEARNED

_ALL = "all"


def flat_searches(searches: Searches) -> dict[str, float]:
    """Headline numbers by key as in the module's description."""
    flat: dict[str, float | None] = {}
    for place in searches.places:
        for bar in place.bars:
            flat |= _tile(place, bar) if LEARNED[place.task].ranks_decisions else _fusion(place, bar)
    return {key: value for key, value in flat.items() if value is not None}


def _key(place: Place, program: str, bar: Bar) -> str:
    way = f"{bar.model}/{bar.budget}"
    if bar.start is not None:
        way = f"{bar.start}/{bar.model}/{bar.minutes:g}m"
    return f"autotune/{place.task}/{place.split}/{place.chip}/{program}/{way}".replace(" ", "_")


def _tile(place: Place, bar: Bar) -> dict[str, float | None]:
    key = _key(place, _ALL, bar)
    found = {
        f"{key}/speedup_mean": place.mean(bar, SPEEDUP),
        f"{key}/slowdown_mean": place.mean(bar, SLOWDOWN),
        f"{key}/num_measured_total": sum(place.over_programs(bar, MEASURED)),
        f"{key}/hardware_seconds_total": sum(place.over_programs(bar, SECONDS)),
        f"{key}/fewer_hardware_seconds": place.fewer_seconds(bar, EXHAUSTIVE),
    }
    if bar in (*FIGURE_4, CANDIDATES):
        for _, program in place.programs:
            for metric in (SPEEDUP, SLOWDOWN):
                found[f"{_key(place, program, bar)}/{metric}"] = place.score(bar, metric, program)
    return found


def _fusion(place: Place, bar: Bar) -> dict[str, float | None]:
    key = _key(place, _ALL, bar)
    found: dict[str, float | None] = {f"{key}/speedup_mean": place.mean(bar, SPEEDUP)}
    for metric in (SLOWDOWN, MEASURED, SECONDS, PREDICTED):
        found[f"{key}/{metric}_mean"] = place.mean(bar, metric)
    for _, program in place.programs:
        repeats = place.repeats(bar, SPEEDUP, program)
        if repeats:
            own = _key(place, program, bar)
            found[f"{own}/speedup_median"] = place.score(bar, SPEEDUP, program)
            found |= {f"{own}/speedup_min": min(repeats), f"{own}/speedup_max": max(repeats)}
    return found
