"""The headline: packed results of networks and boosted trees trained until more would not change their order.

They are those of an archive (`costbench.experiments.archive`), which takes hours to compute and stands beside
a report's own results: what the first page says of a task, and every comparison on folds that the archive has
all sides of, rests on it. Of boosted trees that were fitted with several budgets, the one that is best on
validation programs, mean over folds and seeds, is the model `trees` or `trees_analytical`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from costbench.artifacts import read_json
from costbench.baselines import FITS_FILE
from costbench.datasets.splits import reported_split
from costbench.errors import DataError
from costbench.experiments.archive import (
    MANIFEST_FILE,
    POINTS,
    ROWS,
    read_archive,
    read_manifest,
    table_of,
    write_results,
)
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin
from costbench.reports.claims.claim import Claim, Side
from costbench.reports.dataset_files import mapping
from costbench.reports.figures.search_curves import SearchPath, read_paths
from costbench.reports.frame import (
    ORDER,
    frame_of,
    frame_of_packed,
    select,
    split_by,
    split_user_programs,
    stack,
)
from costbench.reports.results import ALL, PRIMARY_CHIP, TRAINED, Results, results_of
from costbench.reports.searches import Searches, searches_of
from costbench.reports.tables.learning_curves import Curves, is_curve, learning_curves
from costbench.reports.training_guard import (
    CURVE_OF,
    MAIN_NETWORK,
    ModelBudget,
    NetworkKey,
    TrainingGuard,
    guard_training,
    is_settled,
    network_of,
)
from costbench.reports.training_runs import Budget, read_budgets, read_selected
from costbench.tasks import LEARNED

_BASELINES = re.compile(
    r"baselines-(?P<split>[a-z_]+[0-9]*)-(?P<chip>[A-Za-z0-9_.]+)(?:-(?P<budget>[a-z0-9_-]+)-seed(?P<seed>\d+))?"
)


@dataclass(frozen=True)
class HeadlineParams:
    """Keys `headline` and `real` of section `report`: packed results that the first page rests on.

    Attributes:
        results: folder of the archive, from the repository's root; where it is not there, a report has its
            own results alone.
        networks: experiments with networks at their plateau.
        trees: experiments with boosted trees of several budgets.
        curves: experiments with learning curves of the same networks.
        orders: experiments with learning curves of networks that the papers compare with each other, by which
            these are judged; they have no part in who leads at which budget.
        estimates: experiments with estimates of several qualities.
        runs: experiments with further runs of variants of `networks`, which count in verdicts alone (these
            compare models by equal numbers of runs) -> how often their claims were looked at before they were
            complete.
    """

    results: str
    networks: tuple[str, ...]
    trees: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()
    estimates: tuple[str, ...] = ()
    runs: Mapping[str, int] = field(default_factory=dict)


POINT_COLUMNS = (
    *("task", "split", "chip", "model", "steps", "kernels", "trees", "core_seconds"),
    *("validation", "error", "tau", "is_chosen"),
)
"""Columns of models after each budget:

- `model`: `learned`, `hybrid`, `lpm2021`, `trees` or `trees_analytical`;
- `steps` to `core_seconds`: what it was given (`ModelBudget`);
- `validation`: validation value by which budgets are compared, mean over folds and seeds;
- `error`, `tau`: mean error on the test programs, in percent, and mean of Kendall's tau; None where they were
  not evaluated;
