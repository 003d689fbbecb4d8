"""Scores layout models on one program: how well they order its measured configs, and what scoring takes."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from costbench.arrays import F64, I64
from costbench.autotuning.budget import COMPILE_S_PER_INSTRUCTION, Charging
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.datasets.layout_pricing import measured_runs, run_factors
from costbench.datasets.layout_shards import SEARCHES, layout_shard_path, open_layout_shard
from costbench.datasets.storage import Shard
from costbench.errors import DataError
from costbench.experiments.evaluation.program import ByModel, ModelKey, ProgramResult, ProgramTask
from costbench.experiments.evaluation.unfitted import LAYOUT_ORDERS
from costbench.experiments.grid.cells import MAIN
from costbench.features.feature_shards import paths_of_programs
from costbench.features.tpugraphs_graphs import extract_graph
from costbench.hardware.device import Device
from costbench.hlo.reader import module_from_bytes
from costbench.metrics.overhead import BATCH, Overhead
from costbench.metrics.ranking import count_pairs, tau_of
from costbench.metrics.tpugraphs import LAYOUT_TOP_K, ordered_pair_accuracy, top_k_slowdown
from costbench.models.baselines.fitting import FittedBaseline, classes_of, load_baselines
from costbench.models.baselines.layouts import program_table
from costbench.rng import stream_key
from costbench.search.space import keys
from costbench.target import Target, load_target

Score = Callable[[LayoutGraph, I64], F64]
"""Scores some configs of a graph."""
EVALUATED_CONFIGS = 1000
"""Configs of a program that count (tpugraphs2023, section 3.3)."""
TOP_PERCENT = (1, 10)
"""Shares of a program's configs that are tried: those that the paper's K of 10 and 100 are of 1,000."""
MEASURED_AGAIN = "measured_again"
_TASK = "layout"
_PREFIX = "layout:"
_REPEATS = 3


def evaluate_layouts(program: ProgramTask) -> ProgramResult:
    """Returns how well all models order the layouts of a program, in each collection that holds it.

    Groups of the metrics are the collections, as `collection_of` names them, and `all`, their mean.

    Raises:
        DataError: for a damaged graph or model, or scores that are not finite.
    """
    # torch takes a second to import.
    from costbench.models.execution import device_of
    from costbench.models.layout.model import load_layout_model

    paths = paths_of_programs(program.features, _TASK, program.chip, (program.program,))
    graphs = [open_layout_graph(path) for path in paths]
    names = [name for name in program.models if name in classes_of(_TASK)]
    fitted = load_baselines(program.fitted, _TASK, names) if program.fitted is not None else {}
    networks: dict[ModelKey, Score] = {
        checkpoint.key: load_layout_model(checkpoint.folder, device=device_of(checkpoint.accelerator)).predict
        for checkpoint in program.checkpoints
    }
    source = layout_shard_path(program.data, program.chip, program.program)
    again: dict[str, dict[int, F64]] = {}
    # An imported program has no shard, and no machine to run on.
    if MEASURED_AGAIN in program.models and not program.imported:
        target = load_target(program.chip_file or program.chip)
        again = measure_again(source, target, program.params.random_seeds)
    metrics: dict[str, ByModel] = {}
    for graph in graphs:
        rows = evaluated_rows(graph)
        search = collection_of(graph).rpartition(":")[2]
        scores = baseline_scores(graph, rows, program.models, program.params.random_seeds, fitted)
        scores |= {key: network(graph, rows) for key, network in networks.items()}
        by_seed = again.get(search, {})
        scores |= {(MEASURED_AGAIN, MAIN, seed): runs[rows] for seed, runs in by_seed.items()}
        metrics[collection_of(graph)] = {
            key: layout_metrics(graph, costs, rows) for key, costs in scores.items()
        }
    application = str(Shard.open(paths[0]).metadata["application"])
    overheads: tuple[Overhead, ...] = ()
    # An imported program has no shard to extract features from, and no program to compile.
    if networks and not program.imported:
        overheads = (
            measure_overhead(
                graphs[0],
                program.split,
                program.chip,
                application,
                lambda: extract_graph(source),
                next(iter(networks.values())),
                Charging(compile_s=0.0, compile_s_per_instruction=COMPILE_S_PER_INSTRUCTION),
            ),
        )
    return ProgramResult(application, over_collections(metrics), overheads=overheads)


def evaluated_rows(graph: LayoutGraph, count: int = EVALUATED_CONFIGS) -> I64:
    """Returns the configs that scores are over: all, or `count` of them evenly spaced by runtime.

    They are those at positions 0, m, 2m, ..., last after a stable sort by runtime (tpugraphs2023, section
    3.3).

    Args:
        graph: a program whose runtimes are known.
        count: largest number of configs, two or more.

    Returns:
        int64 [min(c, count)], ascending.

    Raises:
        DataError: if runtimes are withheld.
    """
    if not graph.is_labelled:
        raise DataError("runtimes are withheld", where=graph.name, field="config_runtime")
    if graph.num_configs <= count:
        return np.arange(graph.num_configs)
    order = np.argsort(graph.runtime_ns, kind="stable")
    positions = np.linspace(0, graph.num_configs - 1, count).round().astype(np.int64)
    chosen: I64 = np.sort(order[positions]).astype(np.int64)
    return chosen


def layout_metrics(graph: LayoutGraph, scores: F64, rows: I64 | None = None) -> dict[str, float]:
    """Returns `order_metrics` of the scores of some configs of a program.

    Args:
        graph: a program whose runtimes are known.
        scores: predicted costs, lower is faster, float64 [len(rows)].
        rows: configs that were scored; all of `evaluated_rows` for None.

    Raises:
        DataError: if runtimes are withheld, or scores are of another number or not finite.
    """
    chosen = evaluated_rows(graph) if rows is None else rows
    if scores.shape != (len(chosen),) or not np.isfinite(scores).all():
        problem = f"scores of shape {list(scores.shape)}"
        raise DataError(problem, where=graph.name, expected=f"{len(chosen)} finite numbers")
    return order_metrics(graph.runtime_ns[chosen].astype(np.float64), scores)


def order_metrics(runtime: F64, scores: F64) -> dict[str, float]:
    """Returns the metrics of an order of configs, as tpugraphs2023 defines them (section 5.1).

    - `kendall_tau`: tau-b between scores and runtimes; 0 for equal scores, by which no model must gain;
    - `opa`: share of the pairs with different runtimes that are in the right order;
    - `top_1`, `top_10`, `top_100`: runtime of the fastest among the k configs with the lowest scores over
      that of the fastest of all, less one, in percent; equal scores stand in the order of configs;
    - `top_1_percent`, `top_10_percent`: the same with k that share of the configs, rounded, one at least.
      They compare with the paper's top-10 and top-100 of 1,000, whatever the number of configs.

    A metric that is not defined (one config, or equal runtimes only) is left out.

    Args:
        runtime: runtimes of some configs of a program, float64 [c].
        scores: their predicted costs, lower is faster, finite, float64 [c].
    """
    values = {
        "kendall_tau": tau_of(count_pairs(scores, runtime)),
        "opa": ordered_pair_accuracy(runtime, scores),
    }
    ks = {f"top_{k}": k for k in LAYOUT_TOP_K}
    ks |= {f"top_{percent}_percent": max(1, round(len(runtime) * percent / 100)) for percent in TOP_PERCENT}
    values |= {name: 100.0 * top_k_slowdown(runtime, scores, k) for name, k in ks.items()}
    return {name: value for name, value in values.items() if not math.isnan(value)}


def baseline_scores(
    graph: LayoutGraph,
    rows: I64,
    names: Sequence[str],
    seeds: tuple[int, ...],
    fitted: Mapping[str, FittedBaseline],
) -> dict[ModelKey, F64]:
    """Returns the scores of the models that are not networks for some configs of a program.

    Args:
        graph: the program.
        rows: the configs.
        names: models to ask, of `LAYOUT_ORDERS` or of `fitted`; others are passed over.
        seeds: seeds of random orders.
        fitted: fitted models by name.
    """
    scores: dict[ModelKey, F64] = {}
    for name in names:
        if name in LAYOUT_ORDERS:
            for seed, costs in LAYOUT_ORDERS[name](graph, seeds).items():
                scores[name, MAIN, seed] = costs[rows]
        elif name in fitted:
            scores[name, MAIN, 0] = fitted[name].predict(program_table(graph, rows))
    return scores


def measure_again(path: Path, target: Target, seeds: tuple[int, ...]) -> dict[str, dict[int, F64]]:
    """Returns one more run of every config of a program: a ceiling, which knows the machine.

    What differs is the noise of a whole run, as between the runs of a config that a search meets again.

    Args:
        path: layout shard of the program.
        target: chip that it was measured on.
        seeds: seeds of the new noise, a run of each config for each.

    Returns:
        search (`random`, `default`) -> seed -> runtimes in ns of the search's runs, in their order.

    Raises:
        DataError: if the file is not a layout shard or damaged.
        HloError: if its program cannot be read.
    """
    shard = open_layout_shard(path)
    program = module_from_bytes(shard["program"].tobytes(), where=str(path)).name
    configs = np.asarray(shard["config_options"], dtype=np.int16)
    met: Counter[bytes] = Counter()
    runs = np.empty(len(configs), dtype=np.int64)
    for row, key in enumerate(keys(configs)):
        runs[row] = met[key]
        met[key] += 1
    params = shard.metadata["params"]
    assert isinstance(params, dict), "the metadata of a shard hold its parameters"
    made_by = Device(target, int(params["seed"]))
    without_noise = shard["config_runtime_ns"] / run_factors(made_by, program, configs, runs)
    again = {
        seed: measured_runs(
            without_noise,
            run_factors(Device(target, stream_key(seed, "measured again")), program, configs, runs),
        )
        for seed in seeds
    }
    of_search = {search: np.isin(shard["config_source"], values) for search, values in SEARCHES.items()}
    return {search: {seed: ns[rows] for seed, ns in again.items()} for search, rows in of_search.items()}


def collection_of(graph: LayoutGraph) -> str:
    """Returns a graph's collection as result rows name it: `xla:random` of `layout:xla:random`."""
    return graph.collection.removeprefix(_PREFIX)


