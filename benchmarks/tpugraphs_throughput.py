"""Throughput and memory of tile and layout networks on a generated collection of TpuGraphs' sizes.

    python -m benchmarks.tpugraphs_throughput [--hidden 64] [--threads 2] [--json] [--only tile/early]

Tile: kernels of 40 nodes with 1,000 configs, networks that join the config early (at every node) and late
(after the graph network), in configs per second. Layout: a program of 10,000 nodes, 500 of them configurable,
with 1,000 configs; a training step has 16 configs; in nodes x configs per second, where a node counts for
every config whether its state is computed for it or not. A step is everything from the samples to the new
weights: reading, forward, pairwise hinge loss, backward, Adam.

Each is timed against naive PyG in the same run (`naive_pyg`, `naive_layouts`: a graph per config, same
weights and data), taking turns, so that a busy machine slows both; the fastest of the rounds counts, wall
time. `peak_mb` is the largest resident memory of a process that does nothing else, libraries included.

`memory/...`: a program of 40,000 nodes, 1,000 of them configurable, with 10,000 and 100,000 configs: largest
resident memory of a process that trains some steps on it and scores 1,000 configs, evenly spaced by runtime.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.naive_layouts import NaiveLayoutNet, naive_batch
from benchmarks.naive_pyg import NaiveCollator, NaiveNet
from benchmarks.synthetic_kernels import kernel_samples
from benchmarks.synthetic_layouts import random_graph, write_random_graph
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.features.packed_kernels import pack_kernels
from costbench.models.execution import apply_execution
from costbench.models.graph_batch import Collator, FeatureScaling
from costbench.models.layout.inputs import CPU, LayoutScaling, layout_inputs
from costbench.models.layout.model import config_scores
from costbench.models.layout.network import LayoutNetwork
from costbench.models.layout.segments import build_segment, segment_scores
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.spec import Execution, LayoutNetSpec, NetSpec, Placement
from costbench.training.layout.source import select_configs, space_evenly
from costbench.training.losses import pairwise_hinge
from costbench.training.spec import SamplingSpec

TILE_NODES, TILE_CONFIGS, TILE_KERNELS = 40, 1_000, 8
LAYOUT_SIZES = (10_000, 500, 1_000)
STEP_CONFIGS, SEGMENT_NODES = 16, 5_000
LARGE_SIZES = (40_000, 1_000)
LARGE_CONFIGS = (10_000, 100_000)
ROUNDS = 3

Work = Callable[[], object]


def fastest(contenders: Sequence[Work], rounds: int = ROUNDS) -> list[float]:
    """Returns the seconds of each in its fastest round; they take turns, and the first round warms up."""
    seconds: list[list[float]] = [[] for _ in contenders]
    gc.collect()
    for _ in range(rounds + 1):
        for found, work in zip(seconds, contenders, strict=True):
            started = time.perf_counter()
            work()
            found.append(time.perf_counter() - started)
    return [min(found[1:]) for found in seconds]


def training(network: torch.nn.Module, costs: Callable[[], Tensor], runtime_ns: Tensor) -> Work:
    """Returns a training step; costs and runtimes are [K, C]."""
    optimizer = torch.optim.Adam(network.parameters(), fused=True)

    def step() -> None:
        predicted = costs().view_as(runtime_ns)
        loss = pairwise_hinge(predicted, runtime_ns, torch.ones_like(predicted, dtype=torch.bool))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def tile(place: Placement, hidden: int, execution: Execution) -> dict[str, float]:
    """Returns the throughput of a tile network whose configs join at `place`, in training and inference."""
    spec = NetSpec(hidden=hidden, decision_features=place, module_layers=0)
    samples = [kernel_samples(seed, TILE_NODES, TILE_CONFIGS) for seed in range(TILE_KERNELS)]
    scaling = FeatureScaling.fit(samples)
    share = TILE_CONFIGS // TILE_KERNELS
    parts = [one.select(torch.arange(share).numpy()) for one in samples]
    runtime_ns = torch.stack([torch.from_numpy(one.runtime_ns) for one in parts])
    kernels = pack_kernels(
        [one.graph for one in parts],
        [one.config_features for one in parts],
        [one.runtime_ns for one in parts],
    )
    ours, theirs = (LearnedCostNet(spec, scaling.sizes) for _ in range(2))
    collator, naive = Collator(scaling, spec.max_neighbors), NaiveCollator(scaling, spec.max_neighbors)
    naive_net = NaiveNet(theirs)
    model = LearnedCostModel(LearnedCostNet(spec, scaling.sizes), scaling, "score", execution)

    def inference() -> None:
        model.predict_graph(samples[0].graph, samples[0].config_features)

    def naive_inference() -> None:
        with torch.inference_mode():
            naive_net(naive([samples[0]]))

    with apply_execution(execution):
        trained = fastest(
            [
                training(ours, lambda: ours(collator.collate(kernels)), runtime_ns),
                training(theirs, lambda: naive_net(naive(parts)), runtime_ns),
            ]
        )
        predicted = fastest([inference, naive_inference])
    return {
        "training_configs_per_s": TILE_KERNELS * share / trained[0],
        "training_ratio": trained[1] / trained[0],
        "inference_configs_per_s": TILE_CONFIGS / predicted[0],
        "inference_ratio": predicted[1] / predicted[0],
        "inference_us_per_config": predicted[0] / TILE_CONFIGS * 1e6,
    }


class LayoutWork:
    """Steps and predictions on one graph, of the split network and of naive PyG."""

    def __init__(self, graph: LayoutGraph, hidden: int, device: torch.device = CPU) -> None:
        # The features enter scaled, as in the paper, so that both forms read the same.
        self.spec = LayoutNetSpec(hidden=hidden, options="scaled")
        scaling = LayoutScaling.fit([graph])
        self.inputs = layout_inputs(graph, scaling, self.spec, device)
        widths = scaling.node.num_outputs, scaling.option.num_outputs
        self.net, self._naive_net = (LayoutNetwork(self.spec, *widths).to(device) for _ in range(2))
        self._naive = NaiveLayoutNet(self._naive_net)
        self._rows = torch.arange(STEP_CONFIGS).numpy()
        self._runtime_ns = torch.from_numpy(graph.runtime_ns[self._rows].astype(float))[None].to(device)
        self._start = 0

    def full(self) -> Work:
        """Takes a step through the whole graph."""
        return training(self.net, lambda: self.net(self.inputs, self._options()), self._runtime_ns)

    def segment(self) -> Work:
        """Takes a step through a segment; the whole graph forward."""
        return training(self.net, self._segment_scores, self._runtime_ns)

    def naive(self) -> Work:
        """Takes a step of naive PyG."""
        return training(
            self._naive_net, lambda: self._naive(naive_batch(self.inputs, self._options())), self._runtime_ns
        )

    def inference(self) -> Work:
        """Scores all configs."""
        return lambda: config_scores(self.net, self.inputs)

    def naive_inference(self) -> Work:
        """Scores 16 configs by naive PyG."""

        def scores() -> None:
            with torch.inference_mode():
                self._naive(naive_batch(self.inputs, self._options()))

        return scores

    def _options(self) -> Tensor:
        return self.inputs.option_rows(self._rows)

    def _segment_scores(self) -> Tensor:
        nodes = torch.arange(self.inputs.view.num_nodes).numpy()
        self._start = (self._start + 1_117) % (len(nodes) - SEGMENT_NODES)
        inside = (nodes >= self._start) & (nodes < self._start + SEGMENT_NODES)
        return segment_scores(self.net, self.inputs, self._options(), build_segment(self.inputs, inside))


def layout(hidden: int, execution: Execution) -> dict[str, float]:
    """Returns the throughput of layout networks, nodes x configs per second."""
    work = LayoutWork(random_graph(0, *LAYOUT_SIZES), hidden)
    step_nodes = LAYOUT_SIZES[0] * STEP_CONFIGS
    with apply_execution(execution):
        full, segment, naive = fastest([work.full(), work.segment(), work.naive()])
        inference, naive_inference = fastest([work.inference(), work.naive_inference()])
    per_config, naive_per_config = inference / LAYOUT_SIZES[2], naive_inference / STEP_CONFIGS
    return {
        "full/training_node_configs_per_s": step_nodes / full,
        "full/training_ratio": naive / full,
        "segments/training_node_configs_per_s": step_nodes / segment,
        "segments/training_ratio": naive / segment,
        "naive/training_node_configs_per_s": step_nodes / naive,
        "inference_node_configs_per_s": LAYOUT_SIZES[0] / per_config,
        "inference_ratio": naive_per_config / per_config,
        "varying_rows": float(work.inputs.plan.largest),
    }


def peak_mb() -> float:
    """Returns the largest resident memory of this program so far.

    Linux says it of the program; what `getrusage` says begins with what the process held that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        [found] = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(found.split()[1]) / 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def memory_of(case: str, path: Path, hidden: int, execution: Execution) -> dict[str, float]:
    """Trains some steps on a graph file, or scores it, in this process; returns the peak."""
    graph = open_layout_graph(path)
    work = LayoutWork(graph, hidden)
    with apply_execution(execution):
        before = peak_mb()
        steps = {"full": [work.full()], "segments": [work.segment()], "naive": [work.naive()]}
        for step in steps.get(case, []):
            for _ in range(2):
                step()
        if case == "evaluate":
            configs = select_configs(graph, None, SamplingSpec(deduplicate=False), seed=0)
            config_scores(work.net, work.inputs, space_evenly(configs, 1_000).rows)
    return {"peak_mb": peak_mb(), "before_mb": before}