- `is_chosen`: whether it is the budget that counts.
"""


@dataclass(frozen=True)
class Headline:
    """What an archive of headline results holds.

    Attributes:
        results: results of networks and chosen trees.
        further_runs: rows of further runs of these networks.
        looks: experiment with such runs -> how often claims were looked at before it was complete.
        budgets: budgets of the networks, those of learning curves left out.
        curves: learning curves.
        guard: networks that were not trained enough by these curves, and what each model was given.
        points: models after each budget, by task and model, with the columns `POINT_COLUMNS`.
        estimates: results for estimates of several qualities; None without any.
        given_estimates: task -> what these models were given: `steps` and `seeds` of networks, `kernels` of
            trees.
        training_times: measured processor time of a step by network, fold and seed, as rows for claims.
        searches: searches with these networks.
        search_paths: curves of the fusion searches among them.
        profile: name of the profile that it is of.
        missing: experiments that are named and not there.
        facts: what the numbers follow from, name -> value.
    """

    results: Results
    further_runs: pd.DataFrame
    looks: Mapping[str, int]
    budgets: tuple[Budget, ...]
    curves: tuple[Curves, ...]
    guard: TrainingGuard
    points: pd.DataFrame
    estimates: Results | None
    given_estimates: Mapping[str, Mapping[str, int]]
    training_times: pd.DataFrame
    searches: Searches
    search_paths: tuple[SearchPath, ...]
    profile: str = ""
    missing: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def every_run(self) -> pd.DataFrame:
        """Returns the rows of results and further runs, which verdicts rest on."""
        return stack([self.results.frame, self.further_runs])

    @property
    def chip(self) -> str:
        """Name of the chip, or of the machine, that the results are of; of several the primary one."""
        return str(min(self.results.frame["chip"].unique(), key=lambda chip: (chip != PRIMARY_CHIP, chip)))


def load_headline(
    params: HeadlineParams, columns: Mapping[str, str], claims: Sequence[Claim]
) -> Headline | None:
    """Returns the headline results of an archive; None where there is no archive, or no result of a network.

    Args:
        params: folder of the archive, from the working directory, and names of its experiments.
        columns: task -> column of training histories that learning curves are of.
        claims: claims of the papers, for the guard.

    Raises:
        DataError: for an archive that is damaged.
    """
    folder = Path(params.results)
    if not (folder / MANIFEST_FILE).is_file():
        return None
    manifest = read_manifest(folder)
    parts = read_archive(folder, manifest)
    rows = {
        name.removeprefix("experiments/"): frame_of_packed(part.tables[ROWS], folder / ROWS)
        for name, part in parts.items()
        if len(part.tables[ROWS])
    }
    roles = (params.networks, params.trees, params.curves, params.orders, params.estimates)
    runs = {name: looks for name, looks in params.runs.items() if name in rows}
    networks, trees, curves, orders, estimates = (tuple(filter(rows.__contains__, names)) for names in roles)
    present = HeadlineParams(params.results, networks, trees, curves, orders, estimates, runs)
    if not any((present.networks, present.trees, present.curves, present.orders)):
        return None
    other = {file: table_of(file, ()) for file in (ROWS, POINTS)}
    with TemporaryDirectory() as unpacked:
        for part in parts.values():
            write_results(Path(unpacked), {**part.tables, **other}, _write_unflushed)
        headline = _read_headline(Path(unpacked), present, rows, columns, claims)
    named = (*chain.from_iterable(roles), *params.runs)
    used = [manifest.parts[f"experiments/{name}"] for name in named if name in rows]
    digests = {
        "parameters": {part.params_digest for part in used},
        "samples": {part.data_digest for part in used},
        "code": {part.code_digest for part in used},
    }
    return replace(
        headline,
        profile=manifest.profile,
        missing=tuple(name for name in named if name not in rows),
        facts={name: ", ".join(sorted(values)) for name, values in digests.items()},
    )


def _write_unflushed(path: Path, text: str) -> None:
    """Writes a file that is gone in a moment: flushing thousands to the disk would take half a minute."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"cannot write: {error.strerror or error}", where=path) from error


