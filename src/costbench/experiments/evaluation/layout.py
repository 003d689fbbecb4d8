"""Scores layout models on one program: how well they order its measured layout configs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from costbench.arrays import F64, I64
from costbench.autotuning.charging import COMPILE_S_PER_INSTRUCTION, Charging
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.datasets.layout_shards import layout_shard_path
from costbench.datasets.storage import Shard
from costbench.errors import DataError
from costbench.experiments.evaluation.overhead import MeasuredProgram, measure_overhead
from costbench.experiments.evaluation.program import Checkpoint, ModelKey, ProgramResult, ProgramTask
from costbench.experiments.grid.spec import MAIN
from costbench.features.feature_shards import paths_of_programs
from costbench.features.tpugraphs_graphs import extract_nodes
from costbench.metrics.overhead import Overhead
from costbench.metrics.ranking import count_pairs, tau_of
from costbench.metrics.tpugraphs import LAYOUT_TOP_K, ordered_pair_accuracy, top_k_slowdown
from costbench.models.baselines.fitting import BASELINES, Baseline
from costbench.models.baselines.layout.orders import default_first, random_order
from costbench.models.baselines.layout.trees import program_table
from costbench.models.baselines.storage import load_baselines

EVALUATED_CONFIGS = 1000
"""Configs of a program that count (tpugraphs2023, section 3.3)."""
_TASK = "layout"
_PREFIX = "layout:"


def evaluate_layouts(program: ProgramTask) -> ProgramResult:
    """Returns how well all models order the layouts of a program, in each collection that holds it.

    Groups of the metrics are the collections, as `collection_of` names them, and `all`, their mean.

    Raises:
        DataError: for a damaged graph or model, or scores that are not finite.
    """
    paths = paths_of_programs(program.features, _TASK, program.chip, (program.program,))
    graphs = [open_layout_graph(path) for path in paths]
    names = [name for name in program.models if name in BASELINES[_TASK]]
    fitted = load_baselines(program.fitted, _TASK, names) if program.fitted is not None else {}
    networks = _networks(program.checkpoints)
    found: dict[str, dict[ModelKey, dict[str, float]]] = {}
    for graph in graphs:
        rows = evaluated_rows(graph)
        scores = baseline_scores(graph, rows, program.models, program.params.random_seeds, fitted)
        scores |= {key: network(graph, rows) for key, network in networks.items()}
        found[collection_of(graph)] = {key: layout_rows(graph, own, rows) for key, own in scores.items()}
    application = str(Shard.open(paths[0]).metadata["application"])
    first = next(iter(networks.values()), None)
    # An imported program has no shard to extract features from, and no program to compile.
    timed = first if not program.imported else None
    overheads = () if timed is None else (_overhead(program, application, graphs[0], timed),)
    return ProgramResult(application, over_collections(found), overheads=overheads)


_Network = Callable[[LayoutGraph, I64], F64]


def _networks(checkpoints: Sequence[Checkpoint]) -> dict[ModelKey, _Network]:
    """Returns the trained networks, which score configs of a graph."""
    # torch takes a second to import.
    from costbench.models.layout.model import load_layout_model

    return {(one.model, one.variant, one.seed): load_layout_model(one.folder).predict for one in checkpoints}


def _overhead(program: ProgramTask, application: str, graph: LayoutGraph, network: _Network) -> Overhead:
    source = layout_shard_path(program.data, program.chip, program.program)
    measured = MeasuredProgram(program.split, program.chip, application, graph)
    charging = Charging(compile_s=0.0, compile_s_per_instruction=COMPILE_S_PER_INSTRUCTION)
    return measure_overhead(measured, lambda: extract_nodes(source), network, charging)


def evaluated_rows(graph: LayoutGraph, count: int = EVALUATED_CONFIGS) -> I64:
    """Returns the configs that scores are over: all, or `count` of them evenly spaced by runtime.

    They are those at places 0, m, 2m, ..., last after a stable sort by runtime (tpugraphs2023, section 3.3).

    Args:
        graph: a program whose runtimes are known.
        count: how many at most, two or more.

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
    places = np.linspace(0, graph.num_configs - 1, count).round().astype(np.int64)
    chosen: I64 = np.sort(order[places]).astype(np.int64)
    return chosen


