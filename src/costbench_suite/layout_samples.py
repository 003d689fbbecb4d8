"""Layouts as tables: programs as graphs with their options, and measured configs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from costbench.datasets.layout_graphs import open_layout_graph
from costbench.experiments.evaluation.layout import collection_of, evaluated_rows
from costbench.models.baselines.layouts import CONFIG_FEATURES, config_rows
from costbench_suite.kernel_samples import DECISIONS, columns_of, list_column

GRAPHS = "graphs"


def layout_tables(path: Path) -> Mapping[str, pa.Table]:
    """Returns the tables of a program's configs of one collection.

    - `graphs`: one row, the program as TpuGraphs has it. `edges` has consumer and producer of each edge in
      turn; `option_offsets` says which rows of `option_features`, 18 numbers each, belong to which of the
      configurable nodes `node_config_ids`.
    - `decisions`: a row for each measured config: the option of each configurable node, 30 features that sum
      up what the options change, and the runtime.

    Args:
        path: layout graph of the program.

    Raises:
        DataError: for a damaged graph.
    """
    graph = open_layout_graph(path)
    name, count = f"{graph.program}/{collection_of(graph)}", graph.num_configs
    scored = np.zeros(count, dtype=bool)
    scored[evaluated_rows(graph)] = True
    graphs = pa.table(
        {
            "id": [name],
            "program": [graph.program],
            "opcodes": list_column([graph.opcodes.astype(np.int16)], pa.int16()),
            "node_features": list_column([graph.node_features.ravel()], pa.float32()),
            "edges": list_column([graph.edges.ravel()], pa.int32()),
            "node_config_ids": list_column([graph.node_config_ids], pa.int32()),
            "option_offsets": list_column([graph.option_offsets], pa.int64()),
            "option_features": list_column([graph.option_features.ravel()], pa.float32()),
        }
    )
    decisions = pa.table(
        {
            "id": [name] * count,
            "decision": np.arange(count, dtype=np.int32),
            "options": list_column(list(graph.config_options.astype(np.int16)), pa.int16()),
            **columns_of(CONFIG_FEATURES, config_rows(graph)),
            "scored": scored,
            "runtime_ns": np.asarray(graph.runtime_ns),
        }
    )
    return {GRAPHS: graphs, DECISIONS: decisions}