def _read_headline(
    out: Path,
    params: HeadlineParams,
    rows: Mapping[str, pd.DataFrame],
    columns: Mapping[str, str],
    claims: Sequence[Claim],
) -> Headline:
    """Returns the same of experiments with rows whose other files are in the folder `out`."""

    def results_of_experiments(names: Iterable[str]) -> Results:
        return results_of([rows[name] for name in names], params.results)

    fits = read_fits(out, {name: _task_of(rows[name]) for name in params.trees})
    named = (*params.networks, *params.trees, *params.curves, *params.orders)
    results = with_chosen_trees(results_of_experiments(named), fits)
    further = [select(rows[name], model=TRAINED) for name in params.runs]
    trained, of_curves, of_orders = (
        [path.parent for name in names for path in sorted((out / "train" / name).glob("*-s[0-9]*/done.json"))]
        for names in (params.networks, params.curves, params.orders)
    )
    folders = (*trained, *of_curves, *of_orders)
    budgets = read_budgets(folders)
    selected = read_selected(folders, budgets, columns, is_curve)
    curves = learning_curves(results, selected, budgets, columns)
    core_seconds = _core_seconds(out, budgets)
    curves_of_leading, curves_of_compared = (
        learning_curves(
            results, [point for point in selected if point.budget.experiment in names], budgets, columns
        )
        for names in (params.curves, params.orders)
    )
    points = pd.DataFrame(
        (*_points_of_networks(curves_of_leading, core_seconds), *_points_of_trees(results, fits)),
        columns=list(POINT_COLUMNS),
        dtype=object,
    )
    guard = replace(
        guard_training(results, budgets, curves, claims),
        given=_model_budgets(budgets, core_seconds, fits),
        settled=settled_models(points) | _settled_variants(curves_of_compared),
    )
    searches, paths = rows.get("autotune"), out / "autotune" / "search.json"
    return Headline(
        results=results,
        further_runs=split_user_programs(stack([results.frame.iloc[:0], *further]))[0],
        looks=params.runs,
        budgets=read_budgets(trained),
        curves=curves,
        guard=guard,
        points=points,
        estimates=results_of_experiments(params.estimates) if params.estimates else None,
        given_estimates=_given_estimates(out, {name: _task_of(rows[name]) for name in params.estimates}),
        training_times=_training_times(core_seconds),
        searches=Searches() if searches is None else searches_of(searches.sort_values(list(ORDER))),
        search_paths=read_paths(paths if paths.is_file() else None),
    )


def read_fits(out: Path, tasks: Mapping[str, str]) -> pd.DataFrame:
    """Returns a row for each model of each fit of boosted trees.

    Args:
        out: output folder of a profile.
        tasks: name of an experiment -> its task.

    Returns:
        columns `task`, `split`, `chip`, `model`, `budget` (`main` where experiments have none), `seed`,
        `kernels`, `samples`, `trees`, `validation`, `core_seconds` (NaN where nobody measured them), and
        `is_chosen`: whether the budget is the best of its model.

    Raises:
        DataError: for a damaged file.
    """
    rows = []
    for experiment, task in tasks.items():
        for path in sorted((out / "train" / experiment).glob(f"baselines-*/{FITS_FILE}")):
            match = _BASELINES.fullmatch(path.parent.name)
            if match is None:
                continue  # Those fitted to estimates of a further quality.
            timing = out / "machine" / "train" / experiment / f"{path.parent.name}.json"
            seconds = _seconds_in(timing)
            of_models = mapping(seconds, timing, "core_seconds") if seconds is not None else {}
            named = {
                "task": task,
                "split": reported_split(match["split"]),
                "chip": match["chip"],
                "budget": match["budget"] or MAIN,
                "seed": int(match["seed"] or 0),
            }
            rows += [
                {**named, "model": model, **mapping(given, path, model), "core_seconds": of_models.get(model)}
                for model, given in mapping(read_json(path), path, "").items()
            ]
    keys = ["task", "split", "chip", "model", "budget", "seed"]
    columns = [*keys, "kernels", "samples", "trees", "validation", "core_seconds"]
    fits = pd.DataFrame(rows, columns=columns).astype({"core_seconds": "float64", "validation": "float64"})
    chosen = []
    for (task, *_), of_model in split_by(fits, ["task", "split", "chip", "model"]).items():
        values = of_model.groupby("budget", sort=False)["validation"].mean()
        best = values.idxmax() if LEARNED[task].ranks_decisions else values.idxmin()
        chosen += of_model.index[of_model["budget"] == best].tolist()
    return fits.assign(is_chosen=fits.index.isin(chosen))


