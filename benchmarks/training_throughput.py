"""Training speed of the shared graph, compiled and plain, against naive PyG: same weights, data and run.

    python -m benchmarks.training_throughput [--hidden 64] [--only graphsage/lstm] [--json]

All train on the same random kernels of realistic size (8 kernels x 32 decisions a batch, 140 node and 28
decision features, opcode embedding 256 as in lpm2021) on one thread in fp32. A step is everything from the
samples to the new weights: collating, forward, rank loss, backward, fused Adam; features of nodes and kernels
are scaled beforehand for all, as training does. They take turns, a round of all batches each, so a busy
machine slows all, and the median of the rounds counts for each batch. Times are CPU times of the process.

The columns are the shared graph by compiled kernels (`samples_per_s`), the same network in plain PyTorch and
PyG (`plain_shared_graph_samples_per_s`, `models.networks`), and naive PyG batching (`naive_samples_per_s`).
`ratio` compares the first with the last as torch runs it by default; `ratio_same_matmul` gives naive batching
the faster matrix library and the kept memory as well (models.execution), which the plain shared graph has,
too. `compiled_to_plain` is what the compiled kernels are worth: below 1.3 they are not kept
(docs/decisions/0018-compiled-kernels-behind-one-door.md).

`latency_us_per_tile` is the latency of a prediction: 1,000 tile sizes of one kernel of 40 nodes, features
given, by tile. `latency_10000_nodes_ms` is that of one decision on a graph of 10,000 nodes. Without the name
of a cell both are those of graphsage/column-wise. `data_loading_share` and `lightning_overhead` are explained
in `training_overhead.py`; they are of graphsage/column-wise too, and of the worse of two tasks.
`product_share` is the part of a step of graphsage/column-wise that its matrix products alone would take at
the rate `product_gflop_per_s` of this processor (`product_floor.py`): a ratio grows by what is left at most.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.naive_pyg import NaiveCollator, NaiveNet
from benchmarks.network_cells import cells
from benchmarks.product_floor import measure_floor
from benchmarks.synthetic_kernels import kernel_samples, kernels
from benchmarks.training_overhead import TASKS, measure_overhead
from costbench.features.graph_tensors import KernelGraph
from costbench.features.packed_kernels import pack_kernels
from costbench.models.execution import apply_execution, describe_execution
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch, KernelSamples
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.spec import Execution, NetSpec
from costbench.training.losses import pairwise_hinge

KERNELS_PER_BATCH = 8
CONFIGS = 32
TILE_NODES, TILES, LARGE_NODES = 40, 1_000, 10_000
FAST = Execution(threads=1, onednn_matmul=True)
PLAIN = Execution(threads=1, onednn_matmul=True, compiled=False)
DEFAULT_TORCH = Execution(threads=1, onednn_matmul=False, keep_memory=False)

Forward = Callable[[Sequence[KernelSamples]], Tensor]


class PreparedCollator:
    """Batches of kernels whose own features were scaled once; decisions are scaled with every batch.

    `naive_pyg.NaiveCollator` prepares the same.
    """

    def __init__(self, scaling: FeatureScaling, max_neighbors: int) -> None:
        self._scaling = scaling
        self._collator = Collator(scaling, max_neighbors)
        self._prepared: dict[KernelGraph, KernelGraph] = {}

    def __call__(self, samples: Sequence[KernelSamples]) -> GraphBatch:
        kernels = pack_kernels(
            [self._prepare(sample.graph) for sample in samples],
            [sample.config_features for sample in samples],
            [sample.runtime_ns for sample in samples],
        )
        decisions = self._scaling.decision(kernels.config_features)
        return self._collator.collate(replace(kernels, config_features=decisions, scaled_by=self._scaling))

    def _prepare(self, graph: KernelGraph) -> KernelGraph:
        if graph not in self._prepared:
            static = self._scaling.static(graph.static_features[None])[0]
            nodes = self._scaling.node(graph.node_features)
            self._prepared[graph] = replace(graph, node_features=nodes, static_features=static)
        return self._prepared[graph]


class Contender:
    """One way to train a network, with weights and optimiser of its own.

    Attributes:
        seconds: of every step, by batch.
    """

    def __init__(self, network: LearnedCostNet, forward: Forward, execution: Execution) -> None:
        self._optimizer = torch.optim.Adam(network.parameters(), fused=True)
        self._forward = forward
        self._execution = execution
        self.seconds: dict[int, list[float]] = {}

    def round(self, data: Sequence[KernelSamples]) -> None:
        """Trains on every batch once and notes the CPU times."""
        with apply_execution(self._execution):
            for place in range(0, len(data), KERNELS_PER_BATCH):
                started = time.process_time()
                self.step(data[place : place + KERNELS_PER_BATCH])
                self.seconds.setdefault(place, []).append(time.process_time() - started)

    def step(self, samples: Sequence[KernelSamples]) -> None:
        costs = self._forward(samples).view(len(samples), CONFIGS)
        runtime_ns = torch.stack([torch.from_numpy(sample.runtime_ns) for sample in samples])
        loss = pairwise_hinge(costs, runtime_ns, torch.ones_like(costs, dtype=torch.bool))
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()

    def samples_per_s(self) -> float:
        """Samples per second, from each batch's median time; the first round warms up."""
        steady = sum(statistics.median(seconds[1:]) for seconds in self.seconds.values())
        return len(self.seconds) * KERNELS_PER_BATCH * CONFIGS / steady