def layout_rows(graph: LayoutGraph, scores: F64, rows: I64 | None = None) -> dict[str, float]:
    """Returns the metrics of a model on one program, as tpugraphs2023 defines them (section 5.1).

    - `kendall_tau`: tau-b between scores and runtimes; 0 for equal scores, by which no model must gain;
    - `opa`: share of the pairs with different runtimes that are in the right order;
    - `top_1`, `top_10`, `top_100`: runtime of the fastest among the k configs with the lowest scores over
      that
      of the fastest of all, less one, in percent; equal scores stand in the order of configs.

    A metric that is not defined (one config, or equal runtimes only) is left out.

    Args:
        graph: a program whose runtimes are known.
        scores: float64 [len(rows)], lower is faster.
        rows: configs that were scored; all of `evaluated_rows` for None.

    Raises:
        DataError: if runtimes are withheld, or scores are of another number or not finite.
    """
    chosen = evaluated_rows(graph) if rows is None else rows
    if scores.shape != (len(chosen),) or not np.isfinite(scores).all():
        problem = f"scores of shape {list(scores.shape)}"
        raise DataError(problem, where=graph.name, expected=f"{len(chosen)} finite numbers")
    runtime = graph.runtime_ns[chosen].astype(np.float64)
    values = {
        "kendall_tau": tau_of(count_pairs(scores, runtime)),
        "opa": ordered_pair_accuracy(runtime, scores),
    }
    values |= {f"top_{k}": 100.0 * top_k_slowdown(runtime, scores, k) for k in LAYOUT_TOP_K}
    return {name: value for name, value in values.items() if not math.isnan(value)}


def baseline_scores(
    graph: LayoutGraph,
    rows: I64,
    names: Sequence[str],
    seeds: Sequence[int],
    fitted: Mapping[str, Baseline],
) -> dict[ModelKey, F64]:
    """Returns the scores of the models that are not networks for some configs of a program.

    Args:
        graph: the program.
        rows: the configs.
        names: models to ask: `random`, `default_first`, or one of `fitted`; others are passed over.
        seeds: of random orders.
        fitted: by name.
    """
    found: dict[ModelKey, F64] = {}
    for name in names:
        if name == "random":
            found |= {(name, MAIN, seed): random_order(graph, seed)[rows] for seed in seeds}
        elif name == "default_first":
            found[name, MAIN, 0] = default_first(graph)[rows]
        elif name in fitted:
            found[name, MAIN, 0] = fitted[name].predict(program_table(graph, rows))
    return found


def collection_of(graph: LayoutGraph) -> str:
    """Returns a graph's collection as result rows name it: `xla:random` of `layout:xla:random`."""
    return graph.collection.removeprefix(_PREFIX)


def over_collections(
    found: Mapping[str, Mapping[ModelKey, Mapping[str, float]]],
) -> dict[str, dict[ModelKey, dict[str, float]]]:
    """Returns the groups of a program's result: each collection, and their plain mean under `all`.

    A metric that a model lacks on one of its collections is left out of its mean.

    Args:
        found: collection -> model -> metrics of one program.
    """
    groups = {name: {key: dict(own) for key, own in by.items()} for name, by in found.items()}
    keys = dict.fromkeys(key for by in groups.values() for key in by)
    total: dict[ModelKey, dict[str, float]] = {}
    for key in keys:
        several = [by[key] for by in groups.values() if key in by]
        shared = [name for name in several[0] if all(name in one for one in several)]
        total[key] = {name: float(np.mean([one[name] for one in several])) for name in shared}
    return {"all": total, **groups}