def _given_estimates(out: Path, tasks: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Returns what models of experiments were given by task, where there are networks and trees."""
    given = {}
    for experiment, task in tasks.items():
        cells = [path.parent for path in (out / "train" / experiment).glob("*-s[0-9]*/done.json")]
        networks = pd.DataFrame(map(asdict, read_budgets(cells)))
        kernels = read_fits(out, {experiment: task})["kernels"]
        if networks.empty or kernels.empty:
            continue
        numbers = {
            "steps": networks["steps"].min(),
            "seeds": networks["seed"].nunique(),
            "kernels": kernels.max(),
        }
        given[task] = {name: int(number) for name, number in numbers.items()}
    return given


def _seconds_in(timing: Path) -> object:
    """Returns the processor time in a file of the machine's facts; None where there is none."""
    return mapping(read_json(timing), timing, "").get("core_seconds") if timing.is_file() else None


def _task_of(rows: pd.DataFrame) -> str:
    """Returns the task that the rows of an experiment are of."""
    return str(rows["task"].iloc[0])


def with_chosen_trees(results: Results, fits: pd.DataFrame) -> Results:
    """Returns the results with the chosen budget of boosted trees in place of those of their main results.

    Args:
        results: results of networks, and of trees with the budget as variant.
        fits: fits of these trees (`read_fits`).
    """
    frame = results.frame
    chosen = fits[fits["is_chosen"]].drop_duplicates(["task", "split", "chip", "model"])
    for row in chosen.to_dict("records"):
        keys = {name: str(row[name]) for name in ("task", "split", "chip", "model")}
        of_budget = select(frame, **keys, variant=str(row["budget"]))
        if of_budget.empty:
            continue
        before = select(frame, **keys, variant=MAIN).index
        frame = stack([frame.drop(before), of_budget.assign(variant=MAIN)])
    return Results(frame)


def _core_seconds(out: Path, budgets: Sequence[Budget]) -> pd.DataFrame:
    """Returns the processor time of each training run: `core_seconds`.

    Where nobody measured it, as of a run that took over the files of an equal one, it is that of as many
    steps of the same network on samples of the same chip, by the median over its other runs; NaN without any.

    Returns:
        a row a run, in order, with `task`, `split` (as results have it), `chip`, `variant`, `steps`,
        `network` (its variant, or its model where that is the main one), `fold`, `seed`, and `seconds` as
        measured, too.
    """
    rows = []
    for budget in budgets:
        variant = budget.variant.rpartition(".")[2]  # without the experiment, where an earlier one has it
        cell = f"{budget.task}-{budget.split}-{budget.chip}-{variant}-s{budget.seed}"
        timing = out / "machine" / "train" / budget.experiment / f"{cell}.json"
        side = network_of(budget)[1]
        network = side.model if side.variant == MAIN else side.variant
        if is_curve(budget.variant):
            network = budget.variant.partition("-")[2].rpartition("-")[0]
        named = (budget.task, reported_split(budget.split), budget.chip, budget.variant, budget.steps)
        rows.append((*named, network, budget.split, budget.seed, _seconds_in(timing)))
    columns = ["task", "split", "chip", "variant", "steps", "network", "fold", "seed", "seconds"]
    runs = pd.DataFrame(rows, columns=columns).astype({"seconds": "float64"})
    alike = [runs[name] for name in ("task", "chip", "network")]
    of_step = (runs["seconds"] / runs["steps"]).groupby(alike).transform("median")
    return runs.assign(core_seconds=runs["seconds"].fillna(of_step * runs["steps"]))


def _training_times(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns result rows of what networks took on each fold with each seed: metric `core_seconds_per_step`.

    It is the measured processor time of all lengths over their steps: these are not independent. Fold and
    seed stand in place of a program. Networks stand as variants of `learned`, main ones by their model.
    """
    keys = ["task", "split", "chip", "network", "fold", "seed"]
    rows: list[MetricRow] = []
    by_run = split_by(runs[runs["seconds"].notna()], keys)
    for (task, split, chip, network, fold, seed), measured in by_run.items():
        origin = RowOrigin(task, split, chip, fold, f"{fold}, seed {seed}", "", "", "")
        seconds = {"core_seconds_per_step": float(measured["seconds"].sum() / measured["steps"].sum())}
        rows += origin.rows(ALL, {(MAIN_NETWORK, network, 0): seconds})
    return frame_of(rows)


def _model_budgets(
    budgets: Sequence[Budget], core_seconds: pd.DataFrame, fits: pd.DataFrame
) -> dict[NetworkKey, ModelBudget]:
    """Returns what each network, and each chosen budget of trees, was given."""
    given: dict[NetworkKey, ModelBudget] = {}
    by_key: dict[NetworkKey, list[int]] = {}
    for index, budget in enumerate(budgets):
        by_key.setdefault(network_of(budget), []).append(index)
    for key, indices in by_key.items():
        runs = core_seconds.iloc[indices]
        given[key] = ModelBudget(steps=int(runs["steps"].min()), core_seconds=_mean(runs["core_seconds"]))
    chosen = split_by(fits[fits["is_chosen"]], ["task", "split", "chip", "model"])
    for (task, split, chip, model), runs in chosen.items():
        given[task, Side(model, MAIN, split, chip)] = _budget_of_trees(runs)
    return given


def _budget_of_trees(runs: pd.DataFrame) -> ModelBudget:
    kernels, trees = (round(float(runs[name].mean())) for name in ("kernels", "trees"))
    return ModelBudget(kernels=kernels, trees=trees, core_seconds=_mean(runs["core_seconds"]))


def _mean(seconds: pd.Series[float]) -> float | None:
    mean = seconds.mean()
    return float(mean) if math.isfinite(mean) else None


def _points_of_networks(curves: Sequence[Curves], core_seconds: pd.DataFrame) -> Iterator[dict[Any, Any]]:
    for of_task in curves:
        keys = {"task": of_task.task, "split": of_task.split, "chip": of_task.chip}
        for network, points in of_task.networks.items():
            for point in points.to_dict("records"):
                runs = select(core_seconds, **keys, variant=f"curve-{network}-{point['steps']}")
                given = ModelBudget(steps=point["steps"], core_seconds=_mean(runs["core_seconds"]))
                named = keys | {"model": network, "is_chosen": point["steps"] == max(points["steps"])}
                yield point | asdict(given) | named


def _points_of_trees(results: Results, fits: pd.DataFrame) -> Iterator[dict[str, object]]:
    keys = ["task", "split", "chip", "model", "budget"]
    # The least budget of a model first.
    in_order = fits.sort_values(["task", "split", "chip", "model", "samples", "trees"], kind="stable")
    for key, runs in in_order.groupby(keys, sort=False):
        task, split, chip, model, budget = map(str, key)
        cell = results.cell(task, split, chip, budget)
        error, tau = (None, None) if cell is None else cell.means(model)
        named = {"task": task, "split": split, "chip": chip, "model": model, "error": error, "tau": tau}
        chosen, validation = bool(runs["is_chosen"].iloc[0]), float(runs["validation"].mean())
        yield asdict(_budget_of_trees(runs)) | named | {"validation": validation, "is_chosen": chosen}


def _settled_variants(curves: Sequence[Curves]) -> dict[NetworkKey, bool]:
    """Returns the same of networks that papers compare with each other: variants of `learned`."""
    variants = {MAIN_NETWORK: [MAIN]}
    for variant, curve in CURVE_OF.items():
        variants.setdefault(curve, []).append(variant)
    return {
        (of_task.task, Side(variant=variant, split=of_task.split, chip=of_task.chip)): is_settled(
            points["validation"].tolist()
        )
        for of_task in curves
        for network, points in of_task.networks.items()
        for variant in variants.get(network, [network])
        if len(points) > 1
    }


def settled_models(points: pd.DataFrame) -> dict[NetworkKey, bool]:
    """Returns whether the validation values of models stayed as they were when their budgets were doubled.

    Args:
        points: models after each budget, of each the least budget first.
    """
    by_model = split_by(points, ["task", "model", "split", "chip"])
    return {
        (task, Side(model, MAIN, split, chip)): is_settled(of_model["validation"].tolist())
        for (task, model, split, chip), of_model in by_model.items()
        if len(of_model) > 1
    }