def measured_apart(case: str, path: Path, hidden: int, threads: int) -> float:
    """Returns the peak memory in MB of a process of its own; see `memory_of`."""
    command = [sys.executable, __file__, "--memory", case, "--file", str(path)]
    command += ["--hidden", str(hidden), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["peak_mb"])


def memory(hidden: int, threads: int, folder: Path) -> dict[str, float]:
    """Returns the peak memory of layout training and evaluation."""
    found = {}
    path = write_random_graph(folder / "layout.arrow", *LAYOUT_SIZES)
    for case in ("full", "segments", "naive"):
        found[f"layout/{case}/peak_mb"] = measured_apart(case, path, hidden, threads)
    for configs in LARGE_CONFIGS:
        large = write_random_graph(folder / f"large_{configs}.arrow", *LARGE_SIZES, configs)
        for case in ("full", "segments", "evaluate"):
            found[f"memory/{configs}/{case}/peak_mb"] = measured_apart(case, large, hidden, threads)
        large.unlink()
    return found


def measure(only: str | None, hidden: int, threads: int) -> dict[str, float]:
    """Returns all measurements, or those whose names begin with `only`."""
    execution = Execution(threads=threads)
    places: dict[str, Placement] = {"early": "node", "late": "kernel"}
    parts: dict[str, Callable[[], dict[str, float]]] = {
        f"tile/{name}": lambda place=place: tile(place, hidden, execution) for name, place in places.items()
    }
    parts["layout"] = lambda: layout(hidden, execution)
    found: dict[str, float] = {}
    for name, part in parts.items():
        if only is None or name.startswith(only):
            found |= {f"{name}/{key}": value for key, value in part().items()}
    if only is None or only == "memory":
        with tempfile.TemporaryDirectory() as folder:
            found |= memory(hidden, threads, Path(folder))
    return found


def main() -> None:
    """Prints a table, or one flat JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hidden", type=int, default=64, help="width of the hidden layers")
    parser.add_argument("--threads", type=int, default=2, help="threads of both contenders")
    parser.add_argument("--only", help="`tile/early`, `tile`, `layout` or `memory`")
    parser.add_argument("--json", action="store_true", help="print {name: value}")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        execution = Execution(threads=arguments.threads)
        print(json.dumps(memory_of(arguments.memory, arguments.file, arguments.hidden, execution)))
        return
    found = measure(arguments.only, arguments.hidden, arguments.threads)
    if arguments.json:
        print(json.dumps(found, indent=1, sort_keys=True))
        return
    for name, value in sorted(found.items()):
        print(f"{name:48} {value:14,.1f}")


if __name__ == "__main__":
    main()