def over_collections(
    metrics: Mapping[str, Mapping[ModelKey, Mapping[str, float]]],
) -> dict[str, ByModel]:
    """Returns the groups of a program's result: each collection, and their plain mean under `all`.

    A metric that a model lacks on one of its collections is left out of its mean.

    Args:
        metrics: collection -> model -> metrics of one program.
    """
    groups = {
        collection: {key: dict(values) for key, values in by_model.items()}
        for collection, by_model in metrics.items()
    }
    means: ByModel = {}
    for key in dict.fromkeys(key for by_model in groups.values() for key in by_model):
        of_collections = [by_model[key] for by_model in groups.values() if key in by_model]
        shared = [name for name in of_collections[0] if all(name in values for values in of_collections)]
        means[key] = {name: float(np.mean([values[name] for values in of_collections])) for name in shared}
    return {"all": means, **groups}


def measure_overhead(
    graph: LayoutGraph,
    split: str,
    chip: str,
    application: str,
    extract: Callable[[], object],
    score: Score,
    charging: Charging,
) -> Overhead:
    """Returns what evaluating a config takes beside what compiling and running it is charged.

    Each wall time is the median of three, after one that is not counted.

    Args:
        graph: a program with one config at least, and known runtimes.
        split: name of the split, for the result.
        chip: name of the chip, likewise.
        application: application family of the program, likewise.
        extract: function that extracts the features of the program's graph once more.
        score: function that scores some configs by a trained model, as it would for a search.
        charging: seconds charged for compiling.
    """
    batch = np.resize(np.arange(graph.num_configs), BATCH)
    return Overhead(
        split=split,
        chip=chip,
        application=application,
        program=graph.program,
        compile_s=charging.measuring(graph.num_nodes).compile_s,
        run_s=float(np.median(graph.runtime_ns)) * 1e-9,
        extraction_s=_seconds(extract),
        batch_s=_seconds(lambda: score(graph, batch)) / BATCH,
        single_s=_seconds(lambda: score(graph, batch[:1])),
    )


def _seconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    # A clock of low resolution may see nothing.
    return max(statistics.median(times), 1e-9)