def measure_cell(spec: NetSpec, data: Sequence[KernelSamples], rounds: int) -> dict[str, float]:
    """Returns the throughput of the three forms of one network, and ratios."""
    scaling = FeatureScaling.fit(data)

    def shared(execution: Execution) -> Contender:
        network, collate = LearnedCostNet(spec, scaling.sizes), PreparedCollator(scaling, spec.max_neighbors)
        return Contender(network, lambda samples: network(collate(samples)), execution)

    def naive(execution: Execution) -> Contender:
        network, collate = LearnedCostNet(spec, scaling.sizes), NaiveCollator(scaling, spec.max_neighbors)
        forward = NaiveNet(network)
        return Contender(network, lambda samples: forward(collate(samples)), execution)

    contenders = [shared(FAST), shared(PLAIN), naive(DEFAULT_TORCH), naive(FAST)]
    # What earlier cells left would be looked through in this one's time.
    gc.collect()
    gc.freeze()
    for _ in range(rounds + 1):
        for contender in contenders:
            contender.round(data)
    compiled, plain, default, same = (contender.samples_per_s() for contender in contenders)
    return {
        "samples_per_s": compiled,
        "plain_shared_graph_samples_per_s": plain,
        "naive_samples_per_s": default,
        "ratio": compiled / default,
        "ratio_same_matmul": compiled / same,
        "compiled_to_plain": compiled / plain,
    }


def measure_products(spec: NetSpec, data: Sequence[KernelSamples], samples_per_s: float) -> dict[str, float]:
    """Returns how far the shared-graph form is from its matrix products."""
    scaling = FeatureScaling.fit(data)
    network, collate = LearnedCostNet(spec, scaling.sizes), Collator(scaling, spec.max_neighbors)
    contender = Contender(network, lambda samples: network(collate(samples)), FAST)
    batches = [data[place : place + KERNELS_PER_BATCH] for place in range(0, len(data), KERNELS_PER_BATCH)]
    return measure_floor(contender.step, batches, spec.hidden, KERNELS_PER_BATCH * CONFIGS / samples_per_s)


def measure_inference(spec: NetSpec, data: Sequence[KernelSamples]) -> dict[str, float]:
    """Returns the latency of predictions: the best of three, CPU time."""
    scaling = FeatureScaling.fit(data)
    model = LearnedCostModel(LearnedCostNet(spec, scaling.sizes), scaling, "score", FAST)

    def seconds(sample: KernelSamples) -> float:
        model.predict_graph(sample.graph, sample.config_features)
        times = []
        for _ in range(3):
            started = time.process_time()
            model.predict_graph(sample.graph, sample.config_features)
            times.append(time.process_time() - started)
        return min(times)

    return {
        "latency_us_per_tile": seconds(kernel_samples(1, TILE_NODES, TILES)) * 1e6 / TILES,
        "latency_10000_nodes_ms": seconds(kernel_samples(2, LARGE_NODES, 1)) * 1e3,
    }


def main() -> None:
    """Prints a table, or one flat JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hidden", type=int, default=64, help="width of the hidden layers")
    parser.add_argument("--batches", type=int, default=8, help="different batches")
    parser.add_argument("--only", help="one cell, as ENCODER/REDUCTION")
    parser.add_argument("--rounds", type=int, default=5, help="times every batch is trained on")
    parser.add_argument("--json", action="store_true", help="print {encoder}/{reduction}/{metric}: value")
    arguments = parser.parse_args()
    data = kernels(0, arguments.batches * KERNELS_PER_BATCH, CONFIGS)
    results: dict[str, float] = {}
    for encoder, reduction in cells(arguments.only):
        spec = NetSpec(encoder=encoder, reduction=reduction, hidden=arguments.hidden, opcode_embedding=256)
        cell = measure_cell(spec, data, arguments.rounds) | measure_inference(spec, data)
        results |= {f"{encoder}/{reduction}/{name}": value for name, value in cell.items()}
        if not arguments.json:
            print(
                f"{encoder:10} {reduction:12} {cell['samples_per_s']:8.0f} samples/s, plain shared graph"
                f" {cell['plain_shared_graph_samples_per_s']:6.0f} ({cell['compiled_to_plain']:.2f}x),"
                f" naive PyG {cell['naive_samples_per_s']:6.0f}: {cell['ratio']:.2f}x"
                f" ({cell['ratio_same_matmul']:.2f}x with the same matrix library);"
                f" {cell['latency_us_per_tile']:.0f} us a tile,"
                f" {cell['latency_10000_nodes_ms']:.0f} ms a large graph"
            )
    spec = NetSpec(hidden=arguments.hidden, opcode_embedding=256)
    results |= measure_inference(spec, data) | measure_overhead(spec, data, 12 * arguments.batches)
    of_default = results.get("graphsage/column-wise/samples_per_s")
    if of_default is not None:
        results |= measure_products(spec, data, of_default)
    if arguments.json:
        print(json.dumps(results, indent=1, sort_keys=True))
    else:
        if of_default is not None:
            print(
                f"graphsage/column-wise: {results['product_share']:.0%} of a step are its matrix products"
                f" at {results['product_gflop_per_s']:.0f} GFLOP/s"
            )
        for task in TASKS:
            print(
                f"{task}: {results[f'{task}/step_ms']:.1f} ms a step of a bare loop,"
                f" {results[f'{task}/data_loading_share']:.1%} of it data loading;"
                f" Lightning adds {results[f'{task}/lightning_overhead']:.1%}"
            )
        nodes = sum(sample.graph.num_nodes for sample in data) / len(data)
        how = describe_execution(FAST, torch.device("cpu"))
        print(f"hidden {arguments.hidden}, {nodes:.0f} nodes a kernel on average, {how}")


if __name__ == "__main__":
    main()
